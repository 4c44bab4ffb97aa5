#include "estimator/parallel/tensor_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "estimator/estimate/ranks.h"
#include "tests/estimator/graph_files.h"

namespace plimsoll::estimator {
namespace {

using plimsoll::estimator::testing::gpt;
using ::testing::HasSubstr;

constexpr std::int64_t kBatch = 4;

Result<SplitTrace> split(const TensorSplit& request) {
  return split_trace(gpt().traces.front(), kBatch, request);
}

std::string refusal(const TensorSplit& request) {
  const Result<SplitTrace> result = split(request);
  return result ? "" : result.error().message;
}

std::int64_t bytes_of(const Trace& trace, const std::string& name) {
  const auto found = std::find_if(trace.parameters.begin(), trace.parameters.end(),
                                  [&](const TraceParameter& each) { return each.name == name; });
  EXPECT_NE(found, trace.parameters.end()) << name;
  const auto of = [&](std::int32_t storage) {
    return trace.storages[static_cast<std::size_t>(storage)].bytes.at(kBatch);
  };
  EXPECT_EQ(of(found->storage), of(found->gradient.front())) << name;
  return of(found->storage);
}

std::ptrdiff_t sums(const Trace& trace) {
  return std::count_if(trace.operators.begin(), trace.operators.end(), [&](const TraceOperator& op) {
    return trace.operator_names[static_cast<std::size_t>(op.name)] == "_c10d_functional::all_reduce";
  });
}

TEST(TensorSplit, DividesLayersByTheirUsualNames) {
  const Result<SplitTrace> half = split({.ways = 2});
  ASSERT_TRUE(half.ok()) << half.error().message;
  EXPECT_EQ(half->note, "layers split by their usual names: by columns k, q, up, v; by rows down, out");
  EXPECT_FALSE(half->uneven);
  EXPECT_EQ(bytes_of(half->trace, "blocks.0.up.weight"), 16 * 64 * 4 / 2);
  EXPECT_EQ(bytes_of(half->trace, "blocks.0.up.bias"), 64 * 4 / 2);
  EXPECT_EQ(bytes_of(half->trace, "blocks.0.down.weight"), 16 * 64 * 4 / 2);
  EXPECT_EQ(bytes_of(half->trace, "blocks.0.down.bias"), 16 * 4);  // added once, after the sum
  EXPECT_EQ(bytes_of(half->trace, "blocks.0.norm1.weight"), 16 * 4);
  EXPECT_EQ(bytes_of(half->trace, "head.weight"), 40 * 16 * 4);
  // A block: out and down in forward, the inputs of q, k, v and up in backward.
  EXPECT_EQ(sums(half->trace), 4 * (2 + 4));
}

TEST(TensorSplit, DividesWhatLiesBetweenTheLayers) {
  const Result<SplitTrace> quarter = split({.ways = 4});
  ASSERT_TRUE(quarter.ok()) << quarter.error().message;
  const Trace& whole = gpt().traces.front();
  // Each trainer has one head of the scores (batch x 4 heads x 8 x 8).
  const auto biggest = [](const Trace& trace, const std::string& name) {
    std::int64_t most = 0;
    for (const TraceOperator& op : trace.operators) {
      if (trace.operator_names[static_cast<std::size_t>(op.name)] == name) {
        const std::int32_t tensor = trace.operands[static_cast<std::size_t>(op.outputs.begin)];
        const std::int32_t storage = trace.tensors[static_cast<std::size_t>(tensor)].storage;
        most = std::max(most, trace.storages[static_cast<std::size_t>(storage)].bytes.at(kBatch));
      }
    }
    return most;
  };
  EXPECT_EQ(biggest(whole, "aten::_softmax"), kBatch * 4 * 8 * 8 * 4);
  EXPECT_EQ(biggest(quarter->trace, "aten::_softmax"), kBatch * 8 * 8 * 4);
  EXPECT_EQ(biggest(quarter->trace, "aten::gelu_backward"), kBatch * 8 * 64 * 4 / 4);
  EXPECT_EQ(biggest(quarter->trace, "aten::native_layer_norm"), biggest(whole, "aten::native_layer_norm"));
}

TEST(TensorSplit, TakesTheLayersThatAreNamed) {
  const Result<SplitTrace> named =
      split({.ways = 2, .columns = {"*.q", "k", "blocks.*.v", "up"}, .rows = {"*.out", "*.down"}});
  const Result<SplitTrace> usual = split({.ways = 2});
  ASSERT_TRUE(named.ok() && usual.ok());
  EXPECT_EQ(named->note, "");
  EXPECT_EQ(named->split_parameters, usual->split_parameters);
}

TEST(TensorSplit, DividesUnevenlyAsTorchChunkDoes) {
  const std::vector<std::int64_t> expected = {22, 22, 20};
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    const Result<SplitTrace> third = split({.ways = 3, .rank = rank, .columns = {"up"}, .rows = {"down"}});
    ASSERT_TRUE(third.ok()) << third.error().message;
    EXPECT_TRUE(third->uneven);
    EXPECT_EQ(bytes_of(third->trace, "blocks.3.up.bias"), expected[static_cast<std::size_t>(rank)] * 4);
  }
}

TEST(TensorSplit, DividesTheRowsOfAnEmbedding) {
  const Result<SplitTrace> half = split({.ways = 2, .rows = {"tokens"}});
  ASSERT_TRUE(half.ok()) << half.error().message;
  EXPECT_EQ(bytes_of(half->trace, "tokens.weight"), 40 * 16 * 4 / 2);
  EXPECT_EQ(sums(half->trace), 1);
}

TEST(TensorSplit, SaysWhereItCannotBe) {
  EXPECT_THAT(refusal({.ways = 2, .rows = {"no_such"}}), HasSubstr("no layer of the graph matches"));
  EXPECT_THAT(refusal({.ways = 2, .columns = {"up"}, .rows = {"*.up"}}), HasSubstr("by columns and by rows"));
  EXPECT_THAT(refusal({.ways = 2, .columns = {"norm1"}}), HasSubstr("blocks.0.norm1 has no weight"));
  EXPECT_THAT(
      refusal({.ways = 2, .columns = {"up"}}),
      HasSubstr("aten::addmm in blocks.0.down cannot work on the split layers: it multiplies a split"));
  EXPECT_THAT(refusal({.ways = 2, .rows = {"down"}}), HasSubstr("aten::addmm in blocks.0.down"));
  EXPECT_THAT(refusal({.ways = 2, .columns = {"head"}}), HasSubstr("aten::_log_softmax"));
  EXPECT_THAT(refusal({.ways = 2, .columns = {"tokens"}}), HasSubstr("aten::add in the model itself"));
  // Three parts of sixteen columns do not contain whole heads.
  EXPECT_THAT(refusal({.ways = 3}), HasSubstr("aten::clone in blocks.0"));
}

TEST(TensorSplit, MoreTrainersNeverTakeMore) {
  std::vector<std::int64_t> peaks;
  for (const std::int64_t ways : {1, 2, 4}) {
    crds::Parallelism parallelism;
    parallelism.tensor = ways;
    const Result<RankRuns> runs =
        run_ranks(gpt().traces.front(), gpt().producer,
                  {.parallelism = parallelism, .trainers = ways * 2, .iteration = {.batch = kBatch}});
    ASSERT_TRUE(runs.ok()) << runs.error().message;
    peaks.push_back(runs->heaviest->ledger.peak().count);
    EXPECT_EQ(runs->peaks.size(), 1u);
  }
  EXPECT_TRUE(std::is_sorted(peaks.rbegin(), peaks.rend()));
}

TEST(TensorSplit, TrainersThatDifferAreListed) {
  crds::Parallelism parallelism;
  parallelism.tensor = 3;
  parallelism.split_columns = {"up"};
  parallelism.split_rows = {"down"};
  const RanksRequest request{.parallelism = parallelism, .trainers = 3, .iteration = {.batch = kBatch}};
  const Result<RankRuns> runs = run_ranks(gpt().traces.front(), gpt().producer, request);
  ASSERT_TRUE(runs.ok()) << runs.error().message;
  ASSERT_EQ(runs->peaks.size(), 3u);
  EXPECT_EQ(runs->peaks[0], runs->peaks[1]);
  EXPECT_LT(runs->peaks[2], runs->peaks[0]);
  EXPECT_EQ(runs->heaviest->ledger.peak(), runs->peaks[0]);
}

TEST(TensorSplit, RefusesTrainersThatDoNotMakeGroups) {
  crds::Parallelism parallelism;
  parallelism.tensor = 2;
  const Result<RankRuns> runs =
      run_ranks(gpt().traces.front(), gpt().producer,
                {.parallelism = parallelism, .trainers = 3, .iteration = {.batch = kBatch}});
  ASSERT_FALSE(runs.ok());
  EXPECT_THAT(runs.error().message, HasSubstr("multiple of"));
}

}  // namespace
}  // namespace plimsoll::estimator
