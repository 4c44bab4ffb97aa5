// The mode of jobs that name none, from the label of their namespace to their size, with real kubectl.
#include <gmock/gmock.h>

#include "tests/checkout.h"
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

// The block of a page's YAML that has this text.
std::string block_of(const std::string& page, const std::string& text) {
  const std::string contents = read_file(std::string(PLIMSOLL_SOURCE_DIR "/docs/") + page);
  const std::string fence = "```yaml\n";
  for (std::size_t begin = contents.find(fence); begin != std::string::npos;) {
    begin += fence.size();
    const std::size_t end = contents.find("\n```", begin);
    if (const std::string block = contents.substr(begin, end - begin);
        block.find(text) != std::string::npos) {
      return block + "\n";
    }
    begin = contents.find(fence, end);
  }
  return "";
}

// docs/adoption.md, Enforce.
TEST_F(PolicyTest, UsersCannotLeaveWhereSizingIsEnforced) {
  if (kind_under_test() != ApiServerKind::kReal) {
    GTEST_SKIP() << "the fake API server evaluates no policies";
  }
  const std::string off = "  provisioning: {mode: \"Off\"}\n";
  const auto create = [this](const std::string& object, bool dry_run = false) {
    return dry_run ? kubectl({"create", "--dry-run=server", "-f", "-"}, object)
                   : kubectl({"create", "-f", "-"}, object);
  };
  const auto disabled = [](std::string object) {
    return object.replace(object.find("metadata:\n"), 10,
                          "metadata:\n  annotations: {plimsoll.dev/provisioning: disabled}\n");
  };
  must({"apply", "-f", "-"}, small_job("earlier", 16, off));
  must({"apply", "-f", "-"}, disabled(small_job("untouched")));
  must({"apply", "-f", "-"}, small_job("sized"));
  must({"apply", "-f", "-"}, block_of("adoption.md", "name: plimsoll-enforced"));
  ASSERT_TRUE(eventually(
      "the policy is enforced", [&] { return create(small_job("probe", 16, off), true).errors; },
      HasSubstr("GPU sizing is enforced in this namespace: leave spec.provisioning.mode out")));

  EXPECT_NE(create(small_job("leaving", 16, off)).exit_code, 0);
  const CommandResult annotated = create(disabled(small_job("leaving")));
  EXPECT_NE(annotated.exit_code, 0);
  EXPECT_THAT(annotated.errors, HasSubstr("remove the annotation plimsoll.dev/provisioning"));
  for (const char* patch : {R"({"spec": {"provisioning": {"mode": "Off"}}})",
                            R"({"metadata": {"annotations": {"plimsoll.dev/provisioning": "disabled"}}})"}) {
    EXPECT_NE(kubectl({"patch", "tj", "sized", "--type=merge", "-p", patch}).exit_code, 0) << patch;
  }
  must({"create", "-f", "-"}, small_job("without-mode"));
  EXPECT_EQ(replicas_of(job("without-mode")), 1);
  must({"create", "-f", "-"}, small_job("initial", 16, "  provisioning: {mode: Initial}\n"));
  must({"create", "-f", "-"}, small_job("other-field", 16, "  provisioning: {minTrainers: 1}\n"));
  for (const char* name : {"earlier", "untouched"}) {  // they go on, and can be deleted
    must({"label", "tj", name, "kept=true"});
    must({"delete", "tj", name});
  }

  label("Off");
  ASSERT_TRUE(gets_mode("Off")) << "a job without a mode is admitted as advice";
  ASSERT_TRUE(eventually(
      "jobs may say so, too", [&] { return create(small_job("said", 16, off), true).exit_code; }, 0));
  must({"create", "-f", "-"}, small_job("advised"));
  EXPECT_EQ(replicas_of(job("advised")), 16);
  label("Auto");
  ASSERT_TRUE(eventually(
      "the namespace is enforced again", [&] { return create(small_job("probe", 16, off), true).exit_code; },
      ::testing::Ne(0)));
  must({"label", "tj", "advised", "kept=true"});
}

}  // namespace
}  // namespace plimsoll::testing
