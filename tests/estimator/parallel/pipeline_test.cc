#include "estimator/parallel/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "estimator/estimate/ranks.h"
#include "estimator/parallel/stages.h"
#include "tests/estimator/graph_files.h"

namespace plimsoll::estimator {
namespace {

using plimsoll::estimator::testing::gpt;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Trace stage_of(const PipelineCut& cut, const std::vector<std::string>& blocks = {},
               const Trace& trace = gpt().traces.front()) {
  const Result<std::vector<std::int32_t>> parts = parts_of_operators(trace, cut.stages * cut.chunks, blocks);
  EXPECT_TRUE(parts.ok()) << parts.error().message;
  return parts ? pipeline_trace(trace, cut, *parts) : Trace();
}

PipelineCut cut(std::int64_t stages, std::int64_t stage, std::int64_t micro_batches) {
  return {.stages = stages, .stage = stage, .micro_batches = micro_batches, .version = 215};
}

std::int64_t count(const Trace& trace, const std::string& name) {
  return std::count_if(trace.operators.begin(), trace.operators.end(), [&](const TraceOperator& op) {
    return trace.operator_names[static_cast<std::size_t>(op.name)] == name;
  });
}

std::set<std::string> parameters(const Trace& trace) {
  std::set<std::string> names;
  for (const TraceParameter& parameter : trace.parameters) {
    names.insert(parameter.name);
  }
  return names;
}

Result<RankRuns> run(crds::Parallelism parallelism, std::int64_t trainers, TraceRunRequest iteration,
                     const TraceFile& graph = gpt()) {
  return run_ranks(
      graph.traces.front(), graph.producer,
      {.parallelism = std::move(parallelism), .trainers = trainers, .iteration = std::move(iteration)});
}

crds::Parallelism pipeline(std::int64_t stages) {
  crds::Parallelism parallelism;
  parallelism.pipeline = stages;
  return parallelism;
}

TEST(PipelineTrace, EachParameterBelongsToOneStage) {
  std::set<std::string> seen;
  std::size_t sum = 0;
  for (std::int64_t stage = 0; stage < 4; ++stage) {
    const std::set<std::string> mine = parameters(stage_of(cut(4, stage, 4)));
    EXPECT_EQ(mine.count("blocks." + std::to_string(stage) + ".up.weight"), 1u);
    EXPECT_EQ(mine.count("tokens.weight"), stage == 0 ? 1u : 0u);
    EXPECT_EQ(mine.count("head.weight"), stage == 3 ? 1u : 0u);
    seen.insert(mine.begin(), mine.end());
    sum += mine.size();
  }
  EXPECT_EQ(seen, parameters(gpt().traces.front()));
  EXPECT_EQ(sum, seen.size());
}

TEST(PipelineTrace, RunsEachMicroBatchOnce) {
  const Trace& whole = gpt().traces.front();
  std::map<std::string, std::int64_t> sums;
  for (std::int64_t stage = 0; stage < 2; ++stage) {
    const Trace trace = stage_of(cut(2, stage, 6));
    EXPECT_EQ(trace.passes.size(), 6u);
    for (const std::string name : {"aten::addmm", "aten::mm", "aten::bmm", "aten::native_layer_norm"}) {
      sums[name] += count(trace, name);
    }
    EXPECT_EQ(count(trace, "c10d::recv_"), 6);  // activations of one neighbour, gradients of the other
    EXPECT_EQ(count(trace, "aten::cat"), stage == 1 ? 1 : 0);
  }
  for (const auto& [name, sum] : sums) {
    EXPECT_EQ(sum, 6 * count(whole, name)) << name;
  }
}

// Times are within the trace, nothing is freed before it is allocated, and operators use only live storages.
TEST(PipelineTrace, StoragesLiveWhileTheyAreUsed) {
  for (const TorchVersion version : {206, 213, 215}) {
    for (std::int64_t stage = 0; stage < 4; ++stage) {
      PipelineCut requested = cut(4, stage, 5);
      requested.version = version;
      const Trace trace = stage_of(requested);
      std::vector<std::int32_t> death;
      for (const TraceStorage& storage : trace.storages) {
        EXPECT_TRUE(storage.released_at < 0 || storage.released_at > storage.allocated_at);
        EXPECT_LE(storage.released_at, static_cast<std::int32_t>(trace.operators.size()));
        death.push_back(storage.released_at);
      }
      for (const TraceSaved& saved : trace.saved) {
        std::int32_t& end =
            death[static_cast<std::size_t>(trace.tensors[static_cast<std::size_t>(saved.tensor)].storage)];
        end = end < 0 || saved.released_at < 0 ? -1 : std::max(end, saved.released_at);
      }
      for (std::size_t op = 0; op < trace.operators.size(); ++op) {
        const TraceOperator& called = trace.operators[op];
        for (const Span& span : {called.inputs, called.outputs}) {
          for (std::int32_t i = span.begin; i < span.begin + span.size; ++i) {
            const std::int32_t tensor = trace.operands[static_cast<std::size_t>(i)];
            const std::int32_t of = tensor < 0 ? -1 : trace.tensors[static_cast<std::size_t>(tensor)].storage;
            if (of >= 0) {
              const auto end = death[static_cast<std::size_t>(of)];
              EXPECT_LE(trace.storages[static_cast<std::size_t>(of)].allocated_at,
                        static_cast<std::int32_t>(op));
              EXPECT_TRUE(end < 0 || end > static_cast<std::int32_t>(op))
                  << "stage " << stage << ", operator " << op << " of "
                  << trace.operator_names[static_cast<std::size_t>(called.name)];
            }
          }
        }
      }
    }
  }
}

TEST(PipelineTrace, EarlierStagesHaveMoreInFlight) {
  // The middle stages of four have equal layers and no embeddings.
  const Result<RankRuns> runs = run(pipeline(4), 4, {.batch = 32, .gradient_accumulation = 8});
  ASSERT_TRUE(runs.ok()) << runs.error().message;
  ASSERT_EQ(runs->peaks.size(), 4u);
  EXPECT_GT(runs->peaks[1], runs->peaks[2]);
  EXPECT_EQ(runs->heaviest->ledger.peak(), *std::max_element(runs->peaks.begin(), runs->peaks.end()));
}

// The first and the middle stages reach a steady state; storages accumulate on the last one.
TEST(PipelineTrace, MoreMicroBatchesOfOneSizeAddWhatPilesUp) {
  std::vector<std::vector<Bytes>> peaks;
  for (const std::int64_t micro_batches : {12, 24, 25}) {  // three rounds of four stages run
    const Result<RankRuns> runs =
        run(pipeline(4), 4, {.batch = micro_batches * 2, .gradient_accumulation = micro_batches});
    ASSERT_TRUE(runs.ok()) << runs.error().message;
    peaks.push_back(runs->peaks);
  }
  const std::int64_t tokens = 8 * 8 * 2;  // input and target of a micro-batch
  EXPECT_EQ(peaks[1][1], peaks[0][1]);
  EXPECT_EQ(peaks[1][2], peaks[0][2]);
  EXPECT_EQ((peaks[2][0] - peaks[1][0]).count, tokens);
  EXPECT_GT((peaks[2][3] - peaks[1][3]).count, tokens);
}

TEST(PipelineTrace, InterleavedStagesHoldPartsOfAll) {
  PipelineCut requested = cut(2, 0, 4);
  requested.chunks = 2;
  const std::set<std::string> mine = parameters(stage_of(requested));
  EXPECT_EQ(mine.count("blocks.0.up.weight") + mine.count("blocks.2.up.weight"), 2u);
  EXPECT_EQ(mine.count("blocks.1.up.weight") + mine.count("blocks.3.up.weight"), 0u);
  crds::Parallelism interleaved = pipeline(2);
  interleaved.pipeline_chunks = 2;
  const Result<RankRuns> runs = run(interleaved, 2, {.batch = 16, .gradient_accumulation = 4});
  ASSERT_TRUE(runs.ok()) << runs.error().message;
  EXPECT_EQ(runs->peaks.size(), 2u);
}

TEST(PipelineTrace, BlocksCanBeNamed) {
  EXPECT_EQ(parameters(stage_of(cut(4, 1, 4), {"blocks.*"})), parameters(stage_of(cut(4, 1, 4))));
  const std::set<std::string> last = parameters(stage_of(cut(2, 1, 4), {"blocks.0", "norm"}));
  EXPECT_THAT(last, ElementsAre("head.weight", "norm.bias", "norm.weight"));
}

TEST(PipelineTrace, CheckpointingKeepsLess) {
  for (const auto checkpointing :
       {crds::ActivationCheckpointing::kSelective, crds::ActivationCheckpointing::kFull}) {
    const Result<RankRuns> plain = run(pipeline(2), 2, {.batch = 32, .gradient_accumulation = 4});
    const Result<RankRuns> less =
        run(pipeline(2), 2, {.batch = 32, .gradient_accumulation = 4, .checkpointing = checkpointing});
    ASSERT_TRUE(plain.ok() && less.ok());
    EXPECT_LT(less->peaks[0], plain->peaks[0]);
  }
}

TEST(PipelineTrace, GoesWithTensorParallelismAndReplicas) {
  crds::Parallelism both = pipeline(2);
  both.tensor = 2;
  const Result<RankRuns> runs = run(both, 8, {.batch = 16, .gradient_accumulation = 4});
  ASSERT_TRUE(runs.ok()) << runs.error().message;
  ASSERT_EQ(runs->peaks.size(), 2u);
  const Result<RankRuns> alone = run(pipeline(2), 2, {.batch = 16, .gradient_accumulation = 4});
  ASSERT_TRUE(alone.ok());
  EXPECT_LT(runs->peaks[0], alone->peaks[0] * 2);
  EXPECT_GT(runs->heaviest->ledger.at_peak(Part::kDdpBuckets), Bytes{});
}

// A weight that the first and the last stage share is on both, with a gradient on each.
TEST(PipelineTrace, TiedWeightsAreOnBothStages) {
  TraceFile tied = gpt();
  Trace& trace = tied.traces.front();
  const auto find = [&](const std::string& name) {
    return std::find_if(trace.parameters.begin(), trace.parameters.end(),
                        [&](const TraceParameter& each) { return each.name == name; });
  };
  const std::int32_t tokens = find("tokens.weight")->storage;
  const std::int32_t head = find("head.weight")->storage;
  const std::int32_t head_gradient = find("head.weight")->gradient.front();
  const std::int32_t tokens_gradient = find("tokens.weight")->gradient.front();
  for (TraceTensor& tensor : trace.tensors) {
    tensor.storage = tensor.storage == head ? tokens : tensor.storage;
  }
  // Backward adds the lookup's gradient to the product's.
  trace.storages[static_cast<std::size_t>(tokens_gradient)].role = StorageRole::kBackward;
  const auto tensor_in = [&](std::int32_t storage) {
    const auto found = std::find_if(trace.tensors.begin(), trace.tensors.end(),
                                    [&](const TraceTensor& each) { return each.storage == storage; });
    return static_cast<std::int32_t>(found - trace.tensors.begin());
  };
  TraceOperator add;
  trace.operator_names.emplace_back("aten::add_");
  add.name = static_cast<std::int32_t>(trace.operator_names.size()) - 1;
  add.inputs = {static_cast<std::int32_t>(trace.operands.size()), 2};
  add.outputs = {add.inputs.begin, 1};
  trace.operands.push_back(tensor_in(head_gradient));
  trace.operands.push_back(tensor_in(tokens_gradient));
  trace.operators.push_back(add);
  find("tokens.weight")->gradient = {head_gradient};
  trace.parameters.erase(find("head.weight"));

  const Bytes weight{40 * 16 * 4};
  const auto gradients = [&](const Trace& stage) {
    Bytes sum;
    for (const TraceParameter& parameter : stage.parameters) {
      if (parameter.name == "tokens.weight") {
        EXPECT_EQ(parameter.gradient.size(), 1u);
        const TraceStorage& gradient = stage.storages[static_cast<std::size_t>(parameter.gradient.front())];
        EXPECT_EQ(gradient.role, StorageRole::kGradient);
        EXPECT_EQ(gradient.released_at, -1);
        sum += Bytes{gradient.bytes.at(2)};
      }
    }
    return sum;
  };
  EXPECT_EQ(gradients(stage_of(cut(2, 0, 2), {}, trace)), weight);
  EXPECT_EQ(gradients(stage_of(cut(2, 1, 2), {}, trace)), weight);
  EXPECT_EQ(gradients(stage_of(cut(4, 1, 4), {}, trace)), Bytes{});
}

TEST(PipelineTrace, SaysWhatCannotBe) {
  const auto refusal = [](const crds::Parallelism& parallelism, std::int64_t trainers, std::int64_t batch,
                          std::int64_t micro_batches) {
    const Result<RankRuns> runs =
        run(parallelism, trainers, {.batch = batch, .gradient_accumulation = micro_batches});
    return runs ? std::string() : runs.error().message;
  };
  EXPECT_THAT(refusal(pipeline(8), 8, 16, 8), HasSubstr("needs as many blocks; the graph has 4"));
  EXPECT_THAT(refusal(pipeline(4), 4, 16, 2), HasSubstr("at least as many micro-batches"));
  EXPECT_THAT(refusal(pipeline(2), 2, 15, 2), HasSubstr("must divide the batch"));
  EXPECT_THAT(refusal(pipeline(2), 3, 16, 4), HasSubstr("multiple of"));
  crds::Parallelism sharded = pipeline(2);
  sharded.strategy = crds::ParallelStrategy::kFSDP2;
  EXPECT_THAT(refusal(sharded, 4, 16, 4), HasSubstr("in a pipeline"));
  crds::Parallelism interleaved = pipeline(2);
  interleaved.pipeline_chunks = 2;
  EXPECT_THAT(refusal(interleaved, 2, 15, 3), HasSubstr("multiple of its 2 stages"));
  crds::Parallelism named = pipeline(2);
  named.stage_blocks = {"no.such"};
  EXPECT_THAT(refusal(named, 2, 16, 4), HasSubstr("no block of the graph matches"));
  crds::Parallelism context;
  context.context = 2;
  EXPECT_THAT(refusal(context, 2, 16, 1), HasSubstr("model.transformer"));
}

}  // namespace
}  // namespace plimsoll::estimator
