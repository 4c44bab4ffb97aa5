#include "operator/metrics_access.h"

#include <gmock/gmock.h>

#include <thread>
#include <vector>

#include "tests/kube/virtual_clock.h"
#include "tests/operator/review_client.h"
#include "tests/testing/eventually.h"

namespace plimsoll::process {
namespace {

using namespace std::chrono_literals;
using testing::eventually;
using ::testing::HasSubstr;

class MetricsAccessTest : public ::testing::Test {
 protected:
  MetricsAccessTest() { options_.clock = &clock_; }
  ~MetricsAccessTest() override { client_.answers.open(); }

  MetricsAccess& access() {
    if (!access_) {
      access_.emplace(client_, options_);
    }
    return *access_;
  }
  // The status of the answer; 200 where the request may be answered.
  int status_for(const std::string& authorization, const std::stop_token& stop = {}) {
    http::Request request;
    request.authorization = authorization;
    request.stop = stop;
    const std::optional<http::Response> refusal = access().refusal_of(request);
    return refusal ? refusal->status : 200;
  }

  testing::VirtualClock clock_;
  testing::ReviewClient client_;
  MetricsAccessOptions options_;
  std::optional<MetricsAccess> access_;
};

TEST_F(MetricsAccessTest, ReadersGetInAndOthersLearnWhyNot) {
  EXPECT_EQ(status_for("Bearer reader"), 200);
  EXPECT_EQ(status_for("bearer  reader"), 200) << "RFC 9110, 11.1: the scheme's case does not matter";
  EXPECT_EQ(status_for("Bearer other"), 403);
  EXPECT_EQ(status_for("Bearer nobody"), 401);
}

TEST_F(MetricsAccessTest, WhatIsNoTokenIsRefusedUnasked) {
  for (const std::string& header : std::vector<std::string>{
           "", "Bearer", "Bearer ", "reader", "Basic reader", "Bearerreader", "Bearer reader reader",
           "Bearer reader, Bearer reader", "Bearer rea\"der", "Bearer =", "Bearer rea=der",
           "Bearer l\xc3\xa9", "\tBearer reader", "Bearer " + std::string((8 << 10) + 1, 'a')}) {
    EXPECT_EQ(status_for(header), 401) << header.substr(0, 64);
  }
  EXPECT_EQ(client_.reviews(), 0);
  EXPECT_EQ(status_for("Bearer " + std::string(8 << 10, 'a')), 401);
  EXPECT_EQ(status_for("Bearer reader-._~+/=="), 200) << "all characters of RFC 6750";
}

TEST_F(MetricsAccessTest, DecisionsAreKeptForAWhile) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(status_for("Bearer reader"), 200);
    EXPECT_EQ(status_for("Bearer other"), 403);
    EXPECT_EQ(status_for("Bearer nobody"), 401);
  }
  EXPECT_EQ(client_.reviews(), 5) << "the token of nobody needs no second review";
  clock_.pass(options_.keep_refused);
  EXPECT_EQ(status_for("Bearer reader"), 200);
  EXPECT_EQ(client_.reviews(), 5);
  EXPECT_EQ(status_for("Bearer other"), 403);
  EXPECT_EQ(status_for("Bearer nobody"), 401);
  EXPECT_EQ(client_.reviews(), 8);
  clock_.pass(options_.keep_admitted - options_.keep_refused);
  EXPECT_EQ(status_for("Bearer reader"), 200);
  EXPECT_EQ(client_.reviews(), 10);
}

TEST_F(MetricsAccessTest, AFailureIsA503AndNotKept) {
  for (const ErrorCode code : {ErrorCode::kTimeout, ErrorCode::kUnavailable, ErrorCode::kForbidden}) {
    client_.fail_with(Error(code, "on purpose"));
    EXPECT_EQ(status_for("Bearer reader"), 503);
  }
  client_.fail_with(std::nullopt);
  EXPECT_EQ(status_for("Bearer reader"), 200);
  client_.fail_with(Error(ErrorCode::kTimeout, "on purpose"));
  EXPECT_EQ(status_for("Bearer reader"), 200) << "kept";
  clock_.pass(options_.keep_admitted);
  EXPECT_EQ(status_for("Bearer reader"), 503);
}

TEST_F(MetricsAccessTest, NeitherLogsTokensNorRepeatsAFailure) {
  ::testing::internal::CaptureStderr();
  client_.fail_with(Error(ErrorCode::kForbidden, "may not create tokenreviews"));
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(status_for("Bearer reader-" + std::to_string(i)), 503);
  }
  client_.fail_with(std::nullopt);
  EXPECT_EQ(status_for("Bearer reader-6"), 200);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("TokenReview: may not create tokenreviews"));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 2) << log;
  EXPECT_EQ(log.find("reader"), std::string::npos) << log;
}

TEST_F(MetricsAccessTest, UnknownTokensAreLimitedAndKnownOnesAreNot) {
  options_.review_burst = 3;
  EXPECT_EQ(status_for("Bearer reader"), 200);
  EXPECT_EQ(status_for("Bearer a"), 401);
  EXPECT_EQ(status_for("Bearer b"), 401);
  EXPECT_EQ(status_for("Bearer c"), 429);
  EXPECT_EQ(client_.reviews(), 4);
  EXPECT_EQ(status_for("Bearer a"), 401) << "kept";
  // Meanwhile tokens that nobody knows take every turn: the reader's is asked about all the same.
  clock_.pass(options_.keep_admitted);
  int refused = 0;
  for (int i = 0; i < 10; ++i) {
    refused += status_for("Bearer d" + std::to_string(i)) == 429 ? 1 : 0;
  }
  EXPECT_EQ(refused, 7);
  EXPECT_EQ(status_for("Bearer reader"), 200);
}

TEST_F(MetricsAccessTest, MadeUpTokensDisplaceNoReader) {
  options_.most_admitted = 2;
  options_.most_refused = 2;
  options_.review_burst = 1000;
  EXPECT_EQ(status_for("Bearer reader-1"), 200);
  EXPECT_EQ(status_for("Bearer reader-2"), 200);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(status_for("Bearer nobody-" + std::to_string(i)), 401);
  }
  const int before = client_.reviews();
  EXPECT_EQ(status_for("Bearer reader-1"), 200);
  EXPECT_EQ(status_for("Bearer reader-2"), 200);
  EXPECT_EQ(client_.reviews(), before);
  EXPECT_EQ(status_for("Bearer nobody-0"), 401);
  EXPECT_EQ(client_.reviews(), before + 1) << "forgotten";
}

TEST_F(MetricsAccessTest, FewReviewsAreMadeAtTheSameTime) {
  EXPECT_EQ(status_for("Bearer reader"), 200);
  std::vector<std::jthread> waiting;
  for (int i = 0; i < options_.most_reviews; ++i) {
    waiting.emplace_back([this, i] { EXPECT_EQ(status_for("Bearer mute-" + std::to_string(i)), 401); });
  }
  EXPECT_TRUE(eventually(
      "all reviews wait", [&] { return client_.waiting(); }, options_.most_reviews));
  EXPECT_EQ(status_for("Bearer nobody"), 429);
  EXPECT_EQ(status_for("Bearer reader"), 200);
  client_.answers.open();
  waiting.clear();
  EXPECT_EQ(status_for("Bearer nobody"), 401);
}

TEST_F(MetricsAccessTest, StoppingEndsAReview) {
  std::stop_source stop;
  stop.request_stop();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(status_for("Bearer reader", stop.get_token()), 503);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace plimsoll::process
