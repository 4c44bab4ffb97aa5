#include "cli/classify_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/run_command.h"
#include "tests/cli/temporary_file.h"

namespace plimsoll::cli {
namespace {

using plimsoll::testing::Outcome;
using plimsoll::testing::run;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kPods = R"(apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: ads-1-0, namespace: ns}
  status:
    phase: Failed
    containerStatuses:
    - name: trainer
      state:
        terminated:
          exitCode: 1
          reason: Error
          finishedAt: "2026-11-21T08:30:00Z"
          message: |
            torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity
            of 79.00 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this process has 78.00 GiB
            memory in use. Of the allocated memory 70.00 GiB is allocated by PyTorch, and 5.00 GiB is reserved by PyTorch but unallocated.
)";

TEST(ClassifyCommand, KeepsTheJsonContract) {
  const Outcome outcome = run(run_classify, {"-f", "-", "-o", "json"}, kPods);
  EXPECT_EQ(outcome.code, kExitDone) << outcome.err;
  const Json json = outcome.json();
  EXPECT_EQ(json["verdict"].asString(), "CUDAOutOfMemory");
  EXPECT_EQ(json["evidence"]["pod"].asString(), "ads-1-0");
  EXPECT_EQ(json["evidence"]["container"].asString(), "trainer");
  EXPECT_THAT(json["evidence"]["field"].asString(), HasSubstr("terminated.message"));
  EXPECT_THAT(json["evidence"]["text"].asString(), HasSubstr("CUDA out of memory"));
  EXPECT_EQ(json["neededBytes"].asInt64(), std::int64_t{80} << 30);
  EXPECT_EQ(json["capacityBytes"].asInt64(), std::int64_t{79} << 30);  // though the sentence is folded there
  EXPECT_EQ(json["fragmentationBytes"].asInt64(), std::int64_t{5} << 30);
}

TEST(ClassifyCommand, ShowsNoControlCharactersOnATerminal) {
  const Outcome outcome =
      run(run_classify, {"-f", "-"},
          R"({"kind": "Pod", "metadata": {"name": "a"}, "status": {"phase": "Failed", "reason":
                              "Evicted", "message": "\u001b]0;title\u0007\u001b[2J\u001b[31mno"}})");
  EXPECT_EQ(outcome.code, kExitDone) << outcome.err;
  EXPECT_THAT(outcome.out, ::testing::AllOf(HasSubstr("Preempted"), HasSubstr("]0;titleno")));
  EXPECT_THAT(outcome.out, ::testing::Not(::testing::AnyOf(HasSubstr("\x1b"), HasSubstr("\x07"))));
}

TEST(ClassifyCommand, WhatIsNotKnownIsNull) {
  const Outcome outcome = run(run_classify, {"-f", "-", "-o", "json"},
                              "{apiVersion: v1, kind: Pod, metadata: {name: a}, status: {phase: Succeeded}}");
  const Json json = outcome.json();
  EXPECT_EQ(json["verdict"].asString(), "Succeeded");
  for (const char* field : {"neededBytes", "capacityBytes", "fragmentationBytes", "heldByOthersBytes"}) {
    EXPECT_TRUE(json.isMember(field) && json[field].isNull()) << field;
  }
  EXPECT_TRUE(json["evidence"]["pod"].isNull());
}

TEST(ClassifyCommand, TellsPeople) {
  const Outcome outcome = run(run_classify, {"-f", "-"}, kPods);
  EXPECT_THAT(outcome.out, StartsWith("CUDAOutOfMemory\n  pod        ads-1-0\n"));
  EXPECT_THAT(outcome.out, HasSubstr("80.0 GiB"));
}

TEST(ClassifyCommand, ReadsLogs) {
  const plimsoll::testing::TemporaryFile log(std::string(1 << 20, '.') +
                                             "\nModuleNotFoundError: No module\n");
  const Outcome outcome =
      run(run_classify, {"-f", "-", "--log", log.path(), "-o", "json"},
          "{kind: Pod, metadata: {name: a}, status: {phase: Failed, containerStatuses: [{name: t, state: "
          "{terminated: {exitCode: 1}}}]}}");
  EXPECT_EQ(outcome.json()["verdict"].asString(), "UserError");
  EXPECT_EQ(outcome.json()["evidence"]["field"].asString(), "log");
}

