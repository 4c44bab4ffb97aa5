// A job that is created anew from its own YAML (row 6 of the attacks: the first one's remediation was
// applied).
#include <gmock/gmock.h>

#include "tests/e2e/training_stage.h"

namespace plimsoll::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using namespace std::chrono_literals;

class RecreatedJobTest : public TrainingTest {};

TEST_F(RecreatedJobTest, IgnoresTheRemediationOfTheFirst) {
  for (int i = 0; i < 2; ++i) {
    add_node("a100-" + std::to_string(i));
  }
  ASSERT_NO_FATAL_FAILURE(start_operator());
  ASSERT_NO_FATAL_FAILURE(wait_for_gpus(16));
  ASSERT_NO_FATAL_FAILURE(start_webhook());
  must({"create", "-f", "-"}, TrainingJobManifest{.annotations = {{"outcome", "run"}}}.text());
  Json job = wait_for("ads", [](const Json& now) { return is_true(now, "Running"); });
  ASSERT_TRUE(is_true(job, "Running")) << story("ads");
  evict(text_member(pods_of("ads-0").at(0), {"metadata", "name"}));
  job = wait_for("ads", [](const Json& now) { return attempts_of(now).size() == 2; });
  ASSERT_THAT(annotation(job, "remediation"), HasSubstr("Preempted")) << story("ads");
  const std::int64_t trainers = attempts_of(job)[0]["trainers"].asInt64();

  Json copy = get("tj", "ads");
  Json& annotations = copy["spec"]["template"]["metadata"]["annotations"];
  annotations["test.plimsoll.dev/outcome"] = "fail";
  annotations["test.plimsoll.dev/message"] = "ModuleNotFoundError: No module named 'ads'";
  annotations["test.plimsoll.dev/run-for"] = "1s";
  must({"replace", "--force", "-f", "-"}, write_json(copy));
  const Json again = wait_for_end("ads");
  EXPECT_NE(text_member(again, {"metadata", "uid"}), text_member(job, {"metadata", "uid"}));
  EXPECT_THAT(outcomes_of(again), ElementsAre("UserError")) << story("ads");
  EXPECT_THAT(why(again, "Failed"), StartsWith("CodeError: "));
  // What was requested stays what it was.
  EXPECT_EQ(member(again, {"status", "requested", "trainers"}).asInt64(), 16) << write_json_pretty(again);
  EXPECT_EQ(attempts_of(again)[0]["trainers"].asInt64(), trainers);
}

}  // namespace
}  // namespace plimsoll::testing
