#include "cli/config_estimate.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <utility>

#include "cli/graph_estimate.h"
#include "cli/input.h"

namespace plimsoll::cli {
namespace {

constexpr std::int64_t kMaxTokens = std::int64_t{1} << 24;
constexpr std::int64_t kMaxSplits = 4096;
constexpr std::size_t kMaxBytes = 65536;  // as the API's own limit

constexpr const char* kOnlyWithConfig[] = {"sequence-length", "attention", "sequence-parallel", "context",
                                           "expert"};

Result<void> read_splits(const po::variables_map& values, crds::Parallelism& parallelism) {
  const std::array<std::pair<const char*, std::int64_t*>, 5> sizes = {
      {{"tensor", &parallelism.tensor},
       {"pipeline", &parallelism.pipeline},
       {"pipeline-chunks", &parallelism.pipeline_chunks},
       {"context", &parallelism.context},
       {"expert", &parallelism.expert}}};
  for (const auto& [name, size] : sizes) {
    if (values.contains(name)) {
      const Result<std::int64_t> read = count_option(values, name, 1, kMaxSplits);
      if (!read) {
        return read.error();
      }
      *size = *read;
    }
  }
  parallelism.sequence = values.contains("sequence-parallel");
  if (values.contains("parallelism")) {
    const Result<crds::ParallelStrategy> strategy =
        crds::parse_parallel_strategy(values["parallelism"].as<std::string>());
    if (!strategy) {
      return strategy.error().within("--parallelism");
    }
    parallelism.strategy = *strategy;
  }
  parallelism.gradient_as_bucket_view = values.contains("gradient-as-bucket-view");
  return {};
}

}  // namespace

void add_config_options(po::options_description& options) {
  const auto value = [](const char* name) { return po::value<std::string>()->value_name(name); };
  options.add_options()("config", value("FILE"),
                        "a Hugging Face config.json; takes --graph's training options")(
      "sequence-length", value("S"), "with --config: tokens of a sample")(
      "attention", value("KIND"), "with --config: SDPA (default), Eager or Flash")(
      "sequence-parallel", "with --config and --tensor: split tokens between the layers' parts too")(
      "context", value("N"), "with --config: trainers that split each sample's tokens")(
      "expert", value("N"), "with --config: trainers that share each layer's experts");
}

const char* config_option_given(const po::variables_map& values) {
  const auto* const given = std::find_if(std::begin(kOnlyWithConfig), std::end(kOnlyWithConfig),
                                         [&](const char* name) { return values.contains(name); });
  return given == std::end(kOnlyWithConfig) ? nullptr : *given;
}

Result<crds::TrainingJob> job_of_config(const po::variables_map& values, Console& console) {
  if (values.contains("filename") || values.contains("graph")) {
    return invalid("--config, --graph and -f exclude each other");
  }
  for (const char* name :
       {"split-columns", "split-rows", "stage-blocks", "zero-grad", "next-batch-early", "reentrant"}) {
    if (values.contains(name)) {
      return invalid(std::string("--") + name + " is for --graph");
    }
  }
  if (!values.contains("sequence-length")) {
    return invalid("--config needs --sequence-length S");
  }
  crds::TrainingJob job;
  job.name = values["config"].as<std::string>();
  crds::TransformerModel& model = job.spec.model.transformer.emplace();
  const Result<std::string> content = read_input(job.name, console);
  if (!content) {
    return content.error();
  }
  if (content->size() > kMaxBytes) {
    return Error(ErrorCode::kTooLarge,
                 job.name + " is larger than any config.json, " + std::to_string(kMaxBytes) + " bytes");
  }
  model.config = *content;
  const Result<std::int64_t> tokens = count_option(values, "sequence-length", 1, kMaxTokens);
  if (!tokens) {
    return tokens.error();
  }
  model.sequence_length = *tokens;
  if (values.contains("attention")) {
    const Result<crds::AttentionKind> attention =
        crds::parse_attention_kind(values["attention"].as<std::string>());
    if (!attention) {
      return attention.error().within("--attention");
    }
    model.attention = *attention;
  }
  if (Result<void> read = read_training_options(values, job.spec.training); !read) {
    return read.error();
  }
  if (Result<void> read = read_splits(values, job.spec.training.parallelism); !read) {
    return read.error();
  }
  return job;
}

}  // namespace plimsoll::cli
