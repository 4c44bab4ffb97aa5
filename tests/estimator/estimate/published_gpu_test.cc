// The upper bound and the reserved memory against GPU runs that others published (tests/accuracy/published_gpu.json),
// from graphs beside it: neither PyTorch nor a GPU is needed. tests/accuracy/published_gpu.py prints the rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json/json.h"
#include "estimator/estimate/estimate.h"
#include "estimator/trace/import_graph.h"
#include "tests/checkout.h"

namespace plimsoll::estimator {
namespace {

std::string accuracy_file(const std::string& name) {
  const Result<std::string> text = read_file(PLIMSOLL_SOURCE_DIR "/tests/accuracy/" + name);
  EXPECT_TRUE(text.ok()) << name;
  return text ? *text : std::string();
}

struct Compared {
  std::string name;
  double error = 0;  // of the reserved memory, relative
  double bound = 0;  // above what was measured, relative; the CUDA context is in neither
  double repeated =
      0;  // what the same job took when it was run again, as a share of the first run; 0: not known
};

class PublishedRuns : public ::testing::Test {
 protected:
  bool benchmark_ = false;

  std::vector<Compared> compare(const std::string& set) {
    const Result<Json> published = parse_json(accuracy_file("published_gpu.json"));
    EXPECT_TRUE(published.ok());
    std::vector<Compared> rows;
    for (const Json& run : (*published)["convolutional"][set]) {
      rows.push_back(compare_run(run));
    }
    EXPECT_FALSE(rows.empty()) << set;
    return rows;
  }

  // Of a run, on the card of `from`, with the optimizer of `from`.
  Estimate estimate_of(const std::string& model, const Json& run, const Json& from, bool next_batch_early) {
    if (!graphs_.contains(model)) {
      Result<TraceFile> graph = import_traces(accuracy_file("published_graphs/" + model + ".json.gz"));
      EXPECT_TRUE(graph.ok()) << model;
      graphs_.emplace(model, graph ? *std::move(graph) : TraceFile{});
    }
    crds::ModelSpec spec;
    spec.graph = crds::GraphReference{};
    crds::TrainingSpec training;
    training.batch_size_per_trainer = run["batch"].asInt64();
    const Result<crds::Optimizer> optimizer = crds::parse_enum<crds::Optimizer>(from["optimizer"].asString());
    EXPECT_TRUE(optimizer.ok());
    training.optimizer = *optimizer;
    training.cudnn_benchmark = benchmark_;
    const GpuCatalog catalog = GpuCatalog::built_in();
    EstimateRequest request;
    request.model = &spec;
    request.training = &training;
    request.graph = &graphs_.at(model);
    request.gpu = catalog.find(from["gpu"].asString());
    request.next_batch_early = next_batch_early;
    const Result<Estimate> estimate = estimate_memory(request);
    EXPECT_TRUE(estimate.ok()) << model;
    return estimate ? *estimate : Estimate{};
  }

 private:
  Compared compare_run(const Json& run) {
    const std::string model = run["model"].asString() + "_" + std::to_string(run["classes"].asInt64());
    const Estimate estimate = estimate_of(model, run, run, true);
    const double measured = static_cast<double>(run["reservedMiB"].asInt64()) * 1024 * 1024;
    const Bytes bound = estimate.peak.upper_bound - estimate.breakdown.cuda_context;
    return {.name = model + " " + run["optimizer"].asString() + " " + run["batch"].asString(),
            .error = static_cast<double>(estimate.peak.reserved.count) / measured - 1,
            .bound = static_cast<double>(bound.count) / measured - 1,
            .repeated = run["repeatedMiB"].asDouble() / run["reservedMiB"].asDouble()};
  }