TEST(ClassifyCommand, ExplainsWhatDecidedAndWhatComesNext) {
  const Outcome outcome = run(run_classify, {"-f", "-", "--explain"}, kPods);
  EXPECT_EQ(outcome.code, kExitDone) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("because    pattern \"out of memory. tried to allocate\" of PyTorch"));
  EXPECT_THAT(outcome.out, HasSubstr("proves     a cause by itself"));
  EXPECT_THAT(outcome.out, HasSubstr("next       another attempt at once, on more trainers or larger GPUs"));
}

TEST(ClassifyCommand, ExplainsWhatWasConsideredAndLost) {
  const plimsoll::testing::TemporaryFile log(
      "connection reset by peer\nTraceback (most recent call last):\nValueError: no such feature\n");
  const Outcome outcome =
      run(run_classify, {"-f", "-", "--log", log.path(), "--explain", "-o", "json"},
          "{kind: Pod, metadata: {name: a}, status: {phase: Failed, containerStatuses: [{name: t, state: "
          "{terminated: {exitCode: 1}}}]}}");
  const Json explanation = outcome.json()["explanation"];
  EXPECT_EQ(outcome.json()["verdict"].asString(), "UserError");
  EXPECT_EQ(explanation["proves"].asString(), "an exception");
  EXPECT_THAT(explanation["because"].asString(), HasSubstr("the program's own exception"));
  EXPECT_THAT(explanation["next"].asString(), HasSubstr("the job fails"));
  ASSERT_EQ(explanation["others"].size(), 1U);
  EXPECT_EQ(explanation["others"][0]["verdict"].asString(), "InfrastructureFailure");
  EXPECT_EQ(explanation["others"][0]["text"].asString(), "connection reset by peer");
  EXPECT_THAT(explanation["others"][0]["because"].asString(), HasSubstr("\"connection reset by peer\""));
}

TEST(ClassifyCommand, TakesPatternsOfOnesOwn) {
  const plimsoll::testing::TemporaryFile own(
      "- {rule: proof, outcome: InfrastructureFailure, library: acme, text: ['quota of the team']}");
  const std::string pod =
      "{kind: Pod, metadata: {name: a}, status: {phase: Failed, containerStatuses: [{name: t, state: "
      "{terminated: {exitCode: 1, message: 'ValueError: the quota of the team is used up'}}}]}}";
  EXPECT_THAT(run(run_classify, {"-f", "-"}, pod).out, StartsWith("UserError"));
  const Outcome outcome = run(run_classify, {"-f", "-", "--patterns", own.path(), "--explain"}, pod);
  EXPECT_THAT(outcome.out, StartsWith("InfrastructureFailure"));
  EXPECT_THAT(outcome.out, HasSubstr("the cluster's own pattern \"quota of the team\" of acme"));
  const plimsoll::testing::TemporaryFile wrong("- {rule: proof, outcome: Oom, text: [a]}");
  const Outcome refused = run(run_classify, {"-f", "-", "--patterns", wrong.path()}, pod);
  EXPECT_EQ(refused.code, kExitUsage);
  EXPECT_THAT(refused.err, HasSubstr("pattern 0: outcome must be one of"));
}

TEST(ClassifyCommand, WrongUsageIsExitTwo) {
  EXPECT_EQ(run(run_classify, {}).code, kExitUsage);
  EXPECT_EQ(run(run_classify, {"-f", "/nowhere"}).code, kExitUsage);
  EXPECT_EQ(run(run_classify, {"-f", "-", "--log", "/nowhere"}, kPods).code, kExitUsage);
  EXPECT_EQ(run(run_classify, {"-f", "-", "-o", "xml"}, kPods).code, kExitUsage);
  const Outcome other = run(run_classify, {"-f", "-"}, "{kind: Node, metadata: {name: n}}");
  EXPECT_EQ(other.code, kExitUsage);
  EXPECT_THAT(other.err, HasSubstr("holds a Node, not pods"));
}

}  // namespace
}  // namespace plimsoll::cli
