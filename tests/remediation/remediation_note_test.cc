#include "remediation/remediation_note.h"

#include <gtest/gtest.h>

namespace plimsoll::remediation {
namespace {

crds::Attempt attempt() {
  crds::Attempt attempt;
  attempt.number = 2;
  attempt.outcome = crds::Outcome::kPreempted;
  attempt.start_time = "2026-11-21T08:30:00Z";
  return attempt;
}

Json job(const std::string& uid, const std::string& note = {}) {
  Json job(::Json::objectValue);
  job["metadata"]["uid"] = uid;
  if (!note.empty()) {
    job["metadata"]["annotations"][kRemediationAnnotation] = note;
  }
  return job;
}

std::string note_for(const Json& job) {
  Remediation remediation;
  remediation.restart = true;
  remediation.counts = false;
  remediation.reason = "Preempted";
  remediation.message = "preempted; it waits";
  remediation.delay = std::chrono::seconds(40);
  remediation.shared_memory = 16_GiB;
  const Json patch = with_note(job, remediation, attempt());
  return text_member(patch[patch.size() - 1], {"value"});
}

TEST(RemediationNoteTest, ComesBackForItsJobAndAttempt) {
  const std::optional<Remediation> noted = noted_remediation(job("u", note_for(job("u"))), attempt());
  ASSERT_TRUE(noted.has_value());
  EXPECT_TRUE(noted->restart);
  EXPECT_FALSE(noted->counts);
  EXPECT_EQ(noted->delay, std::chrono::seconds(40));
  EXPECT_EQ(noted->shared_memory, 16_GiB);
  EXPECT_EQ(noted->message, "preempted; it waits");
  EXPECT_TRUE(noted->patch.empty());
}

// Row 6 of the attacks: kubectl get -o yaml takes the annotation into another job.
TEST(RemediationNoteTest, SaysNothingOfAnotherJobOrAttempt) {
  const std::string note = note_for(job("u"));
  EXPECT_FALSE(noted_remediation(job("v", note), attempt()).has_value());
  EXPECT_FALSE(noted_remediation(job("", note), attempt()).has_value());
  crds::Attempt other = attempt();
  other.number = 3;
  EXPECT_FALSE(noted_remediation(job("u", note), other).has_value());
  other = attempt();
  other.start_time = "2026-11-21T09:00:00Z";
  EXPECT_FALSE(noted_remediation(job("u", note), other).has_value());
  other = attempt();
  other.outcome = crds::Outcome::kUserError;
  EXPECT_FALSE(noted_remediation(job("u", note), other).has_value());
}

TEST(RemediationNoteTest, WhatItDoesNotWriteItselfIsIgnored) {
  const Result<Json> good = parse_json(note_for(job("u")));
  ASSERT_TRUE(good.ok());
  const auto with = [&](const char* name, const Json& value) {
    Json changed = *good;
    changed[name] = value;
    return noted_remediation(job("u", write_json(changed)), attempt()).has_value();
  };
  EXPECT_TRUE(with("delaySeconds", 0));
  EXPECT_FALSE(with("delaySeconds", -1));
  EXPECT_FALSE(with("delaySeconds", static_cast<::Json::Int64>(9'223'372'036'854'775'807)));
  EXPECT_FALSE(with("delaySeconds", "40"));
  EXPECT_FALSE(with("counts", "no"));
  EXPECT_FALSE(with("expandableSegments", 1));
  EXPECT_TRUE(with("sharedMemoryBytes", Json())) << "the version before this one gave none";
  for (const Json& wrong : {Json(0), Json(-1), Json("16Gi"), Json(1.5), Json(::Json::objectValue)}) {
    EXPECT_FALSE(with("sharedMemoryBytes", wrong)) << write_json(wrong);
  }
  EXPECT_FALSE(with("reason", "not a reason"));
  EXPECT_FALSE(with("message", std::string(100'000, 'x')));
  EXPECT_FALSE(with("afterAttempt", "2"));
  EXPECT_FALSE(with("jobUID", Json()));
  for (const char* text : {"", "{}", "[]", "null", "\"u\"", "{\"jobUID\":{}}", "{"}) {
    EXPECT_FALSE(noted_remediation(job("u", text), attempt()).has_value()) << text;
  }
  // The version before this one did not name the job.
  EXPECT_FALSE(noted_remediation(job("u", R"({"afterAttempt":2,"counts":true,"expandableSegments":false,)"
                                          R"("delaySeconds":0,"reason":"Preempted","message":"m"})"),
                                 attempt())
                   .has_value());
}

}  // namespace
}  // namespace plimsoll::remediation
