// Plimsoll down, or gone: what happens to the jobs.
#include <gmock/gmock.h>

#include <chrono>

#include "tests/e2e/main_job.h"
#include "tests/testing/eventually.h"

namespace plimsoll::testing {
namespace {

using ::testing::HasSubstr;

using OutageTest = MainJobTest;

TEST_F(OutageTest, WithoutAWebhookJobsAreAdmittedUnsizedAndTheOperatorSizesThem) {
  start_plimsoll();
  EXPECT_EQ(webhook_->stop(), 0) << webhook_->log();
  EXPECT_EQ(operator_->stop(), 0) << operator_->log();
  must({"apply", "-f", "-"}, small_job("ads"));
  EXPECT_EQ(replicas_of(job("ads")), 16);
  EXPECT_TRUE(decision_of(job("ads")).isNull());
  start_operator();
  EXPECT_TRUE(eventually(
      "the operator sizes the job", [&] { return replicas_of(job("ads")); }, 1))
      << operator_->log();
  EXPECT_EQ(decision_of(job("ads"))["trainers"].asInt(), 1);
}

TEST_F(OutageTest, AnotherWebhookSizesTheJobWhenItsInputsChange) {
  start_plimsoll();
  webhook_->stop();
  operator_->stop();
  must({"apply", "-f", "-"}, small_job("ads"));
  start_webhook();
  // The user's edit of what a decision rests on; an edit of anything else decides nothing.
  must({"label", "trainingjob", "ads", "team=ranking"});
  EXPECT_EQ(replicas_of(job("ads")), 16);
  must({"apply", "-f", "-"}, small_job("ads", 16, "  provisioning: {maxTrainers: 64}\n"));
  EXPECT_EQ(replicas_of(job("ads")), 1);
}

TEST_F(OutageTest, WithNoGpuInTheClusterTheJobKeepsItsValues) {
  start_operator();
  start_webhook();
  const CommandResult applied = must({"apply", "-f", "-"}, small_job("ads"));
  EXPECT_THAT(applied.errors, HasSubstr("the job keeps its"));
  EXPECT_EQ(replicas_of(job("ads")), 16);
}

TEST_F(OutageTest, ServersEndWellOnRequest) {
  start_plimsoll();
  EXPECT_EQ(webhook_->stop(), 0) << webhook_->log();
  EXPECT_EQ(operator_->stop(), 0) << operator_->log();
}

}  // namespace
}  // namespace plimsoll::testing
