#include "kube/api_error.h"

#include <gtest/gtest.h>

namespace plimsoll::kube {
namespace {

TEST(ErrorOfResponse, MapsEveryStatusThatTheApiServerSends) {
  const std::pair<int, ErrorCode> kExpected[] = {
      {400, ErrorCode::kInvalid},         {401, ErrorCode::kUnauthorized}, {403, ErrorCode::kForbidden},
      {404, ErrorCode::kNotFound},        {405, ErrorCode::kUnsupported},  {406, ErrorCode::kUnsupported},
      {408, ErrorCode::kTimeout},         {409, ErrorCode::kConflict},     {410, ErrorCode::kExpired},
      {413, ErrorCode::kTooLarge},        {415, ErrorCode::kUnsupported},  {422, ErrorCode::kInvalid},
      {429, ErrorCode::kTooManyRequests}, {500, ErrorCode::kUnavailable},  {502, ErrorCode::kUnavailable},
      {503, ErrorCode::kUnavailable},     {504, ErrorCode::kTimeout},      {302, ErrorCode::kInternal},
      {418, ErrorCode::kInvalid},
  };
  for (const auto& [status, code] : kExpected) {
    EXPECT_EQ(error_of_response(status, "").code, code) << status;
    EXPECT_FALSE(error_of_response(status, "").message.empty()) << status;
  }
}

TEST(ErrorOfResponse, TellsConflictFromAlreadyExistsByTheReason) {
  const Error error = error_of_response(
      409, R"({"kind":"Status","reason":"AlreadyExists","message":"pods \"a\" already exists","code":409})");
  EXPECT_EQ(error.code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(error.message, "pods \"a\" already exists");
}

TEST(ErrorOfResponse, TakesRetryAfterFromTheHeaderAndTheDetails) {
  EXPECT_EQ(error_of_response(429, "busy", "7").retry_after, std::chrono::seconds(7));
  EXPECT_EQ(error_of_response(504, R"({"kind":"Status","message":"m","details":{"retryAfterSeconds":3}})")
                .retry_after,
            std::chrono::seconds(3));
  EXPECT_EQ(error_of_response(503, "", "Wed, 21 Oct 2026 07:28:00 GMT").retry_after.count(), 0);
}

TEST(ErrorOfResponse, QuotesOneLineOfWhatIsNoStatus) {
  const Error error = error_of_response(502, "<html>\nBad gateway");
  EXPECT_EQ(error.code, ErrorCode::kUnavailable);
  EXPECT_EQ(error.message, "the server answered 502: <html>");
  EXPECT_LT(error_of_response(500, std::string(100'000, 'x')).message.size(), 500U);
}

TEST(ErrorOfStatus, SurvivesNonsense) {
  for (const char* text :
       {"{}", "[]", "null", "3", R"({"code":"410"})", R"({"message":5,"reason":[]})", R"({"details":"x"})",
        R"({"details":{"retryAfterSeconds":-5}})", R"({"details":{"retryAfterSeconds":99999999999}})"}) {
    const Error error = error_of_status(*parse_json(text));
    EXPECT_FALSE(error.message.empty()) << text;
    EXPECT_EQ(error.retry_after.count(), 0) << text;
  }
}

TEST(ErrorOfStatus, KnowsExpiredByReasonToo) {
  EXPECT_EQ(
      error_of_status(*parse_json(R"({"kind":"Status","reason":"Expired","code":410,"message":"old"})")).code,
      ErrorCode::kExpired);
  EXPECT_EQ(error_of_status(*parse_json(R"({"kind":"Status","reason":"Gone","message":"old"})")).code,
            ErrorCode::kExpired);
}

TEST(ParseRetryAfter, TakesSecondsOnlyAndCapsThem) {
  EXPECT_EQ(parse_retry_after("0"), std::chrono::seconds(0));
  EXPECT_EQ(parse_retry_after("15"), std::chrono::seconds(15));
  EXPECT_EQ(parse_retry_after("999999999"), std::chrono::seconds(3600));
  for (const char* text : {"", "-1", "1.5", " 1", "1s", "99999999999999999999"}) {
    EXPECT_EQ(parse_retry_after(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace plimsoll::kube
