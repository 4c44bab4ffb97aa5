// One id leads from the answer of the webhook to the job, its events, its attempt and the operator's log.
#include <gmock/gmock.h>

#include <algorithm>
#include <sstream>

#include "tests/e2e/main_job.h"
#include "tests/testing/eventually.h"

namespace plimsoll::testing {
namespace {

using ::testing::HasSubstr;

// Those of a log that hold a text.
std::vector<std::string> lines_with(const std::string& log, const std::string& text) {
  std::vector<std::string> found;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(text) != std::string::npos) {
      found.push_back(line);
    }
  }
  return found;
}

std::string request_id_of(const Json& object) {
  return annotation(object, "request-id");
}

class RequestIdTest : public MainJobTest {
 protected:
  void SetUp() override {
    MainJobTest::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) {
      start_plimsoll();
    }
  }

  // The id of the event of this reason about the job; empty while there is none.
  std::string id_of_event(const std::string& reason) const {
    const Result<Json> events = parse_json(must({"get", "events", "-o", "json"}).output);
    for (const Json& event : member(*events, {"items"})) {
      if (text_member(event, {"reason"}) == reason) {
        return request_id_of(event);
      }
    }
    return {};
  }
};

TEST_F(RequestIdTest, OneIdIsInTheLogsTheJobTheEventAndTheAttempt) {
  must({"apply", "-f", "-"}, small_job("ads"));
  const std::string id = request_id_of(job("ads"));
  ASSERT_FALSE(id.empty());

  const std::vector<std::string> of_webhook = lines_with(webhook_->log(), id);
  ASSERT_EQ(of_webhook.size(), 1U) << webhook_->log();
  EXPECT_THAT(of_webhook.front(),
              HasSubstr("Provisioned a job job=\"default/ads\" requestId=\"" + id + "\""));

  EXPECT_TRUE(eventually(
      "the event of the attempt", [&] { return id_of_event("AttemptStarted"); }, id));
  EXPECT_FALSE(lines_with(operator_->log(), "requestId=\"" + id + "\"").empty()) << operator_->log();

  EXPECT_TRUE(eventually(
      "the attempt", [&] { return request_id_of(get("jobs.batch", "ads-0")); }, id));
  EXPECT_EQ(request_id_of(get("configmap", "ads-0-plan")), id);
  EXPECT_EQ(request_id_of(get("service", "ads-0")), id);
  EXPECT_EQ(request_id_of(get("jobs.batch", "ads-0")["spec"]["template"]), id) << "of the pods";
}

TEST_F(RequestIdTest, StaysUntilTheDecisionChanges) {
  std::string manifest = small_job("ads");
  manifest.replace(manifest.find("spec:\n"), 6, "spec:\n  suspend: true\n");  // its training may change
  must({"apply", "-f", "-"}, manifest);
  const std::string id = request_id_of(job("ads"));
  must({"apply", "-f", "-"}, manifest);
  EXPECT_EQ(request_id_of(job("ads")), id);
  // Twice, or more: the API server calls it again where the operator has written the status meanwhile.
  EXPECT_GE(lines_with(webhook_->log(), "Provisioned a job job=\"default/ads\"").size(), 2U)
      << webhook_->log();

  const std::string batch = "batchSizePerTrainer: 1024";
  manifest.replace(manifest.find(batch), batch.size(), "batchSizePerTrainer: 2048");
  must({"apply", "-f", "-"}, manifest);
  EXPECT_NE(request_id_of(job("ads")), id);
  EXPECT_EQ(lines_with(webhook_->log(), request_id_of(job("ads"))).size(), 1U) << webhook_->log();
}

}  // namespace
}  // namespace plimsoll::testing
