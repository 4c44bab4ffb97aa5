#include "remediation/attempt_end.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "tests/remediation/endings.h"

namespace plimsoll::remediation {
namespace {

using ::testing::HasSubstr;

TEST(AttemptEnd, EndingsAreJudgedAsAPersonWould) {
  std::map<std::string, std::map<std::string, int>> given;  // by what was wanted
  for (const char* file : {"endings.yaml", "public_endings.yaml"}) {
    const std::vector<Ending> endings = read_endings(file);
    EXPECT_GE(endings.size(), 190U) << file;
    for (const Ending& ending : endings) {
      const AttemptEnd end = classify(ending.pods);
      ++given[ending.outcome][name_of(end.outcome)];
      EXPECT_EQ(name_of(end.outcome), ending.outcome) << ending.name << ": " << end.evidence.text;
      EXPECT_TRUE(end.shared_memory || !ending.shared_memory) << ending.name << ": " << end.evidence.text;
      // In whatever order the API lists them.
      std::vector<Json> reversed(ending.pods.rbegin(), ending.pods.rend());
      EXPECT_EQ(name_of(classify(reversed).outcome), ending.outcome) << ending.name << ", in reverse";
    }
  }
  for (const auto& [wanted, outcomes] : given) {
    std::cout << wanted << ":";
    for (const auto& [outcome, count] : outcomes) {
      std::cout << ' ' << outcome << ' ' << count;
    }
    std::cout << '\n';
  }
}

TEST(AttemptEnd, WhatAnotherTryMayCureIsNoUserError) {
  for (const char* message :
       {"RuntimeError: the accelerator's memory pool is used up", "ValueError: peer 7 went away",
        "RuntimeError: the request timed out", "acme.runtime.KernelError: code 7",
        "torch._inductor.exc.InductorError: LoweringException", "OSError: the socket is gone"}) {
    EXPECT_EQ(classify({ended({.message = message})}).outcome, Outcome::kUnknown) << message;
  }
  for (const char* message :
       {"TypeError: forward() got an unexpected keyword argument 'timeout'", "KeyError: 'device'",
        "ValueError: --epochs must be positive", "AssertionError: labels are of another length",
        "Traceback (most recent call last):\n__main__.ConfigMissing: no data set",
        "RuntimeError: size mismatch, m1: [4 x 8], m2: [16 x 2]"}) {
    EXPECT_EQ(classify({ended({.message = message})}).outcome, Outcome::kUserError) << message;
  }
}

TEST(AttemptEnd, ShowsWhatItGoesBy) {
  const AttemptEnd end = classify({ended({.message = kNccl}, "job-0"),
                                   ended({.message = std::string("loading\n") + kOutOfMemory}, "job-1")});
  EXPECT_EQ(end.evidence.pod, "job-1");
  EXPECT_EQ(end.evidence.container, "trainer");
  EXPECT_EQ(end.evidence.field, "status.containerStatuses[trainer].state.terminated.message");
  EXPECT_THAT(end.evidence.text, HasSubstr("CUDA out of memory. Tried to allocate 2.00 GiB."));
  EXPECT_LE(end.evidence.text.size(), 300U);
}

TEST(AttemptEnd, ALogSaysWhatTheStatusDoesNot) {
  const std::vector<Json> pods = {ended({.code = 1}, "job-0"), ended({.code = 1}, "job-1")};
  EXPECT_EQ(classify(pods).outcome, Outcome::kUnknown);
  const AttemptEnd end = classify(pods, {{.pod = "job-1", .container = "", .text = kOutOfMemory}});
  EXPECT_EQ(end.outcome, Outcome::kCudaOutOfMemory);
  EXPECT_EQ(end.evidence.pod, "job-1");
  EXPECT_EQ(end.evidence.field, "log");
  EXPECT_EQ(classify(pods, {{.pod = "job-7", .container = "", .text = kOutOfMemory}}).outcome,
            Outcome::kUnknown);
}

TEST(AttemptEnd, SurvivesStatusesOfNonsense) {
  const std::vector<Json> values = {Json(),     Json(5),     Json("x"), Json(::Json::arrayValue),
                                    Json(true), Json(1e300), Json(-1),  Json(::Json::objectValue)};
  for (const Json& value : values) {
    for (const char* field : {"metadata", "status"}) {
      Json odd = ended({.message = kOutOfMemory});
      odd[field] = value;
      classify({odd, value});
    }
    for (const char* field : {"phase", "reason", "message", "conditions", "containerStatuses"}) {
      Json odd = ended({.message = kOutOfMemory});
      odd["status"][field] = value;
      classify({odd});
    }
    Json odd = ended({.message = kOutOfMemory});
    Json& state = odd["status"]["containerStatuses"][0]["state"];
    state["terminated"]["exitCode"] = value;
    classify({odd});
    state["terminated"] = value;
    classify({odd});
    state = value;
    classify({odd});
  }
}

TEST(AttemptEnd, TheTrainerIsFoundBehindAProxyThatAMeshPutFirst) {
  Json made =
      with(ended({.message = kOutOfMemory, .container = "main"}),
           {.code = 137, .reason = "OOMKilled", .time = "2026-11-21T08:00:00Z", .container = "proxy"});
  EXPECT_EQ(classify({made}).outcome, Outcome::kHostOutOfMemory);  // who is the trainer is not told
  Json& containers = made["spec"]["containers"];
  containers[0]["name"] = "proxy";
  containers[1]["name"] = "main";
  containers[1]["resources"]["limits"]["nvidia.com/gpu"] = "8";
  EXPECT_EQ(classify({made}).outcome, Outcome::kCudaOutOfMemory);
  EXPECT_EQ(classify({made}).evidence.container, "main");
}

TEST(AttemptEnd, ALogIsReadThoughNoStatusSaysWhoWroteIt) {
  const std::vector<LogTail> log = {{.pod = "", .container = "", .text = kOutOfMemory}};
  EXPECT_EQ(classify({pod()}, log).outcome, Outcome::kCudaOutOfMemory);
  EXPECT_EQ(classify({}, log).outcome, Outcome::kCudaOutOfMemory);
  EXPECT_EQ(classify({pod("job-0", "Running")}, log).outcome, Outcome::kRunning);
}

}  // namespace
}  // namespace plimsoll::remediation
