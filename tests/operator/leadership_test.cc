#include "operator/leadership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "kube/lease_defaults.h"
#include "tests/checkout.h"

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

}  // namespace
}  // namespace plimsoll::process
