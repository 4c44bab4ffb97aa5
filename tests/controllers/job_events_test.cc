#include "controllers/job_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "tests/kube/partial_client.h"
#include "tests/testing/patience.h"

namespace plimsoll::controllers {
namespace {

constexpr const char* kId = "plimsoll.dev/request-id";

class EventClient final : public testing::PartialClient {
 public:
  Result<Json> create(const kube::Resource&, const std::string&, const Json& object,
                      const kube::CallOptions&) override {
    event = object;
    return object;
  }

  Json event;
};

class JobEvents : public ::testing::Test {
 protected:
  JobEvents() { configure_log(LogLevel::kInfo, LogFormat::kJson); }
  ~JobEvents() override { configure_log(LogLevel::kInfo, LogFormat::kText); }

  static Json job(const std::string& request_id) {
    Json object;
    object["metadata"]["namespace"] = "ml";
    object["metadata"]["name"] = "ads";
    if (!request_id.empty()) {
      object["metadata"]["annotations"][kId] = request_id;
    }
    return object;
  }
  // What is written, and the line of the log.
  Json recorded(const Json& job, kube::EventType type, const std::string& message) {
    EventClient client;
    kube::EventRecorder events(client, {.component = "plimsoll", .instance = "p"});
    events.start();
    say(&events, job, type, message);
    events.stop(testing::kPatience);
    return client.event;
  }
  void say(kube::EventRecorder* events, const Json& job, kube::EventType type, const std::string& message) {
    ::testing::internal::CaptureStderr();
    record_event(events, job, type, "Resized", message);
    const std::string line = ::testing::internal::GetCapturedStderr();
    const Result<Json> record = parse_json(line);
    ASSERT_TRUE(record.ok()) << line;
    line_ = *record;
  }

  Json line_;
};

TEST_F(JobEvents, EventAndLogCarryTheRequestId) {
  const Json event = recorded(job("r-1"), kube::EventType::kNormal, "to 64");
  EXPECT_EQ(event["metadata"]["annotations"][kId].asString(), "r-1");
  EXPECT_EQ(event["reason"].asString(), "Resized");
  EXPECT_EQ(event["involvedObject"]["name"].asString(), "ads");
  EXPECT_EQ(line_["level"], "info");
  EXPECT_EQ(line_["job"], "ml/ads");
  EXPECT_EQ(line_["requestId"], "r-1");
  EXPECT_EQ(line_["event"], "Resized");
  EXPECT_EQ(line_["message"], "to 64");
}

TEST_F(JobEvents, AJobThatNoWebhookSizedHasNone) {
  const Json event = recorded(job(""), kube::EventType::kWarning, "to 64");
  EXPECT_TRUE(event["metadata"]["annotations"].isNull());
  EXPECT_EQ(line_["level"], "warning");
  EXPECT_EQ(line_["requestId"], "");
}

TEST_F(JobEvents, WithoutARecorderThereIsTheLog) {
  say(nullptr, job("r-1"), kube::EventType::kNormal, std::string(5000, 'x'));
  EXPECT_EQ(line_["requestId"], "r-1");
  EXPECT_LE(line_["message"].asString().size(), 1024U);
}

}  // namespace
}  // namespace plimsoll::controllers
