#include <gmock/gmock.h>

#include "tests/cli/run_command.h"

namespace plimsoll::cli {
namespace {

using plimsoll::testing::run;
using ::testing::HasSubstr;

TEST(Version, IsPrintedInEachFormat) {
  EXPECT_THAT(run(run_version, {}).out, HasSubstr(PLIMSOLL_VERSION));
  EXPECT_EQ(run(run_version, {"-o", "json"}).json()["version"].asString(), PLIMSOLL_VERSION);
  EXPECT_THAT(run(run_version, {"-o", "yaml"}).out, HasSubstr("apiVersion: plimsoll.dev/v1alpha1"));
}

TEST(Version, IsOneLineForPeople) {
  EXPECT_EQ(run(run_version, {}).out, "plimsoll " PLIMSOLL_VERSION " (plimsoll.dev/v1alpha1)\n");
}

TEST(Version, WrongUsageIsExitTwo) {
  for (const std::vector<std::string>& wrong :
       std::vector<std::vector<std::string>>{{"now"}, {"-o", "xml"}, {"--short"}, {"-o"}}) {
    const auto outcome = run(run_version, wrong);
    EXPECT_EQ(outcome.code, kExitUsage) << wrong.back();
    EXPECT_EQ(outcome.out, "") << wrong.back();
  }
}

}  // namespace
}  // namespace plimsoll::cli
