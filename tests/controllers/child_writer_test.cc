// Objects of others with the names of children, of every kind, are in training_job_ownership_test.cc.
#include "controllers/child_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controllers/job_children.h"
#include "tests/controllers/job_world.h"

namespace plimsoll::controllers {
namespace {

using plimsoll::testing::job_yaml;
using plimsoll::testing::JobWorld;
using ::testing::HasSubstr;

// An object with this list of owners.
Json owned_by(const std::string& owners) {
  Json object;
  object["metadata"]["ownerReferences"] = *parse_json(owners);
  return object;
}

TEST(Ownership, OnlyTheControllerOwns) {
  const Json child = owned_by(R"([{"kind":"ConfigMap","name":"ads","uid":"u-0"},
                                  {"apiVersion":"plimsoll.dev/v1alpha1","kind":"TrainingJob","name":"ads",
                                   "uid":"u-1","controller":true}])");
  EXPECT_TRUE(has_owner(child));
  EXPECT_TRUE(is_controlled_by(child, "u-1"));
  EXPECT_FALSE(is_controlled_by(child, "u-0")) << "an owner, and no controller";
  EXPECT_TRUE(is_controlled_by_job_named(child, "ads"));
  EXPECT_FALSE(is_controlled_by_job_named(child, "other"));
}

TEST(Ownership, AnOwnerOfAnotherKindOrVersionIsNoTrainingJob) {
  for (const char* kind : {R"("apiVersion":"batch/v1","kind":"TrainingJob")",
                           R"("apiVersion":"plimsoll.dev/v1alpha1","kind":"Job")"}) {
    const Json child =
        owned_by(std::string("[{") + kind + R"(,"name":"ads","uid":"u-1","controller":true}])");
    EXPECT_FALSE(is_controlled_by_job_named(child, "ads")) << kind;
    EXPECT_TRUE(is_controlled_by(child, "u-1")) << "the uid is enough";
  }
}

TEST(Ownership, WithoutOwnersOrAUidNobodyOwns) {
  for (const char* owners : {"null", "[]", "{}", "5"}) {
    EXPECT_FALSE(has_owner(owned_by(owners))) << owners;
    EXPECT_FALSE(is_controlled_by(owned_by(owners), "u-1")) << owners;
  }
  EXPECT_FALSE(has_owner(Json()));
  EXPECT_FALSE(is_controlled_by(owned_by(R"([{"controller":true}])"), ""));
  EXPECT_FALSE(is_controlled_by(owned_by(R"([{"controller":"true","uid":"u-1"}])"), "u-1"));
}

class ChildWriterTest : public ::testing::Test {
 protected:
  ChildWriterTest() {
    world_.create(job_yaml("ads"));
    world_.settle("ads");
    job_ = world_.job("ads");
    child_ = world_.child("ads-0");
    wanted_ = child_;
    for (const char* field : {"uid", "resourceVersion", "creationTimestamp"}) {
      wanted_["metadata"].removeMember(field);
    }
    wanted_.removeMember("status");
  }

  JobWorld world_;
  Json job_;
  Json child_;   // as the API server has it
  Json wanted_;  // as the job makes it
  const kube::CallOptions call_;
};

TEST_F(ChildWriterTest, MakingAChildTwiceGivesTheFirst) {
  ChildWriter writer(world_.client(), job_, call_);
  const Result<Json> made = writer.create(kJobs, wanted_);
  ASSERT_TRUE(made) << to_string(made.error());
  EXPECT_EQ(text_member(*made, {"metadata", "uid"}), text_member(child_, {"metadata", "uid"}));
  EXPECT_EQ(write_json(world_.child("ads-0")), write_json(child_));
}

TEST_F(ChildWriterTest, RemovesItsOwnAndWhatIsGoneIsRemoved) {
  ChildWriter writer(world_.client(), job_, call_);
  ASSERT_TRUE(writer.remove(kConfigMaps, "ads-0-plan"));
  EXPECT_EQ(world_.client().get(kConfigMaps, "default", "ads-0-plan").error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(writer.remove(kConfigMaps, "ads-0-plan"));
  EXPECT_TRUE(writer.remove(kConfigMaps, "never-there"));
}

TEST_F(ChildWriterTest, ANameOfAnothersIsTakenAndTheMessageSaysByWhom) {
  Json stranger = owned_by(
      R"([{"apiVersion":"apps/v1","kind":"StatefulSet","name":"kafka","uid":"1-2-3","controller":true}])");
  stranger["apiVersion"] = "v1";
  stranger["kind"] = "ConfigMap";
  stranger["metadata"]["name"] = "ads-7-plan";
  stranger["metadata"]["namespace"] = "default";
  ASSERT_TRUE(world_.client().create(kConfigMaps, "default", stranger));
  Json wanted = stranger;
  wanted["metadata"]["ownerReferences"][0] = owner_reference(job_);
  const Result<Json> made = ChildWriter(world_.client(), job_, call_).create(kConfigMaps, wanted);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kAlreadyExists);
  EXPECT_THAT(made.error().message, HasSubstr("owned by StatefulSet kafka"));
}

TEST_F(ChildWriterTest, ErrorsOfTheServerAreReturned) {
  plimsoll::testing::DyingClient dead(world_.client(), 0, false);
  ChildWriter writer(dead, job_, call_);
  EXPECT_EQ(writer.remove(kJobs, "ads-0").error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(writer.create(kJobs, wanted_).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(write_json(world_.child("ads-0")), write_json(child_));
}

// The leftovers of an earlier job make way only for the job that has its name now.
TEST(ChildWriter, LeftoversOfAJobThatStillHasTheNameStay) {
  JobWorld world;
  world.create(job_yaml("ads"));
  world.settle("ads");
  const Json child = world.child("ads-0");
  Json impostor = world.job("ads");  // as a cache may hold it after the job was deleted and created anew
  impostor["metadata"]["uid"] = "another";
  const kube::CallOptions call;
  ChildWriter writer(world.client(), impostor, call);
  Json wanted = child;
  wanted["metadata"].removeMember("uid");
  wanted["metadata"].removeMember("resourceVersion");
  const Result<Json> made = writer.create(kJobs, wanted);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::kConflict);
  EXPECT_EQ(write_json(world.child("ads-0")), write_json(child));
  ASSERT_TRUE(writer.remove(kJobs, "ads-0").ok());
  EXPECT_EQ(write_json(world.child("ads-0")), write_json(child));
}

}  // namespace
}  // namespace plimsoll::controllers
