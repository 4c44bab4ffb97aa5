#include "crds/training_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/crds/test_jobs.h"

namespace plimsoll::crds {
namespace {

using ::testing::HasSubstr;

TrainingJob decoded(const Json& object) {
  Result<TrainingJob> job = decode_training_job(object);
  if (!job) {
    ADD_FAILURE() << to_string(job.error());
    return {};
  }
  return *std::move(job);
}

std::string decode_error(const Json& object) {
  const Result<TrainingJob> job = decode_training_job(object);
  return job ? "decoded" : job.error().message;
}

TEST(TrainingJob, DecodesWhatIsGiven) {
  const TrainingJob job = decoded(small_job());
  EXPECT_EQ(job.name, "ads-ctr");
  EXPECT_EQ(job.namespace_name, "ads");
  ASSERT_TRUE(job.spec.model.dlrm.has_value());
  const DlrmModel& model = *job.spec.model.dlrm;
  EXPECT_EQ(model.bottom_mlp, (std::vector<std::int64_t>{512, 128}));
  ASSERT_EQ(model.tables.size(), 2U);
  EXPECT_EQ(model.tables[0], (EmbeddingTable{"user", 1, 40'000'000, 128, DataType::kFP32, 12.5, 1}));
  EXPECT_EQ(model.tables[1], (EmbeddingTable{"item", 12, 1'000'000, 64, DataType::kBF16, 1, 0.25}));
  EXPECT_EQ(job.spec.training.batch_size_per_trainer, 1024);
  EXPECT_EQ(job.spec.trainers.replicas, 128);
  EXPECT_TRUE(job.spec.trainers.replicas_given);
}

TEST(TrainingJob, DecodesTheSameFromText) {
  Json object = small_job();
  set(object, "spec.fromTheFuture", yaml("[1, -2.5, 18446744073709551615, true, null, {a: b}]"));
  const Result<JsonText> text = JsonText::parse(write_json(object));
  ASSERT_TRUE(text.ok());
  const Result<TrainingJob> from_text = decode_training_job(text->root());
  ASSERT_TRUE(from_text.ok()) << from_text.error().message;
  const TrainingJob from_tree = decoded(object);
  EXPECT_EQ(from_text->raw, from_tree.raw);
  EXPECT_EQ(from_text->spec.model, from_tree.spec.model);
  EXPECT_EQ(from_text->spec.training, from_tree.spec.training);
}

TEST(TrainingJob, FillsInTheDefaults) {
  Json object = small_job();
  set(object, "spec.trainers", Json());
  const TrainingJobSpec spec = decoded(object).spec;
  EXPECT_FALSE(spec.suspend);
  EXPECT_EQ(spec.model.dlrm->dense_features, 13);
  EXPECT_EQ(spec.model.dlrm->interaction, Interaction::kDot);
  EXPECT_EQ(spec.training, (TrainingSpec{.batch_size_per_trainer = 1024}));
  EXPECT_EQ(spec.provisioning.mode, ProvisioningMode::kAuto);
  EXPECT_EQ(spec.provisioning.max_trainers, 512);
  EXPECT_DOUBLE_EQ(spec.provisioning.headroom, 0.05);
  EXPECT_EQ(spec.trainers.per_node, 8);
  EXPECT_EQ(spec.failure_policy.max_restarts, 3);
  EXPECT_DOUBLE_EQ(spec.failure_policy.oom_bump_up_ratio, 1.2);
  EXPECT_FALSE(spec.failure_policy.oom_min_bump_up.has_value());
  EXPECT_EQ(spec.failure_policy.oom_max_growth, 4);
}

TEST(TrainingJob, WithoutACountTheFewestTrainersAreAskedFor) {
  Json object = small_job();
  set(object, "spec.trainers", Json(::Json::objectValue));
  set(object, "spec.provisioning.minTrainers", 12);
  const TrainingJob job = decoded(object);
  EXPECT_EQ(job.spec.trainers.replicas, 12);
  EXPECT_FALSE(job.spec.trainers.replicas_given);
  EXPECT_EQ(problem_text(object), "") << "12 on nodes of 8 is no count of the user's";
}

TEST(TrainingJob, KeepsUnknownFieldsInRaw) {
  Json object = small_job();
  set(object, "spec.model.dlrm.tables[1].hotness", "warm");
  set(object, "spec.template.spec.schedulerName", "volcano");
  set(object, "spec.fromTheFuture.deep", 1);
  Json kept = object;
  kept["spec"].removeMember("model");
  EXPECT_EQ(decoded(object).raw, kept);
  EXPECT_EQ(problem_text(object), "");
}

TEST(TrainingJob, DecodesFailureRulesInOrder) {
  Json object = small_job();
  object["spec"]["failurePolicy"] = yaml(
      "{maxRestarts: 7, oomBumpUpRatio: \"1.5\", oomMinBumpUp: 2Gi, oomMaxGrowth: 8, rules: [{action: "
      "FailJob, onExitCodes: [3, 42]}, {action: RestartJob, onCauses: [Preempted, CUDAOutOfMemory]}]}");
  const FailurePolicy policy = decoded(object).spec.failure_policy;
  EXPECT_EQ(policy.max_restarts, 7);
  EXPECT_DOUBLE_EQ(policy.oom_bump_up_ratio, 1.5);
  EXPECT_EQ(policy.oom_min_bump_up, 2_GiB);
  EXPECT_EQ(policy.oom_max_growth, 8);
  ASSERT_EQ(policy.rules.size(), 2U);
  EXPECT_EQ(policy.rules[0].on_exit_codes, (std::vector<std::int64_t>{3, 42}));
  EXPECT_EQ(policy.rules[1].action, FailureAction::kRestartJob);
  EXPECT_EQ(policy.rules[1].on_causes,
            (std::vector<FailureCause>{FailureCause::kPreempted, FailureCause::kCudaOutOfMemory}));
}

TEST(TrainingJob, NamesTheFieldAndWhatItFound) {
  Json object = small_job();
  set(object, "spec.training.batchSizePerTrainer", "1024");
  EXPECT_EQ(decode_error(object), "spec.training.batchSizePerTrainer: must be an integer, is a string");
  object = small_job();
  set(object, "spec.training.optimizer", "adam");
  EXPECT_THAT(decode_error(object), HasSubstr("spec.training.optimizer: must be one of SGD, "));
  object = small_job();
  set(object, "spec.model.dlrm.tables[1].poolingFactor", 12.5);
  EXPECT_EQ(decode_error(object),
            "spec.model.dlrm.tables[1].poolingFactor: must be a number from 0 to 999999, an integer or a "
            "decimal in quotes like \"12.5\", is a number with a fraction");
  object = small_job();
  set(object, "spec.model.dlrm.tables[0]", Json());
  EXPECT_EQ(decode_error(object), "spec.model.dlrm.tables[0]: must be an object, is null");
}

TEST(TrainingJob, ReportsAllThatIsWrongAtOnce) {
  Json object = small_job();
  set(object, "apiVersion", "plimsoll.dev/v9");
  set(object, "spec.suspend", 1);
  set(object, "spec.training", ::Json::arrayValue);
  set(object, "spec.model.dlrm.topMLP", Json());
  EXPECT_EQ(decode_error(object),
            "apiVersion: must be plimsoll.dev/v1alpha1, is \"plimsoll.dev/v9\"; spec.suspend: must be true "
            "or false, is "
            "an integer; spec.model.dlrm.topMLP: is required; spec.training: must be an object, is a list");
}

TEST(TrainingJob, ErrorsAreBounded) {
  Json object = small_job();
  Json& tables = object["spec"]["model"]["dlrm"]["tables"] = Json(::Json::arrayValue);
  for (int i = 0; i < 3000; ++i) {
    tables.append("no table");
  }
  EXPECT_THAT(decode_error(object), HasSubstr("tables[4]: must be an object, is a string; and 251 more"));
}

TEST(TrainingJob, RefusesWhatIsNoObject) {
  for (const Json& object : {Json(), Json(5), Json("TrainingJob"), Json(::Json::arrayValue)}) {
    EXPECT_THAT(decode_error(object), HasSubstr("must be an object"));
  }
  EXPECT_THAT(decode_error(Json(::Json::objectValue)),
              HasSubstr("apiVersion: must be plimsoll.dev/v1alpha1, is null"));
  Json object = small_job();
  set(object, "kind", "Job");
  EXPECT_EQ(decode_error(object), "kind: must be TrainingJob, is \"Job\"");
  object = small_job();
  set(object, "metadata", "ads");
  EXPECT_THAT(decode_error(object), HasSubstr("metadata: must be an object"));
  object = small_job();
  set(object, "metadata.name", 5);
  EXPECT_THAT(decode_error(object), HasSubstr("metadata.name: must be a string"));
}

TEST(TrainingJob, SurvivesAnyTypeInAnyField) {
  const std::vector<Json> values = {Json(true),
                                    Json(-1),
                                    Json(::Json::UInt64{18446744073709551615U}),
                                    Json(0.5),
                                    Json(1e300),
                                    Json("x"),
                                    Json(::Json::arrayValue),
                                    Json(::Json::objectValue)};
  for (const char* field : {"spec",
                            "spec.suspend",
                            "spec.model",
                            "spec.model.family",
                            "spec.model.dlrm",
                            "spec.model.dlrm.denseFeatures",
                            "spec.model.dlrm.bottomMLP",
                            "spec.model.dlrm.bottomMLP[0]",
                            "spec.model.dlrm.tables",
                            "spec.model.dlrm.tables[0].name",
                            "spec.model.dlrm.tables[0].rows",
                            "spec.model.dlrm.tables[0].dtype",
                            "spec.model.dlrm.tables[0].lookupFrequency",
                            "spec.model.dlrm.tablesFrom",
                            "spec.model.dlrm.tablesFrom.configMapKeyRef",
                            "spec.model.transformer",
                            "spec.model.graph",
                            "spec.training",
                            "spec.training.parallelism",
                            "spec.provisioning",
                            "spec.provisioning.headroom",
                            "spec.provisioning.gpuModels",
                            "spec.trainers",
                            "spec.trainers.replicas",
                            "spec.failurePolicy.rules",
                            "spec.template",
                            "spec.template.spec",
                            "spec.template.spec.containers",
                            "spec.template.spec.containers[0].name",
                            "metadata.generateName"}) {
    for (const Json& value : values) {
      Json object = small_job();
      set(object, field, value);
      problems_of(object);  // any answer but a crash
    }
  }
}

TEST(TrainingJob, TakesAWholeNumberWithAPoint) {
  Json object = small_job();
  set(object, "spec.training.batchSizePerTrainer", 1024.0);  // as JSON's 1024.0, which the API server takes
  EXPECT_EQ(decoded(object).spec.training.batch_size_per_trainer, 1024);
}

TEST(TrainingJob, AnotherControllersJobsAreToldFromOurOwn) {
  Json object = small_job();
  EXPECT_FALSE(is_managed_elsewhere(decoded(object)));
  set(object, "spec.managedBy", kTrainingJobController);
  EXPECT_FALSE(is_managed_elsewhere(decoded(object)));
  set(object, "spec.managedBy", "kueue.x-k8s.io/multikueue");
  EXPECT_TRUE(is_managed_elsewhere(decoded(object)));
}

TEST(TrainingJob, EnumsHaveNames) {
  EXPECT_STREQ(name_of(Precision::kBF16Mixed), "BF16Mixed");
  EXPECT_STREQ(name_of(Optimizer::kLAMB), "LAMB");
  EXPECT_STREQ(name_of(Placement::kHBMOrSwap), "HBMOrSwap");
  EXPECT_STREQ(name_of(FailureCause::kUnknown), "Unknown");
  EXPECT_EQ(*parse_enum<Optimizer>("RowWiseAdagrad"), Optimizer::kRowWiseAdagrad);
  EXPECT_EQ(*parse_enum<Precision>("TF32"), Precision::kTF32);
  const Result<Optimizer> wrong = parse_enum<Optimizer>("adam");
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(to_string(wrong.error()),
            "Invalid: unknown name; choose SGD, Momentum, Adam, AdamW, Adagrad, RowWiseAdagrad, "
            "RMSprop, LAMB, Adafactor, Adam8bit, AdamW8bit, PagedAdamW, PagedAdamW8bit, Lion, Lion8bit, "
            "PagedLion8bit, Muon, NAdam, RAdam, Adadelta or Adamax (near `adam`)");
}

TEST(TrainingJob, WidthsOfTypes) {
  EXPECT_EQ(width_bytes(DataType::kFP32), 4);
  EXPECT_EQ(width_bytes(DataType::kFP16), 2);
  EXPECT_EQ(width_bytes(DataType::kBF16), 2);
  EXPECT_EQ(width_bytes(DataType::kFP8), 1);
  EXPECT_EQ(width_bytes(DataType::kInt8), 1);
}

TEST(FieldErrors, TextSaysHowManyMore) {
  const std::vector<FieldError> errors = {{"a", "x"}, {"b", "y"}, {"c", "z"}};
  EXPECT_EQ(to_string(errors), "a: x; b: y; c: z");
  EXPECT_EQ(to_string(errors, 1), "a: x; and 2 more");
  EXPECT_EQ(to_string({}), "");
}

}  // namespace
}  // namespace plimsoll::crds
