// A leader that is stopped (SIGSTOP, as by a paused virtual machine) for longer than its lease, and goes on
// when another leads.
#include <gmock/gmock.h>

#include <csignal>
#include <random>
#include <thread>

#include "tests/e2e/training_stage.h"
#include "tests/testing/eventually.h"
#include "tests/testing/random_seed.h"

namespace plimsoll::testing {
namespace {

using ::testing::IsEmpty;
using namespace std::chrono_literals;

class StoppedLeaderTest : public TrainingTest {
 protected:
  std::unique_ptr<PlimsollProcess> launch(const std::string& name) {
    Result<std::unique_ptr<PlimsollProcess>> started =
        PlimsollProcess::start("operator",
                               {"--leader-elect-lease-duration=10s", "--leader-elect-renew-deadline=8s",
                                "--leader-elect-retry-period=1s"},
                               server_->kubeconfig(), server_->directory(), name);
    EXPECT_TRUE(started.ok()) << to_string(started.error());
    return started ? *std::move(started) : nullptr;
  }

  std::string holder() { return text_member(get("lease", "plimsoll-operator"), {"spec", "holderIdentity"}); }
};

TEST_F(StoppedLeaderTest, WhoGoesOnAfterItsLeaseEndsAndDoublesNothing) {
  const std::uint64_t seed = plimsoll::testing::random_seed();
  std::cout << "seed " << seed << std::endl;
  std::mt19937_64 random(seed);
  for (int i = 0; i < 4; ++i) {
    add_node("a100-" + std::to_string(i));
  }
  std::unique_ptr<PlimsollProcess> leader = launch("operator-0");
  ASSERT_NE(leader, nullptr);
  ASSERT_NO_FATAL_FAILURE(wait_for_gpus(32));
  ASSERT_NO_FATAL_FAILURE(start_webhook());
  JobWatch jobs(server_->make_client());
  PodWatch pods(server_->make_client());
  std::vector<std::string> names;
  for (int round = 1; round <= 3; ++round) {
    std::unique_ptr<PlimsollProcess> next = launch("operator-" + std::to_string(round));
    ASSERT_NE(next, nullptr);
    const std::string first_holder = holder();
    names.push_back("job-" + std::to_string(round));
    must({"create", "-f", "-"}, TrainingJobManifest{.name = names.back(),
                                                    .annotations = {{"outcome-of-attempt-0", "fail"},
                                                                    {"failure-message", kOutOfMemoryText},
                                                                    {"run-for", "500ms"}}}
                                    .text());
    // In the midst of whatever it does about the job.
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 1500));
    leader->send_signal(SIGSTOP);
    EXPECT_TRUE(eventually(
        "another leader", [&] { return holder(); }, ::testing::Ne(first_holder)))
        << next->log();
    const Json job = wait_for_end(names.back(), 90s);
    EXPECT_TRUE(is_true(job, "Succeeded")) << story(names.back()) << next->log();
    leader->send_signal(SIGCONT);
    EXPECT_TRUE(eventually("the old leader ends", [&] { return !leader->running(); })) << leader->log();
    leader = std::move(next);
  }
  for (const std::string& name : names) {
    const Json job = live(name);
    EXPECT_EQ(attempts_of(job).size(), 2U) << "seed " << seed << story(name);
    EXPECT_TRUE(is_true(job, "Succeeded")) << "seed " << seed << story(name);
  }
  EXPECT_THAT(jobs.made_twice(), IsEmpty()) << "seed " << seed;
  EXPECT_THAT(pods.overlaps(), IsEmpty()) << "seed " << seed;
  EXPECT_EQ(jobs.made().size(), 2 * names.size());
}

}  // namespace
}  // namespace plimsoll::testing
