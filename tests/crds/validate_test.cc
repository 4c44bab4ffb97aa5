// That each CEL rule has its like here is tested in schema_test.cc, and many a job in fixtures_test.cc.
#include <gtest/gtest.h>

#include "crds/training_job.h"
#include "tests/crds/test_jobs.h"

namespace plimsoll::crds {
namespace {

TrainingJob decoded(const Json& object) {
  Result<TrainingJob> job = decode_training_job(object);
  if (!job) {
    ADD_FAILURE() << to_string(job.error());
    return {};
  }
  return *std::move(job);
}

TEST(Validate, ReportsFieldsInTheOrderOfTheSpec) {
  Json object = small_job();
  set(object, "metadata.name", "Ads");
  set(object, "spec.trainers.replicas", 12);
  set(object, "spec.provisioning.minTrainers", 600);
  set(object, "spec.training.gradientAccumulation", 3);
  set(object, "spec.model.dlrm.topMLP[1]", 2);
  std::vector<std::string> fields;
  for (const FieldError& error : problems_of(object)) {
    fields.push_back(error.field);
  }
  EXPECT_EQ(fields, (std::vector<std::string>{"metadata.name", "spec.model.dlrm.topMLP",
                                              "spec.training.gradientAccumulation",
                                              "spec.provisioning.minTrainers", "spec.trainers.replicas"}));
}

TEST(Validate, AModelIsOfOneKind) {
  Json object = small_job();
  set(object, "spec.model.graph", yaml("{configMapKeyRef: {name: g, key: k}}"));
  EXPECT_EQ(problem_text(object), "spec.model: model must have exactly one of dlrm, transformer and graph");
  set(object, "spec.model.dlrm", Json());
  EXPECT_EQ(problem_text(object), "");
  set(object, "spec.model.graph", Json());
  EXPECT_EQ(problem_text(object), "spec.model: model must have exactly one of dlrm, transformer and graph");
}

// Nodes of 8: 3 fit on a part of one, 16 on two, and 12 would leave the second half empty.
TEST(Validate, TrainersFillWholeNodes) {
  Json object = small_job();
  for (const int replicas : {3, 8, 16}) {
    set(object, "spec.trainers.replicas", replicas);
    EXPECT_EQ(problem_text(object), "") << replicas;
  }
  set(object, "spec.trainers.replicas", 12);
  EXPECT_EQ(problems_of(object).front().field, "spec.trainers.replicas");
}

TEST(Validate, SeesTablesThatShareAName) {
  Json object = small_job();
  set(object, "spec.model.dlrm.tables[2]", yaml("{name: user, rows: 10, dim: 8}"));
  EXPECT_EQ(problem_text(object), "spec.model.dlrm.tables[2].name: is also the name of tables[0]");
  set(object, "spec.model.dlrm.tables[2].name", "item.11");
  EXPECT_EQ(problem_text(object),
            "spec.model.dlrm.tables[2].name: is also the name of a table in the group tables[1]");
  for (const char* other : {"item.12", "item.-1", "item.011", "item.", "item.x", "user.0", "item.1.1"}) {
    set(object, "spec.model.dlrm.tables[2].name", other);
    EXPECT_EQ(problem_text(object), "") << other;
  }
}

TEST(Validate, SeesSumsThatNoMachineHolds) {
  Json object = small_job();
  Json& tables = object["spec"]["model"]["dlrm"]["tables"];
  tables[0]["count"] = 100'000;
  tables[1]["count"] = 1;
  EXPECT_EQ(problem_text(object),
            "spec.model.dlrm.tables: all counts of the tables together must not exceed 100000");
  tables[0] = yaml("{name: vast, count: 100000, rows: 1099511627776, dim: 65536}");
  tables.resize(1);
  EXPECT_EQ(problem_text(object), "spec.model.dlrm.tables: sizes add up to more than 2^63 bytes");
}

TEST(Validate, ValidatesTablesThatWereResolvedFromAConfigMap) {
  Json object = small_job();
  set(object, "spec.model.dlrm.tables", Json());
  set(object, "spec.model.dlrm.tablesFrom", yaml("{configMapKeyRef: {name: t, key: t.csv}}"));
  TrainingJob job = decoded(object);
  EXPECT_TRUE(validate(job).empty());
  for (int i = 0; i < 30'000; ++i) {  // more than fit inline
    job.spec.model.dlrm->tables.push_back({.name = "t" + std::to_string(i), .rows = 10, .dim = 8});
  }
  EXPECT_EQ(to_string(validate(job)), "");
  job.spec.model.dlrm->tables[7].rows = -1;
  EXPECT_EQ(to_string(validate(job)), "spec.model.dlrm.tables[7].rows: must be at least 1, is -1");
}

TEST(Validate, NameMayBeLeftToTheServer) {
  Json object = small_job();
  set(object, "metadata.name", Json());
  EXPECT_EQ(problem_text(object), "metadata.name: is required");
  set(object, "metadata.generateName", "ads-");
  EXPECT_EQ(problem_text(object), "");
}

TEST(ValidateUpdate, KeepsTheModelAndWhileRunningTheTraining) {
  const TrainingJob before = decoded(small_job());
  TrainingJob now = before;
  now.spec.trainers.replicas = 64;
  now.spec.provisioning.max_trainers = 64;
  EXPECT_TRUE(validate_update(before, now).empty());
  now.spec.model.dlrm->tables[0].rows += 1;
  now.spec.training.optimizer = Optimizer::kSGD;
  EXPECT_EQ(to_string(validate_update(before, now)),
            "spec.model: model cannot be changed; create another job for another model; "
            "spec.training: training may only change while the job is suspended");
  TrainingJob taken_over = before;
  taken_over.spec.managed_by = "kueue.x-k8s.io/multikueue";
  EXPECT_EQ(to_string(validate_update(before, taken_over)), "spec.managedBy: managedBy cannot be changed");
  EXPECT_EQ(to_string(validate_update(taken_over, before)), "spec.managedBy: managedBy cannot be changed");
  TrainingJob suspended = before;
  suspended.spec.suspend = true;
  now.spec.model = before.spec.model;
  EXPECT_TRUE(validate_update(suspended, now).empty());
  now.spec.suspend = true;
  EXPECT_EQ(to_string(validate_update(before, now)),
            "spec.training: training may only change while the job is suspended")
      << "the update that suspends it comes too early";
}

}  // namespace
}  // namespace plimsoll::crds
