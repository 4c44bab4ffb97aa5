// What remediate() does where the host's memory, or /dev/shm in it, ran out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "crds/shared_memory.h"
#include "remediation/remediation.h"
#include "tests/remediation/history.h"

namespace plimsoll::remediation {
namespace {

using crds::Attempt;
using crds::Outcome;
using plimsoll::testing::available;
using plimsoll::testing::job_object;
using plimsoll::testing::parse;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Remediation, HostMemoryIsRaisedUpToWhatNodesHave) {
  Json object = job_object(100, kGiBOfRows);
  Json& resources = object["spec"]["template"]["spec"]["containers"][0]["resources"];
  resources = parse(R"({"limits": {"memory": "64Gi"}, "requests": {"memory": "32Gi"}})");
  object["spec"]["failurePolicy"] = parse(R"({"oomBumpUpRatio": "1.5", "maxRestarts": 10})");
  History history(object, {available("A100-40GB", 8)});
  history.gpus[0].host_memory = 120_GiB;
  history.admit();
  Remediation next = history.decide(Outcome::kHostOutOfMemory);
  const auto memory = [&](const char* kind) {
    return text_member(history.now["spec"]["template"]["spec"]["containers"][0],
                       {"resources", kind, "memory"});
  };
  EXPECT_TRUE(next.restart && next.counts) << next.message;
  EXPECT_EQ(memory("limits"), "96Gi");
  EXPECT_EQ(memory("requests"), "48Gi");
  next = history.decide(Outcome::kHostOutOfMemory);
  EXPECT_TRUE(next.restart);
  EXPECT_EQ(memory("limits"), "108Gi") << "nine tenths of a node";
  next = history.decide(Outcome::kHostOutOfMemory);
  EXPECT_FALSE(next.restart);
  EXPECT_EQ(next.reason, "MaxResourcesReached");
  EXPECT_THAT(next.message, HasSubstr("data loader"));
}

// It grew by a ratio, again and again, to what was known before.
TEST(Remediation, HostMemoryIsRaisedToWhatWasPredicted) {
  Json object = job_object(100, kGiBOfRows);
  object["spec"]["template"]["spec"]["containers"][0]["resources"] =
      parse(R"({"limits": {"memory": "64Gi"}})");
  History history(object, {available("A100-40GB", 8)});
  history.gpus[0].host_memory = 1024_GiB;
  history.admit();
  history.end(Outcome::kHostOutOfMemory).predicted_host_memory = 233_GiB;
  const Remediation next = history.decide();
  EXPECT_TRUE(next.restart);
  EXPECT_THAT(
      next.message,
      HasSubstr("gets 233 GiB instead of 64.0 GiB, which is what its trainers are predicted to take"));
}

// It was given more memory, which leaves /dev/shm as it is.
TEST(Remediation, AFullShmGetsALargerOneUpToWhatNodesHave) {
  Json object = job_object(100, kGiBOfRows);
  object["spec"]["template"]["spec"]["containers"][0]["resources"] =
      parse(R"({"limits": {"memory": "64Gi"}})");
  object["spec"]["failurePolicy"]["maxRestarts"] = 10;
  History history(object, {available("A100-40GB", 8)});
  history.gpus[0].host_memory = 120_GiB;
  history.admit();
  const Bytes first = crds::usual_shared_memory(std::min<std::int64_t>(8, history.trainers()));
  const auto full = [&] {
    history.end(Outcome::kHostOutOfMemory).shared_memory_full = true;
    return history.decide();
  };
  const auto limit = [&] {
    return text_member(history.now["spec"]["template"]["spec"]["containers"][0],
                       {"resources", "limits", "memory"});
  };
  Remediation next = full();
  EXPECT_TRUE(next.restart && next.counts) << next.message;
  EXPECT_EQ(next.reason, "HostOutOfMemory");
  EXPECT_EQ(next.delay, seconds(0));
  EXPECT_EQ(next.shared_memory, first);
  EXPECT_EQ(limit(), std::to_string(64 + first.count / (1_GiB).count) + "Gi");
  EXPECT_THAT(next.message, HasSubstr("/dev/shm was full on"));
  EXPECT_THAT(next.message, HasSubstr("gets " + to_string(first) + " instead of 64.0 MiB"));
  EXPECT_THAT(next.message, HasSubstr("counts against the container's memory"));
  next = full();
  EXPECT_EQ(next.shared_memory, first * 2);
  while (next.restart) {
    EXPECT_LE(*next.shared_memory, 54_GiB) << "half of nine tenths of a node";
    next = full();
  }
  EXPECT_EQ(next.reason, "MaxResourcesReached");
  EXPECT_EQ(limit(), "108Gi");
  EXPECT_THAT(next.message, HasSubstr("data loader"));
}

TEST(Remediation, ALargerShmIsKeptForAllLaterAttempts) {
  History history(job_object(100, kGiBOfRows), {available("A100-40GB", 8)});
  history.admit();
  history.end(Outcome::kHostOutOfMemory).shared_memory_full = true;
  const std::optional<Bytes> given = history.decide().shared_memory;
  ASSERT_TRUE(given);
  for (const Outcome outcome :
       {Outcome::kPreempted, Outcome::kHostOutOfMemory, Outcome::kSuspended, Outcome::kUnknown}) {
    EXPECT_EQ(history.decide(outcome).shared_memory, given) << name_of(outcome);
  }
}

TEST(Remediation, AFullShmThatIsNotPlimsollsIsLeftAndNamed) {
  struct Case {
    const char* pod;
    const char* said;
  };
  for (
      const Case& one :
      {Case{
           R"({"volumes": [{"name": "mine", "hostPath": {"path": "/dev/shm"}}], "containers": [{"name": "trainer",
                 "volumeMounts": [{"name": "mine", "mountPath": "/dev/shm"}]}]})",
           "volume mine"},
       Case{R"({"hostIPC": true, "containers": [{"name": "trainer"}]})", "hostIPC"},
       Case{R"({"containers": [{"name": "trainer"}, {"name": "cache"}]})",
            "/dev/shm of the container cache"}}) {
    Json object = job_object(100, kGiBOfRows);
    object["spec"]["template"]["spec"] = parse(one.pod);
    History history(object, {available("A100-40GB", 8)});
    Attempt& attempt = history.end(Outcome::kHostOutOfMemory);
    attempt.shared_memory_full = true;
    attempt.container = std::string(one.said).find("cache") == std::string::npos ? "trainer" : "cache";
    const Remediation next = history.decide();
    EXPECT_TRUE(next.restart && next.counts);
    EXPECT_TRUE(next.patch.empty());
    EXPECT_FALSE(next.shared_memory) << one.said;
    EXPECT_THAT(next.message, HasSubstr(one.said));
    EXPECT_GE(next.delay, seconds(10));
  }
}

