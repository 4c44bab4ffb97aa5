// Two operators, of which one leads.
#include <gmock/gmock.h>

#include "tests/e2e/training_stage.h"
#include "tests/testing/eventually.h"

namespace plimsoll::testing {
namespace {

using ::testing::IsEmpty;
using namespace std::chrono_literals;

class LeadershipTest : public TrainingTest {
 protected:
  std::unique_ptr<PlimsollProcess> another(const std::string& name) {
    Result<std::unique_ptr<PlimsollProcess>> started =
        PlimsollProcess::start("operator", {}, server_->kubeconfig(), server_->directory(), name);
    EXPECT_TRUE(started.ok()) << to_string(started.error());
    return started ? *std::move(started) : nullptr;
  }

  std::string holder() { return text_member(get("lease", "plimsoll-operator"), {"spec", "holderIdentity"}); }
};

// That it takes at most 20 s is tested with a virtual clock (tests/kube/lease_candidate_test.cc).
TEST_F(LeadershipTest, TheOtherTakesOverAndNoAttemptIsStartedTwice) {
  for (int i = 0; i < 4; ++i) {
    add_node("a100-" + std::to_string(i));
  }
  const std::unique_ptr<PlimsollProcess> first = another("first");
  ASSERT_NE(first, nullptr);
  ASSERT_NO_FATAL_FAILURE(wait_for_gpus(32));
  ASSERT_NO_FATAL_FAILURE(start_webhook());
  const std::string leader = holder();
  ASSERT_FALSE(leader.empty());
  const std::unique_ptr<PlimsollProcess> second = another("second");
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(holder(), leader);

  JobWatch watch(server_->make_client());
  // Some of them are in each state when the leader goes: waiting, running, out of memory, about to grow.
  std::vector<std::string> names;
  const auto create = [&](const std::string& name, const std::string& seconds) {
    names.push_back(name);
    must({"create", "-f", "-"}, TrainingJobManifest{.name = name,
                                                    .annotations = {{"outcome-of-attempt-0", "fail"},
                                                                    {"failure-message", kOutOfMemoryText},
                                                                    {"run-for", seconds}}}
                                    .text());
  };
  create("early", "1s");
  create("late", "6s");
  wait_for("early", [](const Json& job) { return !attempts_of(job).empty(); });
  create("last", "2s");
  first->kill();
  create("orphan", "1s");  // while nobody leads
  EXPECT_TRUE(eventually(
      "another leader", [&] { return holder(); }, ::testing::Ne(leader)))
      << second->log();
  for (const std::string& name : names) {
    const Json job = wait_for_end(name, 180s);
    EXPECT_TRUE(is_true(job, "Succeeded")) << name << story(name) << second->log();
    EXPECT_EQ(attempts_of(job).size(), 2U) << name << story(name);
  }
  EXPECT_THAT(watch.made_twice(), IsEmpty());
  EXPECT_EQ(watch.made().size(), 2 * names.size());
}

}  // namespace
}  // namespace plimsoll::testing