  std::map<std::string, TraceFile> graphs_;
};

// The margins were derived from the first two sets and checked on the third.
TEST_F(PublishedRuns, AtMostOneIn50IsAboveTheBoundAndNoBoundIsFarAbove) {
  std::size_t runs = 0;
  std::string above;
  std::size_t count = 0;
  for (const char* set : {"development", "others", "drawn"}) {
    for (const Compared& row : compare(set)) {
      ++runs;
      EXPECT_LE(row.bound, 0.25) << row.name;
      if (row.bound < 0) {
        above += row.name + "; ";
        ++count;
      }
    }
  }
  EXPECT_EQ(runs, 58U);
  EXPECT_LE(count, (runs + 49) / 50) << above;
}

TEST_F(PublishedRuns, ReservedMemoryIsAsAccurateAsDocumented) {
  for (const Compared& row : compare("drawn")) {
    const bool known = row.name == "mnasnet1_0_10 RMSprop 308";  // cuDNN's choice: docs/estimation.md
    EXPECT_LT(std::abs(row.error), known ? 0.17 : 0.055) << row.name;
  }
}

// MnasNet on an RTX 3060 reserves 10.7 MiB a sample at batch 200 and 8.2 at 482. The publisher trained each job again in
// the same process: at 200, 300 and 308 it then took 19 to 23 % less, so that the difference is not the batch's. The
// estimate lies between the runs of one job, or less than 10 % above both.
TEST_F(PublishedRuns, MnasNetsEstimateLiesBetweenTwoRunsOfTheSameJob) {
  for (const Compared& row : compare("regressions")) {
    EXPECT_GT(row.bound, -0.05) << row.name;
    EXPECT_GT(row.error, -0.18) << row.name;
    ASSERT_GT(row.repeated, 0) << row.name;
    const double again = (1 + row.error) / row.repeated - 1;  // the estimate, relative to the second run
    EXPECT_GE(again, 0) << row.name;
    EXPECT_LT(again, 0.1) << row.name;
  }
}

// On an A100 the networks of 1 x 1 and depthwise convolutions grow with the batch as estimated; those of large 3 x 3
// convolutions take more, which the bound's transforms cover. Batches of 32 tell what is beside the allocator.
TEST_F(PublishedRuns, NetworksOnAnA100GrowWithTheBatchAsDocumented) {
  constexpr double kMiB = 1024.0 * 1024.0;
  const Result<Json> published = parse_json(accuracy_file("published_gpu.json"));
  ASSERT_TRUE(published.ok());
  const Json& set = (*published)["imagenet"];
  const std::map<std::string, double> beyond = {{"imagenet_inception_v3_299", 0.12},
                                                {"imagenet_vgg16_224", 0.29}};
  std::vector<double> beside;
  for (const Json& run : set["runs"]) {
    const std::string model = run["model"].asString();
    const Estimate estimate = estimate_of(model, run, set, false);
    const double reserved = static_cast<double>(estimate.peak.reserved.count) / kMiB;
    const double card = run["cardMiB"].asDouble();
    if (run["batch"].asInt64() == 32) {
      beside.push_back(card - reserved);
    }
  }
  ASSERT_EQ(beside.size(), 6U);
  std::sort(beside.begin(), beside.end());
  const double constant = (beside[2] + beside[3]) / 2;
  for (const Json& run : set["runs"]) {
    const std::string model = run["model"].asString();
    const Estimate estimate = estimate_of(model, run, set, false);
    const Bytes bound = estimate.peak.upper_bound - estimate.breakdown.cuda_context;
    const double above = (static_cast<double>(bound.count) / kMiB + constant) / run["cardMiB"].asDouble() - 1;
    EXPECT_GE(above, 0) << model;
    if (run["batch"].asInt64() == 32) {
      continue;
    }
    EXPECT_LE(above, 0.25) << model;
    const double reserved = static_cast<double>(estimate.peak.reserved.count) / kMiB;
    const double error = (reserved + constant) / run["cardMiB"].asDouble() - 1;
    const auto known = beyond.find(model);
    EXPECT_LT(std::abs(error), known == beyond.end() ? 0.05 : known->second) << model;
  }
}

// While plans are timed, they may take all that is free, and a job needs no more for it.
TEST_F(PublishedRuns, CudnnsBenchmarkMayFillTheCard) {
  const Compared plain = compare("development").front();
  benchmark_ = true;
  const Compared timed = compare("development").front();
  EXPECT_DOUBLE_EQ(timed.error, plain.error);
  EXPECT_GT(timed.bound, 2.6) << "12 GiB of a card, 3,166 MiB of which are used";
}

// The allocator's cache fills the card: 11,258 MiB of 12,037 were reserved, of which 8,070 hold tensors.
TEST_F(PublishedRuns, ACacheThatFillsTheCardIsWithinTheBound) {
  for (const Compared& row : compare("development")) {
    EXPECT_GE(row.bound, 0) << row.name;
  }
}

}  // namespace
}  // namespace plimsoll::estimator
