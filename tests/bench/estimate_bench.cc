// ./scripts/bench estimate: how long an estimate of an exported graph takes, from the gzipped file in memory
// to the peak, and how that grows with the graph.
//
// Beside it a transformer by its sizes alone: Llama 3 405B (arXiv 2407.21783, table 3), by model.transformer
// and by its config.json. And the time of an iteration, which a search asks for at every number of trainers.
//
// The graph is a chain of layers as the exporter writes one: product, ReLU, their backward, the gradient of
// the weight; AdamW, batch 64, CUDA. Times are medians, on the processor. References are what the project
// aims at.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "base/allocator.h"
#include "base/gzip.h"
#include "estimator/catalog/gpu_catalog.h"
#include "estimator/estimate/estimate.h"
#include "estimator/speed/iteration_time.h"
#include "estimator/trace/import_graph.h"
#include "tests/bench/report.h"
#include "tests/estimator/chain_graph.h"

namespace plimsoll {
namespace {

constexpr const char* kUsage =
    "usage: estimate_bench [--json] [--repeat N]\n"
    "\n"
    "  --json      one object a line: {bench, case, metric, value, unit, reference}\n"
    "  --repeat N  runs of each case, of which the median counts (default 15)\n";

Result<double> milliseconds_of(int operators, int repeat) {
  const std::string file = gzip(estimator::testing::chain_graph(operators / 5));
  const estimator::GpuCatalog catalog = estimator::GpuCatalog::built_in();
  crds::ModelSpec model;
  model.graph = crds::GraphReference{};
  crds::TrainingSpec training;
  training.batch_size_per_trainer = 64;
  training.optimizer = crds::Optimizer::kAdamW;
  Error error;
  bool failed = false;
  const double median = testing::median_milliseconds(repeat, [&] {
    const Result<estimator::TraceFile> graph = estimator::import_traces(file);
    if (!graph) {
      failed = true;
      error = graph.error();
      return;
    }
    estimator::EstimateRequest request;
    request.model = &model;
    request.training = &training;
    request.graph = &*graph;
    request.gpu = catalog.find("A100-80GB");
    const Result<estimator::Estimate> estimate = estimator::estimate_memory(request);
    if (!estimate) {
      failed = true;
      error = estimate.error();
    }
  });
  return failed ? Result<double>(error) : Result<double>(median);
}

// config.json of Llama-3.1-405B, with other layers.
std::string llama_config(std::int64_t layers) {
  return R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":16384,)"
         R"("intermediate_size":53248,"num_attention_heads":128,"num_key_value_heads":8,"vocab_size":128256,)"
         R"("max_position_embeddings":131072,"rms_norm_eps":1e-05,"rope_theta":500000.0,"hidden_act":"silu",)"
         R"("tie_word_embeddings":false,"torch_dtype":"bfloat16","num_hidden_layers":)" +
         std::to_string(layers) + "}";
}

crds::TransformerModel llama(std::int64_t layers) {
  crds::TransformerModel model;
  model.layers = layers;
  model.hidden = 16384;
  model.heads = 128;
  model.kv_heads = 8;
  model.ffn = 53248;
  model.vocab = 128256;
  model.sequence_length = 8192;
  return model;
}

Result<double> milliseconds_of(const crds::TransformerModel& transformer, int repeat) {
  const estimator::GpuCatalog catalog = estimator::GpuCatalog::built_in();
  crds::ModelSpec model;
  model.transformer = transformer;
  crds::TrainingSpec training;
  training.batch_size_per_trainer = 1;
  training.optimizer = crds::Optimizer::kAdamW;
  training.precision = crds::Precision::kBF16Mixed;
  const estimator::EstimateRequest request{
      .model = &model, .training = &training, .gpu = catalog.find("H100-80GB")};
  Result<void> failed;
  const double median = testing::median_milliseconds(repeat, [&] {
    const Result<estimator::Estimate> estimate = estimator::estimate_memory(request);
    if (!estimate) {
      failed = estimate.error();
    }
  });
  return failed ? Result<double>(median) : Result<double>(failed.error());
}

Result<double> milliseconds_of_iteration_time(int repeat) {
  const estimator::GpuCatalog catalog = estimator::GpuCatalog::built_in();
  crds::ModelSpec model;
  model.transformer = llama(126);
  crds::TrainingSpec training;
  training.batch_size_per_trainer = 1;
  training.optimizer = crds::Optimizer::kAdamW;
  training.precision = crds::Precision::kBF16Mixed;
  training.parallelism.strategy = crds::ParallelStrategy::kFSDP2;
  const estimator::SpeedRequest request{
      .job = {.model = &model, .training = &training, .gpu = catalog.find("H100-80GB"), .trainers = 512}};
  Result<void> failed;
  const double median = testing::median_milliseconds(repeat, [&] {
    const Result<estimator::IterationTime> time = estimator::iteration_time(request);
    if (!time) {
      failed = time.error();
    }
  });
  return failed ? Result<double>(median) : Result<double>(failed.error());
}

Result<void> add_transformers(const testing::Report& report, int repeat) {
  constexpr std::int64_t kLayers = 126;
  crds::TransformerModel by_config;
  by_config.config = llama_config(kLayers);
  by_config.sequence_length = 8192;
  struct Case {
    const char* name;
    crds::TransformerModel model;
  };
  for (const Case& each :
       {Case{"Llama-3-405B", llama(kLayers)}, Case{"Llama-3-405B, config.json", by_config}}) {
    const Result<double> time = milliseconds_of(each.model, repeat);
    if (!time) {
      return time.error();
    }
    report.add({each.name, "estimate", *time, "ms", 5});
  }
  // Twice the layers, where both are simulated layer by layer and neither fits the second cache.
  constexpr std::int64_t kMany = 504;
  double times[2] = {0, 0};
  for (int i = 0; i < 2; ++i) {
    const Result<double> time = milliseconds_of(llama(i == 0 ? kMany : 2 * kMany), repeat);
    if (!time) {
      return time.error();
    }
    times[i] = *time;
  }
  report.add({"504 to 1008 layers", "growth", times[1] / times[0], "ratio", 2.5});
  // Beyond 1,024 equal layers the estimate follows from models of fewer.
  const Result<double> time = milliseconds_of(llama(std::int64_t{1} << 16), repeat);
  if (!time) {
    return time.error();
  }
  report.add({"65536 layers", "estimate", *time, "ms", 50});
  const Result<double> iteration = milliseconds_of_iteration_time(repeat);
  if (!iteration) {
    return iteration.error();
  }
  report.add({"Llama-3-405B", "iteration time", *iteration, "ms", 1});
  return {};
}

int run(const std::vector<std::string>& arguments) {
  bool json = false;
  int repeat = 15;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--help") {
      std::fputs(kUsage, stdout);
      return 0;
    }
    if (arguments[i] == "--json") {
      json = true;
    } else if (arguments[i] == "--repeat" && i + 1 < arguments.size() &&
               std::atoi(arguments[i + 1].c_str()) > 0) {
      repeat = std::atoi(arguments[++i].c_str());
    } else {
      std::fputs(kUsage, stderr);
      return 2;
    }
  }
  struct Case {
    int operators;
    std::optional<double> reference;
  };
  const testing::Report report("estimate", json);
  std::vector<double> times;
  for (const Case& each : {Case{1000, 5}, Case{10000, 50}, Case{100000, {}}}) {
    const Result<double> time = milliseconds_of(each.operators, repeat);
    if (!time) {
      std::fprintf(stderr, "estimate_bench: %s\n", to_string(time.error()).c_str());
      return 1;
    }
    times.push_back(*time);
    report.add({std::to_string(each.operators) + " operators", "estimate", *time, "ms", each.reference});
  }
  // Ten times the operators, ten times the time; half as much again is caches.
  report.add({"10000 to 100000 operators", "growth", times[2] / times[1], "ratio", 15});
  if (const Result<void> transformers = add_transformers(report, repeat); !transformers) {
    std::fprintf(stderr, "estimate_bench: %s\n", to_string(transformers.error()).c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace plimsoll

int main(int argc, char** argv) {
  plimsoll::use_server_allocator();  // as where decisions are made
  return plimsoll::run({argv + 1, argv + argc});
}
