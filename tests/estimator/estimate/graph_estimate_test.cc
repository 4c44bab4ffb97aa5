#include "estimator/estimate/graph_estimate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/estimator/graph_files.h"

namespace plimsoll::estimator {
namespace {

using crds::Optimizer;
using crds::Precision;
using ::testing::Contains;
using testing::gpt;
using ::testing::HasSubstr;

// A request for gpt.json, which has one trace: of the CPU in FP32. Change it, then call result().
struct GraphJob {
  TraceFile graph = gpt();
  crds::TrainingSpec training;
  EstimateRequest request;

  GraphJob() {
    training.batch_size_per_trainer = 4;
    request.device = Device::kCpu;
  }
  Result<Estimate> result() {
    request.training = &training;
    request.graph = &graph;
    const Result<GraphRun> run = run_graph(request);
    if (!run) {
      return run.error();
    }
    KnownReplays none;
    return request.method == Method::kAmp ? estimate_by_amp(*run, request) : estimate_of(*run, request, none);
  }
  Estimate operator()() {
    const Result<Estimate> estimate = result();
    EXPECT_TRUE(estimate.ok()) << (estimate ? "" : to_string(estimate.error()));
    return estimate ? *estimate : Estimate{};
  }
};

TEST(GraphEstimate, TheBreakdownSumsToThePeak) {
  for (std::size_t i = 0; i < crds::kNames<Optimizer>.size(); ++i) {
    GraphJob job;
    job.training.batch_size_per_trainer = 48;
    job.training.optimizer = static_cast<Optimizer>(i);
    const Estimate estimate = job();
    EXPECT_EQ(estimate.breakdown.total(), estimate.peak.upper_bound);
    EXPECT_EQ(estimate.peak.allocated, estimate.peak.upper_bound)
        << "on the CPU there is nothing beside tensors";
    EXPECT_LE(estimate.largest_live.size(), 10U);
    EXPECT_FALSE(estimate.largest_live.empty());
  }
}

TEST(GraphEstimate, TheLargestAtThePeakComeFirst) {
  const std::vector<LiveTensor> largest = GraphJob()().largest_live;
  ASSERT_EQ(largest.size(), 10U);
  for (std::size_t i = 1; i < largest.size(); ++i) {
    EXPECT_LE(largest[i].bytes, largest[i - 1].bytes);
    EXPECT_FALSE(largest[i].name.empty());
    EXPECT_FALSE(largest[i].kind.empty());
  }
}

TEST(GraphEstimate, Tf32TakesAsMuchAsFp32AndPureBf16Half) {
  GraphJob job;
  const Estimate fp32 = job();
  job.training.precision = Precision::kTF32;
  EXPECT_EQ(to_json(job().breakdown), to_json(fp32.breakdown));
  job.training.precision = Precision::kBF16;
  const Estimate half = job();
  EXPECT_EQ(half.dense_parameters * 2, fp32.dense_parameters);
  EXPECT_EQ(half.breakdown.parameters * 2, fp32.breakdown.parameters);
  EXPECT_EQ(half.breakdown.inputs, fp32.breakdown.inputs) << "tokens are integers";
}

TEST(GraphEstimate, AMissingTraceIsAnErrorThatSaysHowToExportIt) {
  GraphJob mixed;
  mixed.training.precision = Precision::kBF16Mixed;
  ASSERT_FALSE(mixed.result().ok());
  EXPECT_EQ(mixed.result().error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(mixed.result().error().message, HasSubstr("--device cpu --precision BF16Mixed"));
  GraphJob cuda;
  cuda.request.device = Device::kCuda;
  ASSERT_FALSE(cuda.result().ok());
  EXPECT_EQ(cuda.result().error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(cuda.result().error().message, HasSubstr("--device cuda --precision FP32"));
}

TEST(GraphEstimate, ABatchForWhichTheGraphIsNotValidIsRefused) {
  GraphJob job;
  job.graph.traces.front().batch_sizes = {2};
  ASSERT_FALSE(job.result().ok());
  EXPECT_EQ(job.result().error().code, ErrorCode::kInvalid);
  job.training.batch_size_per_trainer = 2;
  EXPECT_TRUE(job.result().ok());
  job.training.batch_size_per_trainer = 0;
  EXPECT_EQ(job.result().error().code, ErrorCode::kInvalid);
}

TEST(GraphEstimate, NotesOfTheExporterAreWarnings) {
  for (const Method method : {Method::kPlimsoll, Method::kAmp}) {
    GraphJob job;
    job.request.method = method;
    job.graph.traces.front().notes = {"a custom kernel was not recorded"};
    EXPECT_THAT(job().warnings, Contains("note in the graph: a custom kernel was not recorded"));
  }
}

TEST(GraphEstimate, AnOperatorWithoutARuleIsAWarningIfLenient) {
  GraphJob job;
  Trace& trace = job.graph.traces.front();
  trace.measured = false;
  trace.operator_names[0] = "mine::lookup";
  ASSERT_FALSE(job.result().ok());
  EXPECT_EQ(job.result().error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(job.result().error().message, HasSubstr("mine::lookup"));
  job.request.lenient = true;
  EXPECT_THAT(job().warnings, Contains(HasSubstr("mine::lookup")));
}

// Adam's state is on the owner of a parameter, so that ranks differ; replicas under DDP do not.
TEST(GraphEstimate, CudnnsBenchmarkNeedsAConvolution) {
  GraphJob job;
  job.training.cudnn_benchmark = true;
  EXPECT_THAT(job().warnings, Contains(HasSubstr("training.cudnnBenchmark changes nothing")));
}

TEST(GraphEstimate, RanksAreListedIfTheyDiffer) {
  GraphJob job;
  job.request.trainers = 3;
  job.training.parallelism.strategy = crds::ParallelStrategy::kDDP;
  EXPECT_TRUE(job().allocated_by_rank.empty());
  job.training.parallelism.strategy = crds::ParallelStrategy::kZeRO1;
  const Estimate owners = job();
  ASSERT_EQ(owners.allocated_by_rank.size(), 3U);
  EXPECT_EQ(*std::max_element(owners.allocated_by_rank.begin(), owners.allocated_by_rank.end()),
            owners.peak.allocated);
}

TEST(GraphEstimate, MemoryBeyondAnyMachineDoesNotWrap) {
  GraphJob job;
  job.graph.traces.front().storages.front().bytes = Count{{0, 4e18, 0, 0}};
  EXPECT_EQ(job().peak.upper_bound, Bytes::max());
}

}  // namespace
}  // namespace plimsoll::estimator
