#include "estimator/estimate/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

#include "tests/estimator/graph_files.h"

namespace plimsoll::estimator {
namespace {

using crds::ParallelStrategy;
using plimsoll::estimator::testing::gpt;
using ::testing::HasSubstr;

constexpr std::int64_t kBatch = 4;
constexpr Bytes kTable{40 * 16 * 4};  // of the token embedding

RanksRequest request(ParallelStrategy strategy, std::int64_t trainers) {
  crds::Parallelism parallelism;
  parallelism.strategy = strategy;
  return {.parallelism = parallelism,
          .trainers = trainers,
          .iteration = {.batch = kBatch, .optimizer = crds::Optimizer::kSGD}};
}

RankRuns run(const Trace& trace, const RanksRequest& requested) {
  Result<RankRuns> runs = run_ranks(trace, gpt().producer, requested);
  EXPECT_TRUE(runs.ok()) << runs.error().message;
  return runs ? *std::move(runs) : RankRuns();
}

Bytes parameter_bytes(const Trace& trace) {
  Bytes sum;
  for (const TraceParameter& parameter : trace.parameters) {
    sum += Bytes{trace.storages[static_cast<std::size_t>(parameter.storage)].bytes.at(kBatch)};
  }
  return sum;
}

// The token embedding with sparse=True: eight rows per sample, with an index and 16 floats each.
Trace with_sparse_gradient() {
  Trace trace = gpt().traces.front();
  const auto tokens = std::find_if(trace.parameters.begin(), trace.parameters.end(),
                                   [](const TraceParameter& each) { return each.name == "tokens.weight"; });
  tokens->sparse_gradient = true;
  trace.storages[static_cast<std::size_t>(tokens->gradient.front())].bytes =
      Count{{0, 8 * (16 * 4 + 8), 0, 0}};
  return trace;
}

TEST(TraceRanks, SparseGradientsHaveNoBuckets) {
  const Trace dense = gpt().traces.front();
  const Trace sparse = with_sparse_gradient();
  const RanksRequest requested = request(ParallelStrategy::kDDP, 2);
  EXPECT_EQ(run(dense, requested).heaviest->ledger.at_peak(Part::kDdpBuckets), parameter_bytes(dense));
  const RankRuns runs = run(sparse, requested);
  EXPECT_EQ(runs.heaviest->ledger.at_peak(Part::kDdpBuckets), parameter_bytes(dense) - kTable);
  ASSERT_EQ(runs.heaviest->warnings.size(), 1u);
  EXPECT_THAT(runs.heaviest->warnings.front(), HasSubstr("sparse gradients"));
}

TEST(TraceRanks, SparseGradientsAreGatheredFromAllTrainers) {
  const Trace sparse = with_sparse_gradient();
  std::vector<Bytes> peaks;
  for (const std::int64_t trainers : {2, 4, 8}) {
    peaks.push_back(run(sparse, request(ParallelStrategy::kDDP, trainers)).heaviest->ledger.peak());
  }
  EXPECT_TRUE(std::is_sorted(peaks.begin(), peaks.end()));
}

TEST(TraceRanks, ShardingRefusesSparseGradients) {
  for (const ParallelStrategy strategy :
       {ParallelStrategy::kFSDP, ParallelStrategy::kFSDP2, ParallelStrategy::kZeRO1}) {
    const Result<RankRuns> runs = run_ranks(with_sparse_gradient(), gpt().producer, request(strategy, 2));
    ASSERT_FALSE(runs.ok());
    EXPECT_THAT(runs.error().message, HasSubstr("sparse gradients need DDP"));
  }
}

// A loop that calls zero_grad() before backward keeps the last iteration's gradients during forward.
TEST(TraceRanks, LastGradientsLiveThroughForward) {
  const Trace& trace = gpt().traces.front();
  for (const ParallelStrategy strategy : {ParallelStrategy::kAuto, ParallelStrategy::kDDP,
                                          ParallelStrategy::kFSDP2, ParallelStrategy::kZeRO1}) {
    RanksRequest requested = request(strategy, strategy == ParallelStrategy::kAuto ? 1 : 2);
    const auto before_backward = [&] {
      const RankRuns runs = run(trace, requested);
      const Ledger& ledger = runs.heaviest->ledger;
      Bytes live;
      for (std::size_t i = 0; i < ledger.begin_of(Phase::kBackward); ++i) {
        const MemoryEvent& event = ledger.events()[i];
        const Ledger::Block& block = ledger.blocks()[static_cast<std::size_t>(event.block)];
        if (block.part == Part::kGradients) {
          live += event.kind == MemoryEvent::Kind::kAllocate ? block.bytes : Bytes{};
        }
      }
      return live;
    };
    EXPECT_EQ(before_backward(), Bytes{});
    requested.iteration.zero_grad_before_backward = true;
    const bool sharded = strategy == ParallelStrategy::kFSDP2;
    EXPECT_GE(before_backward(), Bytes{parameter_bytes(trace).count / (sharded ? 2 : 1)});
    EXPECT_LE(before_backward(), parameter_bytes(trace));
  }
}

TEST(TraceRanks, LastGradientsGoBeforeBackward) {
  const Trace& trace = gpt().traces.front();
  RanksRequest requested = request(ParallelStrategy::kAuto, 1);
  const Bytes usual = run(trace, requested).heaviest->ledger.peak();
  requested.iteration.zero_grad_before_backward = true;
  const Bytes late = run(trace, requested).heaviest->ledger.peak();
  EXPECT_GE(late, usual);
  EXPECT_LE(late, usual + parameter_bytes(trace));
}

// A recomputation that stops early does not recompute the block's result.
TEST(TraceRanks, ReentrantCheckpointsRunToTheEnd) {
  const auto recomputed = [](bool reentrant, TorchVersion version) {
    TraceRunRequest requested{.batch = kBatch, .checkpointing = crds::ActivationCheckpointing::kFull};
    requested.reentrant_checkpointing = reentrant;
    TraceProducer producer = gpt().producer;
    producer.version = version;
    const Result<TraceRun> run = run_trace(gpt().traces.front(), producer, requested);
    EXPECT_TRUE(run.ok()) << run.error().message;
    std::int64_t count = 0;
    for (BlockId block = 0; block < static_cast<BlockId>(run->ledger.blocks().size()); ++block) {
      count += std::string_view(run->kind_of(block)) == "recomputed activation" ? 1 : 0;
    }
    return count;
  };
  EXPECT_LT(recomputed(false, 215), recomputed(true, 215));
  EXPECT_EQ(recomputed(false, 113), recomputed(true, 215));
}

}  // namespace
}  // namespace plimsoll::estimator
