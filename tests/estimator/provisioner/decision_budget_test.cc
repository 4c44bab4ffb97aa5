// Jobs that nobody trains, and that the schema allows: a decision on them ends within its budget, whichever
// part of the estimator they aim at, and says which value is too large.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/budget.h"
#include "tests/estimator/graph_files.h"
#include "tests/estimator/provisioner_fixture.h"

namespace plimsoll::testing {
namespace {

using ::testing::HasSubstr;

// Of the order of a second.
constexpr std::uint64_t kWork = 5'000'000;

Json transformer_job(std::int64_t layers, std::int64_t micro_batches, std::int64_t stages,
                     std::int64_t chunks) {
  Json object = job_object(1, 1000);
  Json& spec = object["spec"];
  spec["model"] =
      parse(R"({"family": "deep", "transformer": {"layers": 1, "hidden": 64, "heads": 1, "ffn": 64,
                                                              "vocab": 64, "seqLen": 16}})");
  spec["model"]["transformer"]["layers"] = static_cast<::Json::Int64>(layers);
  spec["training"]["batchSizePerTrainer"] = static_cast<::Json::Int64>(micro_batches);
  spec["training"]["gradientAccumulation"] = static_cast<::Json::Int64>(micro_batches);
  if (stages > 1) {
    spec["training"]["parallelism"]["pipeline"] = static_cast<::Json::Int64>(stages);
    spec["training"]["parallelism"]["pipelineChunks"] = static_cast<::Json::Int64>(chunks);
  }
  return object;
}

estimator::Provision decide(const Json& object, const estimator::TraceFile* graph = nullptr) {
  const crds::TrainingJob job = decode(object);
  const Cluster cluster = four_models();
  Budget budget({.work = kWork, .memory = estimator::kDecisionMemory});
  return estimator::provision({.job = &job, .graph = graph, .gpus = &cluster, .budget = &budget});
}

TEST(DecisionBudget, AJobOf681BytesThatKeptAThreadForMinutesIsTooLarge) {
  const estimator::Provision answer = decide(transformer_job(65'536, 1 << 20, 512, 128));
  EXPECT_FALSE(answer.decided());
  EXPECT_EQ(answer.event_reason, "TooLarge");
  EXPECT_THAT(answer.reason, HasSubstr("spec.training.parallelism.pipeline = 512"));
  ASSERT_FALSE(answer.warnings.empty());
  EXPECT_THAT(answer.warnings.front(), HasSubstr("keeps its 128 trainers"));
}

TEST(DecisionBudget, EqualLayersMicroBatchesAndChunksAreNotSimulatedOneByOne) {
  EXPECT_TRUE(decide(transformer_job(65'536, 1, 1, 1)).decided()) << "layers";
  EXPECT_TRUE(decide(transformer_job(16, 1 << 20, 1, 1)).decided()) << "micro-batches";
  EXPECT_TRUE(decide(transformer_job(256, 8, 2, 128)).decided()) << "chunks";
}

TEST(DecisionBudget, ADeadlineEndsWhatALimitOfWorkWouldNot) {
  const crds::TrainingJob job = decode(transformer_job(65'536, 1 << 20, 512, 128));
  const Cluster cluster = four_models();
  Budget budget({.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(50)});
  const estimator::Provision answer =
      estimator::provision({.job = &job, .gpus = &cluster, .budget = &budget});
  EXPECT_EQ(answer.event_reason, "DeadlineExceeded");
  EXPECT_THAT(answer.reason, HasSubstr("spec.training.parallelism.pipeline = 512"));
}

TEST(DecisionBudget, AStopEndsADecision) {
  const crds::TrainingJob job = decode(transformer_job(65'536, 1 << 20, 512, 128));
  const Cluster cluster = four_models();
  std::stop_source stop;
  stop.request_stop();
  Budget budget({.stop = stop.get_token()});
  EXPECT_EQ(estimator::provision({.job = &job, .gpus = &cluster, .budget = &budget}).event_reason,
            "Cancelled");
}

TEST(DecisionBudget, AStopEndsADecisionThatIsUnderWay) {
  // Some ten million operators, in stages that differ.
  const crds::TrainingJob job = decode(transformer_job(512, 512, 512, 1));
  const Cluster cluster = four_models();
  std::stop_source stop;
  const std::jthread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    stop.request_stop();
  });
  Budget budget({.stop = stop.get_token(), .memory = estimator::kDecisionMemory});
  const estimator::Provision answer =
      estimator::provision({.job = &job, .gpus = &cluster, .budget = &budget});
  EXPECT_EQ(answer.event_reason, "Cancelled") << answer.reason;
}

TEST(DecisionBudget, AGraphInStagesIsBounded) {
  crds::ModelSpec model;
  model.graph.emplace();
  crds::TrainingSpec training;
  training.batch_size_per_trainer = 1 << 20;
  training.gradient_accumulation = 1 << 20;
  training.parallelism.pipeline = 4;
  Budget budget({.work = 2000});
  const Result<estimator::Estimate> estimate = budget.run([&] {
    return estimator::estimate_memory({.model = &model,
                                       .training = &training,
                                       .graph = &estimator::testing::gpt(),
                                       .trainers = 4,
                                       .device = estimator::Device::kCpu,
                                       .budget = &budget});
  });
  ASSERT_FALSE(estimate.ok());
  EXPECT_EQ(estimate.error().code, ErrorCode::kTooLarge);
  EXPECT_THAT(estimate.error().message, HasSubstr("spec.training.parallelism.pipeline = 4 is too large"));
}

TEST(DecisionBudget, ManyTablesOnManyTrainersAreBounded) {
  Json object = job_object(100'000, 100'000'000, 4096);
  object["spec"]["model"]["dlrm"]["tables"][0]["dim"] = 1024;
  const estimator::Provision answer = decide(object);
  EXPECT_FALSE(answer.decided());
}

TEST(DecisionBudget, MemoryOfAHundredThousandTablesIsAccountedFor) {
  const crds::TrainingJob job = decode(job_object(100'000, 1000));
  const Cluster cluster = four_models();
  Budget budget({.memory = 4_MiB});
  const estimator::Provision answer =
      estimator::provision({.job = &job, .gpus = &cluster, .budget = &budget});
  EXPECT_EQ(answer.event_reason, "TooLarge");
  EXPECT_THAT(answer.reason, HasSubstr("spec.model.dlrm.tables"));
  EXPECT_LE(budget.most_held(), 4_MiB);
}

}  // namespace
}  // namespace plimsoll::testing
