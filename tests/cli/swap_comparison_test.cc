#include "cli/swap_comparison.h"

#include <gmock/gmock.h>

#include <fstream>
#include <iterator>

#include "cli/command.h"
#include "cli/subcommands.h"
#include "tests/cli/run_command.h"

namespace plimsoll::cli {
namespace {

using plimsoll::testing::Outcome;
using plimsoll::testing::run;
using plimsoll::testing::source_file;
using ::testing::HasSubstr;

std::vector<std::string> gpt2_xl(const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {"--compare",
                                        "--profile",
                                        source_file("examples/gpt2-xl-profile.json"),
                                        "--gpus",
                                        "4",
                                        "--batch-size",
                                        "64",
                                        "--microbatch",
                                        "4"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// The byte case of docs/harmony.md.
TEST(SwapComparison, ComparesTheFourWays) {
  const Json json = run(run_swap, gpt2_xl({"-o", "json"})).json();
  ASSERT_EQ(json.size(), 4U);
  EXPECT_EQ(json[0]["mode"].asString(), "DP");
  EXPECT_EQ(json[0]["volumes"]["weights"].asInt64(), 471'750'451'200);
  EXPECT_EQ(json[3]["mode"].asString(), "vPP");
  EXPECT_EQ(json[3]["volumes"]["weights"].asInt64(), 19'656'268'800);
  EXPECT_EQ(json[3]["volumes"]["p2p"].asInt64(), 68'292'182'016);
  const Outcome table = run(run_swap, gpt2_xl());
  EXPECT_THAT(table.out, HasSubstr("52 layers on 4 GPUs, 16 microbatches of 4"));
  std::ifstream file(source_file("docs/harmony.md"));
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  EXPECT_THAT(page, HasSubstr(table.out)) << "the table there";
}

TEST(SwapComparison, PagingAndFusionSaveWeights) {
  const auto weights = [](const std::vector<std::string>& more, Json::ArrayIndex mode) {
    std::vector<std::string> options = more;
    options.insert(options.end(), {"-o", "json"});
    return run(run_swap, gpt2_xl(options)).json()[mode]["volumes"]["weights"].asInt64();
  };
  EXPECT_LT(weights({"--paging", "one-layer"}, 0), weights({}, 0));
  EXPECT_LT(weights({"--paging", "drop-clean"}, 0), weights({"--paging", "one-layer"}, 0));
  EXPECT_EQ(weights({"--paging", "drop-clean"}, 3), weights({}, 3)) << "Harmony does so anyway";
  EXPECT_EQ(weights({"--fused-turn"}, 0), weights({}, 0));
}

TEST(SwapComparison, AModeThatCannotDivideTheWorkSaysSo) {
  std::vector<std::string> arguments = gpt2_xl({"-o", "json"});
  arguments[4] = "3";
  const Json json = run(run_swap, arguments).json();
  EXPECT_THAT(json[0]["reason"].asString(), HasSubstr("3 GPUs do not divide 16"));
  EXPECT_FALSE(json[3].isMember("reason"));
}

TEST(SwapComparison, AnUnknownRuleListsTheKnownOnes) {
  const Outcome outcome = run(run_swap, gpt2_xl({"--paging", "lru"}));
  EXPECT_EQ(outcome.code, kExitUsage);
  EXPECT_THAT(outcome.err, HasSubstr("--paging must be one of strict, one-layer, drop-clean"));
}

}  // namespace
}  // namespace plimsoll::cli
