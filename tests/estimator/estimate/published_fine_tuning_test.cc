// Published peaks of fine-tuning on one GPU, row by row: what tensors take (published_fine_tuning.yaml), and what the
// allocator reserves (peft_metamath.yaml; tests/accuracy/published_gpu.py --set peft prints the same rows).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "crds/enums.h"
#include "estimator/estimate/estimate.h"
#include "estimator/spec/adapter_config.h"
#include "tests/estimator/data_files.h"

namespace plimsoll::estimator {
namespace {

// Percent. docs/estimation.md, "Published fine-tuning", says what is known of the rows of NF4.
constexpr double kWithin = 5.5;
constexpr double kQuantisedWithin = 9.5;
constexpr double kMedianWithin = 3.7;
constexpr double kPeftWithin = 2;  // of adapters, and of what they take as a share of kPeftReference
constexpr double kPeftWholeModelWithin = 4.5;
constexpr double kBoundAbove = 25;
const char* const kPeftReference = "lora rank32";

TEST(PublishedFineTuning, EachPeakIsWithinItsLimitAndUnderTheBound) {
  const GpuCatalog catalog = GpuCatalog::built_in();
  std::vector<double> errors;
  for (const testing::MeasuredRun& run : testing::measured_runs("estimate/published_fine_tuning.yaml")) {
    EstimateRequest request{.model = &run.spec.model, .training = &run.spec.training};
    request.gpu = catalog.find("A100-80GB");
    const Result<Estimate> estimate = estimate_memory(request);
    ASSERT_TRUE(estimate.ok()) << run.name << ": " << to_string(estimate.error());
    const auto percent = [&](Bytes bytes) {
      return 100.0 * static_cast<double>(bytes.count - run.bytes) / static_cast<double>(run.bytes);
    };
    const double error = percent(estimate->peak.allocated);
    const double bound = percent(estimate->peak.upper_bound - estimate->breakdown.cuda_context);
    std::printf("%-32s measured %6.2f GB, tensors %+5.1f %%, upper bound %+5.1f %%\n", run.name.c_str(),
                static_cast<double>(run.bytes) / 1e9, error, bound);
    const bool quantised = run.spec.training.fine_tuning &&
                           run.spec.training.fine_tuning->quantization != crds::Quantization::kNone;
    EXPECT_LE(std::abs(error), quantised ? kQuantisedWithin : kWithin) << run.name;
    EXPECT_GE(bound, 0) << run.name;
    errors.push_back(std::abs(error));
  }
  std::sort(errors.begin(), errors.end());
  std::printf("median %.1f %%, worst %.1f %% of %zu\n", errors[errors.size() / 2], errors.back(),
              errors.size());
  EXPECT_LE(errors[errors.size() / 2], kMedianWithin);
}

// The model of peft's table, on its card, with the row's optimizer and adapter. Error: one of them is refused.
Result<Estimate> estimate_peft_run(const Json& row) {
  crds::ModelSpec model;
  model.transformer = crds::TransformerModel{};
  model.transformer->config =
      R"({"model_type": "llama", "hidden_act": "silu", "hidden_size": 3072, "head_dim": 128, "intermediate_size": 8192,
          "num_hidden_layers": 28, "num_attention_heads": 24, "num_key_value_heads": 8, "vocab_size": 128256,
          "tie_word_embeddings": true})";
  model.transformer->sequence_length = 768;
  crds::TrainingSpec training;
  training.batch_size_per_trainer = 4;
  training.precision = crds::Precision::kBF16;
  const Result<crds::Optimizer> optimizer = crds::parse_enum<crds::Optimizer>(row["optimizer"].asString());
  if (!optimizer) {
    return optimizer.error();
  }
  training.optimizer = *optimizer;
  if (row.isMember("adapter")) {
    const Result<crds::FineTuning> tuning = read_adapter_config(write_json(row["adapter"]));
    if (!tuning) {
      return tuning.error();
    }
    training.fine_tuning = *tuning;
  }
  const GpuCatalog catalog = GpuCatalog::built_in();
  EstimateRequest request{.model = &model, .training = &training};
  request.gpu = catalog.find("L40S");
  return estimate_memory(request);
}

// Its lengths are not published but for the longest, so that shares of one run are compared, too.
TEST(PublishedFineTuning, PeftsRunsAreWithinTheirLimitsOrRefusedByName) {
  struct Run {
    double measured = 0;
    double reserved = 0;
  };
  std::map<std::string, Run> runs;
  std::size_t refused = 0;
  for (const Json& row : testing::yaml_rows("estimate/peft_metamath.yaml")) {
    const std::string name = row["run"].asString();
    const Result<Estimate> estimate = estimate_peft_run(row);
    if (!estimate) {
      ++refused;
      const std::string error = to_string(estimate.error());
      EXPECT_TRUE(error.find("is not modelled") != std::string::npos ||
                  error.find(row["optimizer"].asString()) != std::string::npos)
          << name << ": " << error;
      continue;
    }
    const auto measured = static_cast<double>(row["reservedBytes"].asInt64());
    const auto bound =
        static_cast<double>((estimate->peak.upper_bound - estimate->breakdown.cuda_context).count);
    runs[name] = {measured, static_cast<double>(estimate->peak.reserved.count)};
    EXPECT_GE(bound, measured) << name;
    EXPECT_LE(bound, measured * (1 + kBoundAbove / 100)) << name;
  }
  ASSERT_TRUE(runs.contains(kPeftReference));
  const Run reference = runs[kPeftReference];
  for (const auto& [name, run] : runs) {
    const double error = 100 * (run.reserved / run.measured - 1);
    const double share = 100 * (run.reserved / reference.reserved / (run.measured / reference.measured) - 1);
    std::printf("%-30s measured %6.0f MiB, reserved %+5.2f %%, as a share of %s %+5.2f %%\n", name.c_str(),
                run.measured / (1 << 20), error, kPeftReference, share);
    const bool adapter = name.starts_with("lora");
    EXPECT_LE(std::abs(error), adapter ? kPeftWithin : kPeftWholeModelWithin) << name;
    EXPECT_LE(std::abs(share), adapter ? kPeftWithin : kPeftWholeModelWithin) << name;
  }
  EXPECT_EQ(runs.size(), 6u);
  EXPECT_EQ(refused, 57u);
}

}  // namespace
}  // namespace plimsoll::estimator
