// The mode of jobs that name none, from the label of their namespace to their size, with real kubectl.
#include <gmock/gmock.h>

#include "tests/e2e/main_job.h"
#include "tests/testing/eventually.h"

namespace plimsoll::testing {
namespace {

using ::testing::HasSubstr;

class PolicyTest : public MainJobTest {
 protected:
  void SetUp() override {
    MainJobTest::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) {
      start_plimsoll();
    }
  }

  void label(const std::string& mode) {
    must({"label", "namespace", "default", "--overwrite", "plimsoll.dev/mode=" + mode});
  }

  // Once the API server has learned of the label, which is a watch of its own.
  ::testing::AssertionResult gets_mode(const std::string& mode) {
    return eventually(
        "the mode of jobs that name none",
        [&] {
          const CommandResult shown =
              kubectl({"create", "--dry-run=server", "-o", "json", "-f", "-"}, small_job("probe"));
          const Result<Json> job = parse_json(shown.output);
          return job ? text_member(*job, {"spec", "provisioning", "mode"}) : std::string();
        },
        mode);
  }
};

TEST_F(PolicyTest, TheNamespacesLabelIsTheModeOfJobsThatNameNone) {
  ASSERT_TRUE(gets_mode("Auto"));
  label("Off");
  ASSERT_TRUE(gets_mode("Off"));
  must({"apply", "-f", "-"}, small_job("advised"));
  EXPECT_EQ(replicas_of(job("advised")), 16);
  EXPECT_FALSE(annotation(job("advised"), "provisioning-reason").empty());
  EXPECT_TRUE(eventually(
      "the event with the advice",
      [&] {
        return must({"get", "events", "-o", "jsonpath={.items[*].reason}"}).output;
      },
      HasSubstr("Recommended")));
  must({"apply", "-f", "-"}, small_job("sized", 16, "  provisioning: {mode: Auto}\n"));
  EXPECT_EQ(replicas_of(job("sized")), 1) << "the job's own mode comes first";

  label("Initial");
  ASSERT_TRUE(gets_mode("Initial"));
  must({"apply", "-f", "-"}, small_job("advised"));
  EXPECT_EQ(replicas_of(job("advised")), 16) << "its mode was written when it was created";
  must({"apply", "-f", "-"}, small_job("new"));
  EXPECT_EQ(replicas_of(job("new")), 1);
  label("sometimes");
  ASSERT_TRUE(gets_mode("Auto"));
}

}  // namespace
}  // namespace plimsoll::testing