TEST(Remediation, AFullShmWithoutASizeOfItsOwnNeedsMemory) {
  Json object = job_object(100, kGiBOfRows);
  object["spec"]["template"]["spec"] = parse(
      R"({"volumes": [{"name": "mine", "emptyDir": {"medium": "Memory"}}], "containers": [{"name": "trainer",
          "resources": {"limits": {"memory": "10Gi"}}, "volumeMounts": [{"name": "mine", "mountPath": "/dev/shm"}]}]})");
  History history(object, {available("A100-40GB", 8)});
  history.end(Outcome::kHostOutOfMemory).shared_memory_full = true;
  const Remediation next = history.decide();
  EXPECT_EQ(text_member(history.now["spec"]["template"]["spec"]["containers"][0],
                        {"resources", "limits", "memory"}),
            "12Gi");
  EXPECT_FALSE(next.shared_memory);
}

TEST(Remediation, AFullShmOfAJobThatIsNotPlimsollsToChangeStays) {
  for (const bool by_annotation : {false, true}) {
    Json object = job_object(100, kGiBOfRows);
    object["spec"]["provisioning"]["mode"] = by_annotation ? "Auto" : "Off";
    if (by_annotation) {
      object["metadata"]["annotations"][crds::kProvisioningAnnotation] = "disabled";
    }
    History history(object, {available("A100-40GB", 8)});
    history.end(Outcome::kHostOutOfMemory).shared_memory_full = true;
    const Remediation next = history.decide();
    EXPECT_TRUE(next.restart && next.patch.empty() && !next.shared_memory);
    EXPECT_THAT(next.message, HasSubstr("mount an emptyDir of medium Memory"));
  }
}

// A container beside the trainer, or before it, whose memory ran out: more for the trainer would not help.
TEST(Remediation, TheContainerThatWasKilledGetsTheMemory) {
  Json object = job_object(100, kGiBOfRows);
  Json& pod = object["spec"]["template"]["spec"];
  const Json given = parse(R"({"limits": {"memory": "1Gi"}})");
  pod["containers"][0]["resources"] = parse(R"({"limits": {"memory": "64Gi"}})");
  pod["containers"][1]["name"] = "cache";
  pod["containers"][1]["resources"] = given;
  pod["initContainers"][0]["name"] = "fetch";
  pod["initContainers"][0]["resources"] = given;
  for (const char* name : {"cache", "fetch", "istio-proxy"}) {
    History history(object, {available("A100-40GB", 8)});
    history.admit();
    history.end(Outcome::kHostOutOfMemory).container = name;
    EXPECT_TRUE(history.decide().restart);
    EXPECT_THAT(history.last.message, HasSubstr(std::string("the container ") + name));
    const Json& now = history.now["spec"]["template"]["spec"];
    const auto limit = [](const Json& container) {
      return text_member(container, {"resources", "limits", "memory"});
    };
    EXPECT_EQ(limit(now["containers"][0]), "64Gi") << name;
    EXPECT_EQ(limit(now["containers"][1]) != "1Gi", std::string(name) == "cache");
    EXPECT_EQ(limit(now["initContainers"][0]) != "1Gi", std::string(name) == "fetch");
  }
}

TEST(Remediation, HostMemoryThatIsNotGivenCannotBeRaised) {
  for (const char* resources : {"{}", R"({"limits": {"memory": "lots"}})", R"({"limits": {"cpu": 7}})"}) {
    Json object = job_object(100, kGiBOfRows);
    object["spec"]["template"]["spec"]["containers"][0]["resources"] = parse(resources);
    History history(object, {available("A100-40GB", 8)});
    const Remediation next = history.decide(Outcome::kHostOutOfMemory);
    EXPECT_TRUE(next.restart);
    EXPECT_TRUE(next.patch.empty());
    EXPECT_THAT(next.message, HasSubstr("resources.requests.memory"));
    EXPECT_GE(next.delay, seconds(10));
  }
}

}  // namespace
}  // namespace plimsoll::remediation
