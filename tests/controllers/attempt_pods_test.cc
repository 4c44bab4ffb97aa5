// What waits for these pods, and for how long, is in training_job_overlap_test.cc.
#include "controllers/attempt_pods.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "controllers/job_children.h"
#include "tests/kube/partial_client.h"

namespace plimsoll::controllers {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const Clock::WallTime kNow = *parse_time("2026-11-21T10:00:00Z");

// The pods of a namespace, and its Jobs by name.
class PodsClient final : public testing::PartialClient {
 public:
  Result<Json> list(const kube::Resource& resource, const std::string& namespace_name,
                    const kube::ListOptions& what, const kube::CallOptions&) override {
    requested =
        kube::path_of(resource, namespace_name) + " " + what.label_selector + " " + what.field_selector;
    if (list_error.code != ErrorCode::kUnsupported) {
      return list_error;
    }
    Json list;
    list["items"] = pods;
    return list;
  }
  Result<Json> get(const kube::Resource&, const std::string&, const std::string& name,
                   const kube::CallOptions&) override {
    const auto found = jobs.find(name);
    return found == jobs.end() ? Result<Json>(Error(ErrorCode::kNotFound, "no such Job")) : found->second;
  }

  Json pods{::Json::arrayValue};
  std::map<std::string, Result<Json>> jobs;
  Error list_error = unused();
  std::string requested;
};

class AttemptPods : public ::testing::Test {
 protected:
  // A pod that the Job of an attempt created.
  Json& add(const std::string& name, int attempt = 0, const std::string& job_uid = "j-0") {
    Json pod;
    pod["metadata"]["name"] = name;
    pod["metadata"]["labels"][kAttemptLabel] = std::to_string(attempt);
    Json& owner = pod["metadata"]["ownerReferences"][0];
    owner["kind"] = "Job";
    owner["name"] = child_name("ads", attempt);
    owner["uid"] = job_uid;
    owner["controller"] = true;
    pod["spec"]["nodeName"] = "node-1";
    return client_.pods.append(pod);
  }
  RemainingPods remaining(const WhichPods& which = {}) {
    const Result<RemainingPods> found = look(which);
    EXPECT_TRUE(found) << to_string(found.error());
    return found ? *found : RemainingPods{};
  }
  Result<RemainingPods> look(const WhichPods& which = {}) {
    Json job;
    job["metadata"]["name"] = "ads";
    job["metadata"]["namespace"] = "ml";
    return remaining_pods(client_, job, which, kNow, {});
  }

