#include "webhook/admission_review.h"

#include <gtest/gtest.h>

#include "base/utf8.h"
#include "tests/webhook/samples.h"

namespace plimsoll::webhook {
namespace {

using testing::response_of;
using testing::sample_job;
using testing::sample_review;

TEST(DecodeReview, ReadsWhatTheApiServerSends) {
  Json json = sample_review(sample_job(), "UPDATE", "705ab4f5-6393-11e8-b7cc-42010a800002");
  json["request"]["oldObject"] = sample_job("before");
  json["request"]["dryRun"] = true;
  json["request"]["subResource"] = "status";
  json["request"]["options"]["kind"] = "UpdateOptions";  // what we do not know is no mistake
  const Decoded decoded = decode_review(write_json(json));
  ASSERT_FALSE(decoded.error.has_value()) << decoded.error->message;
  const AdmissionRequest& request = decoded.request;
  EXPECT_EQ(request.uid, "705ab4f5-6393-11e8-b7cc-42010a800002");
  EXPECT_EQ(request.group, "plimsoll.dev");
  EXPECT_EQ(request.version, "v1alpha1");
  EXPECT_EQ(request.kind, "TrainingJob");
  EXPECT_EQ(request.sub_resource, "status");
  EXPECT_EQ(request.namespace_name, "ads");
  EXPECT_EQ(request.name, "ads-ctr");
  EXPECT_EQ(request.operation, Operation::kUpdate);
  EXPECT_TRUE(request.dry_run);
  EXPECT_EQ(tree_of(request.object), sample_job());
  EXPECT_EQ(tree_of(request.old_object), sample_job("before"));
}

TEST(DecodeReview, MembersMayBeAbsentOrNull) {
  const Decoded decoded = decode_review(
      R"({"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","kind":{"version":"v1","kind":"Pod"},
          "operation":"DELETE","object":null,"dryRun":null,"namespace":null}})");
  ASSERT_FALSE(decoded.error.has_value()) << decoded.error->message;
  EXPECT_EQ(decoded.request.group, "");
  EXPECT_TRUE(decoded.request.object.is_null());
  EXPECT_TRUE(decoded.request.old_object.is_null());
  EXPECT_FALSE(decoded.request.dry_run);
}

TEST(DecodeReview, SalvagesTheUidOfWhatIsNoJson) {
  const auto uid_of = [](const std::string& body) { return decode_review(body).error->uid; };
  EXPECT_EQ(uid_of(R"({"request" : {"uid" : "ab-12", "kind)"), "ab-12");
  EXPECT_EQ(uid_of(R"({"uid":"outside","request":{"x":1)"), "");
  EXPECT_EQ(uid_of(R"({"request":{"uid":"no good")"), "");
  EXPECT_EQ(uid_of(R"({"request":{"uid":"ab-12)"), "");
  EXPECT_EQ(uid_of(R"({"request":{"uid":)"), "");
  EXPECT_EQ(uid_of(R"({"request":{"uid")"), "");
  EXPECT_EQ(uid_of(R"({"request":{"uid":")" + std::string(300, 'a') + "\""), "");
}

TEST(DecodeReview, RefusesOneThatIsTooLarge) {
  const std::string body = R"({"request":{"uid":"abc"},"x":")" + std::string(kReviewLimit, 'x') + "\"}";
  const Decoded decoded = decode_review(body);
  ASSERT_TRUE(decoded.error.has_value());
  EXPECT_EQ(decoded.error->http_status, 413);
  EXPECT_EQ(decoded.error->uid, "abc");
}

TEST(DecodeReview, TellsAUserOfV1Beta1WhatToDo) {
  Json json = sample_review(sample_job());
  json["apiVersion"] = "admission.k8s.io/v1beta1";
  const Decoded decoded = decode_review(write_json(json));
  ASSERT_TRUE(decoded.error.has_value());
  EXPECT_NE(decoded.error->message.find("admissionReviewVersions"), std::string::npos);
}

TEST(EncodeAnswer, PatchAndPatchTypeGoTogether) {
  AdmissionAnswer answer;
  EXPECT_FALSE(response_of(encode_answer("1", answer), "1").isMember("patch"));
  answer.patch = Json(::Json::arrayValue);
  EXPECT_FALSE(response_of(encode_answer("1", answer), "1").isMember("patch"));
  Json operation;
  operation["op"] = "add";
  operation["path"] = "/metadata/annotations/a~1b";
  operation["value"] = "\xE2\x82\xAC";
  answer.patch.append(operation);
  const Json response = response_of(encode_answer("1", answer), "1");
  EXPECT_EQ(testing::patch_of(response), answer.patch);
}

TEST(EncodeAnswer, ARefusalHasAStatusAndNoPatch) {
  AdmissionAnswer answer;
  answer.allowed = false;
  answer.code = 422;
  answer.reason = "Invalid";
  answer.message = "line one\nline two" + std::string(10'000, 'x');
  answer.patch.append("must not be sent");
  for (int i = 0; i < 100; ++i) {
    answer.causes.push_back({"spec.field" + std::to_string(i), std::string(1'000, 'm')});
  }
  const Json response = response_of(encode_answer("1", answer), "1");
  EXPECT_FALSE(response["allowed"].asBool());
  EXPECT_EQ(response["status"]["code"].asInt(), 422);
  EXPECT_EQ(response["status"]["reason"].asString(), "Invalid");
  EXPECT_EQ(response["status"]["message"].asString().size(), kMessageLimit);
  EXPECT_EQ(response["status"]["message"].asString().find('\n'), std::string::npos);
  EXPECT_EQ(response["status"]["details"]["causes"].size(), kCauseLimit);
  EXPECT_FALSE(response.isMember("patch"));
}

TEST(EncodeAnswer, WarningsStayWithinTheApiServersLimits) {
  AdmissionAnswer answer;
  answer.warnings.push_back("");
  answer.warnings.push_back("with\r\nlines and \xFF");
  for (int i = 0; i < 100; ++i) {
    answer.warnings.push_back(std::string(300, 'w') + "\xE2\x82\xAC");
  }
  const Json response = response_of(encode_answer("1", answer), "1");
  std::size_t all = 0;
  for (const Json& warning : response["warnings"]) {
    EXPECT_FALSE(warning.asString().empty());
    EXPECT_LE(warning.asString().size(), kWarningLimit);
    EXPECT_TRUE(is_utf8(warning.asString()));
    all += warning.asString().size();
  }
  EXPECT_LE(all, kAllWarningsLimit);
  EXPECT_EQ(response["warnings"][0].asString(), "with  lines and ?");
}

}  // namespace
}  // namespace plimsoll::webhook
