// Who may read the metrics, decided by a real API server: the operator has the rights of its service account and no more.
#include <gmock/gmock.h>

#include "tests/chart/installation.h"
#include "tests/chart/scraper.h"
#include "tests/testing/eventually.h"

namespace plimsoll::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class MetricsAccessTest : public InstallTest {
 protected:
  // A new one each time.
  std::string token_of(const std::string& account) const {
    const CommandResult made = kubectl({"create", "token", account, "-n", kNamespace});
    EXPECT_EQ(made.exit_code, 0) << made.errors;
    return made.output.substr(0, made.output.find('\n'));
  }

  Result<std::unique_ptr<PlimsollProcess>> start_operator(const Scraper& scraper) const {
    std::vector<std::string> arguments = {"--leader-elect-resource-namespace", kNamespace,
                                          "--leader-elect-resource-name", "sail-plimsoll-operator"};
    const std::vector<std::string> more = scraper.options();
    arguments.insert(arguments.end(), more.begin(), more.end());
    return PlimsollProcess::start("operator", arguments, kubeconfig_of("operator"), server_->directory());
  }
};

TEST_F(MetricsAccessTest, ATokenWhoseUserHasTheRoleIsAdmitted) {
  expect_done(release("install"));
  const Scraper scraper(*server_, "operator");
  const auto process = start_operator(scraper);
  ASSERT_TRUE(process.ok()) << to_string(process.error());
  expect_done(kubectl({"create", "serviceaccount", "prometheus", "-n", kNamespace}));

  EXPECT_EQ(scraper.status_for(""), 401);
  EXPECT_EQ(scraper.status_for("made-up"), 401);
  const std::string before = token_of("prometheus");
  const Response refused = scraper.answer_to(before);
  EXPECT_EQ(refused.status, 403);
  EXPECT_THAT(refused.body, Not(HasSubstr("plimsoll_workers")));

  expect_done(
      kubectl({"create", "clusterrolebinding", "metrics", "--clusterrole=sail-plimsoll-metrics-reader",
               std::string("--serviceaccount=") + kNamespace + ":prometheus"}));
  // The old token's refusal is kept; the API server's authorizer needs a moment for a new binding.
  EXPECT_TRUE(eventually(
      "a token with the role is admitted", [&] { return scraper.status_for(token_of("prometheus")); }, 200))
      << (*process)->log();
  const Response metrics = scraper.answer_to(token_of("prometheus"));
  EXPECT_EQ(metrics.status, 200);
  EXPECT_THAT(metrics.body, HasSubstr("plimsoll_workers"));
  EXPECT_THAT((*process)->log(), Not(HasSubstr(before.substr(0, 32))));
  EXPECT_EQ(http_get((*process)->ops_port(), "/metrics"), "");
}

// As with rbac.create=false, where nobody granted the rights.
TEST_F(MetricsAccessTest, WithoutTheRightToAskNobodyIsAdmitted) {
  expect_done(release("install", {"--set", "metrics.secure=false"}));
  const Scraper scraper(*server_, "operator");
  const auto process = start_operator(scraper);
  ASSERT_TRUE(process.ok()) << to_string(process.error());
  EXPECT_EQ(scraper.status_for(token_of("sail-plimsoll-webhook")), 503);
  EXPECT_THAT((*process)->log(), HasSubstr("Failed to check a token for metrics"));
  EXPECT_THAT((*process)->log(), HasSubstr("tokenreviews"));
}

}  // namespace
}  // namespace plimsoll::testing
