#include "operator/leadership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "kube/lease_defaults.h"
#include "tests/checkout.h"
#include "tests/kube/partial_client.h"

namespace plimsoll::process {
namespace {

using ::testing::HasSubstr;

TEST(Leadership, FlagsAndDocsHaveTheDefaultDurations) {
  const kube::LeaseDurations defaults;
  const Result<kube::LeaseOptions> lease = lease_of(LeadershipOptions());
  ASSERT_TRUE(lease.ok());
  EXPECT_EQ(lease->durations.lease_duration, defaults.lease_duration);
  EXPECT_EQ(lease->durations.renew_deadline, defaults.renew_deadline);
  EXPECT_EQ(lease->durations.retry_period, defaults.retry_period);
  std::ifstream file(PLIMSOLL_SOURCE_DIR "/docs/jobs.md");
  std::ostringstream docs;
  docs << file.rdbuf();
  const auto in_docs = [](std::chrono::milliseconds time) {
    return std::to_string(time / std::chrono::seconds(1)) + " s";
  };
  EXPECT_THAT(docs.str(), HasSubstr("a Lease of " + in_docs(defaults.lease_duration) +
                                    " that is renewed every " + in_docs(defaults.retry_period)));
  EXPECT_THAT(docs.str(), HasSubstr("gives up after " + in_docs(defaults.renew_deadline)));
}

TEST(Leadership, WrongDurationsNameTheFlag) {
  LeadershipOptions options;
  options.renew_deadline = "soon";
  const Result<kube::LeaseOptions> lease = lease_of(options);
  ASSERT_FALSE(lease.ok());
  EXPECT_THAT(lease.error().message, HasSubstr("--leader-elect-renew-deadline"));
  options.renew_deadline = "20s";  // longer than the lease
  EXPECT_FALSE(lease_of(options).ok());
}

std::map<std::string, double> scrape(const prometheus::Registry& registry) {
  std::map<std::string, double> values;
  for (const prometheus::MetricFamily& family : registry.Collect()) {
    const prometheus::ClientMetric& metric = family.metric.front();
    EXPECT_EQ(metric.label.front().value, "the-lease") << family.name;
    values[family.name] =
        family.type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value;
  }
  return values;
}

// PlimsollLeaderLost fires where no operator says that it leads.
TEST(Leadership, WithoutAnElectionItLeadsAndItsMetricsSaySo) {
  testing::PartialClient client;
  prometheus::Registry registry;
  Leadership leadership(client, "the-lease", std::nullopt, registry);
  EXPECT_EQ(scrape(registry)["leader_election_master_status"], 0) << "it has not started";
  bool started = false;
  leadership.start([&] { started = true; }, [] { FAIL() << "there is no lease to lose"; });
  EXPECT_TRUE(started);
  EXPECT_TRUE(leadership.leads());
  const std::map<std::string, double> expected = {{"leader_election_master_status", 1},
                                                  {"leader_election_slowpath_total", 0}};
  EXPECT_EQ(scrape(registry), expected);
  leadership.stop();
}

TEST(Leadership, WithAnElectionItLeadsNotBeforeItHasTheLease) {
  testing::PartialClient client;  // answers with errors
  prometheus::Registry registry;
  LeadershipOptions options;
  options.lease_name = "the-lease";
  const Result<kube::LeaseOptions> lease = lease_of(options);
  ASSERT_TRUE(lease.ok());
  Leadership leadership(client, "the-lease", *lease, registry);
  leadership.start([] { FAIL() << "it has no lease"; }, [] {});
  EXPECT_FALSE(leadership.leads());
  leadership.stop();
  EXPECT_EQ(scrape(registry)["leader_election_master_status"], 0);
}

}  // namespace
}  // namespace plimsoll::process
