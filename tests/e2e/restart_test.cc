// The API server dies (SIGKILL) while a job is resized: between the change of the spec and the status, and
// among the creations of the children.
#include <gmock/gmock.h>

#include "tests/e2e/training_stage.h"
#include "tests/testing/eventually.h"

namespace plimsoll::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

class RestartTest : public TrainingTest {
 protected:
  bool there(const char* plural, const std::string& name) {
    return client_->get({.group = "", .version = "v1", .plural = plural}, "default", name).ok();
  }
};

TEST_F(RestartTest, AJobThatIsResizedWhileTheApiServerDiesIsNeitherLostNorDoubled) {
  for (int i = 0; i < 4; ++i) {
    add_node("a100-" + std::to_string(i));
  }
  ASSERT_NO_FATAL_FAILURE(start_operator());
  ASSERT_NO_FATAL_FAILURE(wait_for_gpus(32));
  ASSERT_NO_FATAL_FAILURE(start_webhook());
  JobWatch watch(server_->make_client());
  using Moment = std::function<bool(const std::string& name)>;
  const std::vector<std::pair<std::string, Moment>> moments = {
      {"resized", [&](const std::string& name) { return !annotation(live(name), "remediation").empty(); }},
      {"begun", [&](const std::string& name) { return attempts_of(live(name)).size() == 2; }},
      {"planned", [&](const std::string& name) { return there("configmaps", name + "-1-plan"); }}};
  for (const auto& [name, moment] : moments) {
    must({"create", "-f", "-"}, TrainingJobManifest{.name = name,
                                                    .annotations = {{"outcome-of-attempt-0", "fail"},
                                                                    {"failure-message", kOutOfMemoryText},
                                                                    {"run-for", "500ms"}}}
                                    .text());
    ASSERT_TRUE(eventually(name, [&] { return moment(name); }));
    ASSERT_TRUE(server_->restart(0ms).ok());
    const Json job = wait_for_end(name, 180s);
    EXPECT_TRUE(is_true(job, "Succeeded")) << name << story(name);
    EXPECT_THAT(outcomes_of(job), ElementsAre("CUDAOutOfMemory", "Succeeded")) << name << story(name);
    EXPECT_GT(attempts_of(job)[1]["trainers"].asInt(), attempts_of(job)[0]["trainers"].asInt()) << name;
    EXPECT_EQ(member(job, {"status", "restarts"}).asInt(), 1) << name;
  }
  // The watch too has lost its server, and comes back when its back-off is over.
  EXPECT_TRUE(eventually(
      "both attempts of each job", [&] { return watch.made().size(); }, 2 * moments.size()));
  EXPECT_THAT(watch.made_twice(), IsEmpty());
}

}  // namespace
}  // namespace plimsoll::testing