  PodsClient client_;
};

TEST_F(AttemptPods, AreThoseOfTheNamespaceThatHaveTheLabelAndHaveNotEnded) {
  EXPECT_EQ(remaining().count, 0);
  EXPECT_EQ(client_.requested, "/api/v1/namespaces/ml/pods " + pods_selector("ads") +
                                   " status.phase!=Succeeded,status.phase!=Failed");
  add("ads-0-0-abcde");
  add("ads-0-1-abcde")["spec"].removeMember("nodeName");
  EXPECT_EQ(remaining().count, 2);
  EXPECT_EQ(remaining().message, "pod ads-0-0-abcde on node node-1, pod ads-0-1-abcde without a node");
}

TEST_F(AttemptPods, ALabelAloneDoesNotCount) {
  add("no-owner")["metadata"].removeMember("ownerReferences");
  add("of-a-job-of-another-name")["metadata"]["ownerReferences"][0]["name"] = "backup";
  add("of-a-replica-set")["metadata"]["ownerReferences"][0]["kind"] = "ReplicaSet";
  for (const char* attempt : {"", "x", "-1", "0x", "99999999999999999999"}) {
    add("of-no-attempt")["metadata"]["labels"][kAttemptLabel] = attempt;
  }
  EXPECT_EQ(remaining().count, 0) << remaining().message;
}

TEST_F(AttemptPods, APodThatLostItsJobCounts) {
  Json& orphan = add("orphan");
  orphan["metadata"].removeMember("ownerReferences");
  orphan["metadata"]["labels"]["batch.kubernetes.io/job-name"] = "ads-0";
  EXPECT_EQ(remaining().count, 1);
}

TEST_F(AttemptPods, CountUnlessTheirJobIsAnotherControllers) {
  add("ads-0-0-abcde");
  EXPECT_EQ(remaining().count, 1) << "the Job is deleted";
  Json job;
  job["metadata"]["uid"] = "j-0";
  client_.jobs.emplace("ads-0", job);
  EXPECT_EQ(remaining().count, 1) << "the Job is an orphan";
  Json& owner = job["metadata"]["ownerReferences"][0];
  owner["apiVersion"] = crds::kApiVersion;
  owner["kind"] = "TrainingJob";
  owner["name"] = "ads";
  owner["uid"] = "of-an-earlier-one";
  owner["controller"] = true;
  client_.jobs.insert_or_assign("ads-0", job);
  EXPECT_EQ(remaining().count, 1) << "the Job is a TrainingJob's of this name";
  owner["kind"] = "Workflow";
  client_.jobs.insert_or_assign("ads-0", job);
  EXPECT_EQ(remaining().count, 0);
  EXPECT_EQ(remaining().message, "");
  job["metadata"]["uid"] = "j-1";
  client_.jobs.insert_or_assign("ads-0", job);
  EXPECT_EQ(remaining().count, 1) << "another Job has the name of the one that made the pod";
}

TEST_F(AttemptPods, MayBeThoseOfAllJobsButOneOrTheTerminatingOfOne) {
  add("a", 0, "j-0");
  add("b", 1, "j-1");
  add("c", 1, "j-1")["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:30Z";
  EXPECT_EQ(remaining().count, 3);
  EXPECT_THAT(remaining({.except_job_uid = "j-1"}).message, HasSubstr("pod a on"));
  EXPECT_EQ(remaining({.except_job_uid = "j-1"}).count, 1);
  EXPECT_EQ(remaining({.terminating_of_job_uid = "j-1"}).message,
            "pod c on node node-1, terminating until 2026-11-21T10:00:30Z");
  EXPECT_EQ(remaining({.terminating_of_job_uid = "j-0"}).count, 0);
}

TEST_F(AttemptPods, AreStuckAMinuteAfterTheirGracePeriod) {
  Json& pod = add("slow");
  pod["metadata"]["deletionTimestamp"] = "2026-11-21T09:59:00Z";
  EXPECT_FALSE(remaining().stuck);
  client_.pods[0]["metadata"]["deletionTimestamp"] = "2026-11-21T09:58:59Z";
  EXPECT_TRUE(remaining().stuck);
  EXPECT_THAT(remaining().message, HasSubstr("node.kubernetes.io/out-of-service:NoExecute"));
  client_.pods[0]["metadata"]["deletionTimestamp"] = "yesterday";
  EXPECT_FALSE(remaining().stuck);
}

TEST_F(AttemptPods, TheMessageNamesTheFirstFewByName) {
  for (const char* name : {"a", "b", "c", "d", "e"}) {  // as the API server lists them
    add(name, *name == 'c' ? 1 : 0, *name == 'c' ? "j-1" : "j-0");
  }
  const RemainingPods found = remaining();
  EXPECT_EQ(found.count, 5);
  EXPECT_THAT(found.message,
              HasSubstr("pod a on node node-1, pod b on node node-1, pod c on node node-1 and 2 more"));
  EXPECT_THAT(found.message, Not(HasSubstr("out-of-service")));
}

TEST_F(AttemptPods, WhatCannotBeReadIsAnErrorAndNoZero) {
  add("a");
  client_.jobs.emplace("ads-0", Error(ErrorCode::kTimeout, "no answer"));
  EXPECT_EQ(look().error().code, ErrorCode::kTimeout);
  client_.list_error = Error(ErrorCode::kForbidden, "no");
  EXPECT_EQ(look().error().code, ErrorCode::kForbidden);
}

}  // namespace
}  // namespace plimsoll::controllers
