#include <gmock/gmock.h>

#include <fstream>
#include <iterator>
#include <limits>

#include "tests/cli/run_command.h"

namespace plimsoll::cli {
namespace {

using plimsoll::testing::Outcome;
using plimsoll::testing::run;
using plimsoll::testing::source_file;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<std::string> planned(const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {"--profile",    source_file("examples/gpt2-xl-profile.json"),
                                        "--gpus",       "4",
                                        "--batch-size", "64",
                                        "--capacity",   "10Gi"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::string without_search_time(const std::string& text) {
  return text.substr(0, text.find("  search")) + text.substr(text.find("\n\n  moved"));
}

TEST(Swap, PlansAnIterationAsTheExampleInTheDocs) {
  const Outcome table = run(run_swap, planned());
  EXPECT_EQ(table.code, kExitDone) << table.err;
  EXPECT_THAT(table.out, HasSubstr("on 4 GPUs of 10.0 GiB, 52 layers, 64 samples: "));
  EXPECT_THAT(table.out, HasSubstr("for any plan; this one takes"));
  std::ifstream file(source_file("docs/harmony.md"));
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  EXPECT_THAT(without_search_time(page.substr(page.find("vPP on 4 GPUs of 10.0 GiB"))),
              StartsWith(without_search_time(table.out)));
}

// What the plan says is what plimsoll.harmony reads, and what --plan simulates to the same time.
TEST(Swap, AnAnswerAsJsonIsAPlan) {
  const Outcome answer = run(run_swap, planned({"-o", "json"}));
  const Json json = answer.json();
  EXPECT_EQ(json["layers"].asInt(), 52);
  EXPECT_EQ(json["deviceBytes"].asInt64(), 10737418240);
  EXPECT_LE(json["lowerBoundSeconds"].asDouble(), json["iterationSeconds"].asDouble());
  EXPECT_LE(json["peakDeviceBytes"].asInt64(), json["deviceBytes"].asInt64());
  const Json again =
      run(run_swap, {"--profile", source_file("examples/gpt2-xl-profile.json"), "--plan", "-", "-o", "json"},
          answer.out)
          .json();
  EXPECT_DOUBLE_EQ(again["iterationSeconds"].asDouble(), json["iterationSeconds"].asDouble());
  EXPECT_EQ(again["volumes"], json["volumes"]);
}

// Which kinds of plans there are, that the chosen one is the best of them, and that no kind is faster than its bound.
TEST(Swap, ExplainsWhatBoundsAnIterationAndWhatWasConsidered) {
  const Outcome table = run(run_swap, planned({"--explain"}));
  EXPECT_EQ(table.code, kExitDone) << table.err;
  EXPECT_THAT(table.out, HasSubstr("what an iteration needs under any plan"));
  EXPECT_THAT(table.out, HasSubstr("the GPUs bound the iteration"));
  EXPECT_THAT(table.out, HasSubstr("chosen"));
  const Json json = run(run_swap, planned({"--explain", "-o", "json"})).json();
  const Json& explanation = json["explanation"];
  EXPECT_DOUBLE_EQ(explanation["leastSeconds"]["gpus"].asDouble(), json["lowerBoundSeconds"].asDouble());
  double best = std::numeric_limits<double>::infinity();
  int left_out = 0;
  for (const Json& kind : explanation["considered"]) {
    if (kind["iterationSeconds"].isNull()) {
      ++left_out;
      continue;
    }
    EXPECT_GE(kind["iterationSeconds"].asDouble(), kind["lowerBoundSeconds"].asDouble() * (1 - 1e-9));
    best = std::min(best, kind["iterationSeconds"].asDouble());
  }
  EXPECT_DOUBLE_EQ(best, json["iterationSeconds"].asDouble());
  EXPECT_GT(left_out, 0);
  EXPECT_TRUE(run(run_swap, planned({"-o", "json"})).json()["explanation"].isNull()) << "only on request";
}

TEST(Swap, EachOptionChangesThePlan) {
  const auto seconds = [](const std::vector<std::string>& more) {
    std::vector<std::string> options = more;
    options.insert(options.end(), {"-o", "json"});
    return run(run_swap, planned(options)).json()["iterationSeconds"].asDouble();
  };
  const double usual = seconds({});
  EXPECT_GT(seconds({"--mode", "vDP"}), usual);
  EXPECT_DOUBLE_EQ(seconds({"--mode", "vpp"}), usual);
  EXPECT_GE(seconds({"--prefetch", "off"}), usual);
  EXPECT_GT(seconds({"--prefetch", "on"}), usual);
  EXPECT_LT(seconds({"--links", "host=50Gi,p2p=40Gi"}), usual);
  EXPECT_GT(seconds({"--no-p2p", "--links", "host=4Gi"}), usual);
  EXPECT_LT(seconds({"--gpus-per-root", "1", "--links", "host=8Gi"}), seconds({"--links", "host=8Gi"}));
  EXPECT_GT(seconds({"--runtime", "published"}), usual);
  EXPECT_GT(seconds({"--without", "grouping", "--without", "just-in-time"}), usual);
}

TEST(Swap, ThePageHasTheTimelineAndNeedsNothingElse) {
  const Outcome page = run(run_swap, planned({"-o", "html"}));
  EXPECT_EQ(page.code, kExitDone);
  EXPECT_THAT(page.out, StartsWith("<!DOCTYPE html>"));
  EXPECT_THAT(page.out, HasSubstr("const events = [["));
  EXPECT_THAT(page.out, HasSubstr("\"swap in\",\"swap out\",\"compute\""));
  EXPECT_THAT(page.out, Not(HasSubstr("http")));
  EXPECT_THAT(page.out, Not(HasSubstr("src=")));
  EXPECT_THAT(page.out, EndsWith("</html>\n"));
}

TEST(Swap, AModelThatNoPlanFitsIsExitOne) {
  std::vector<std::string> arguments = planned();
  arguments.back() = "512Mi";
  const Outcome outcome = run(run_swap, arguments);
  EXPECT_EQ(outcome.code, kExitRefused);
  EXPECT_THAT(outcome.err, HasSubstr("no plan fits: layer"));
}

TEST(Swap, WrongUsageIsExitTwo) {
  const auto error = [](const std::vector<std::string>& arguments, const std::string& input = {}) {
    const Outcome outcome = run(run_swap, arguments, input);
    EXPECT_EQ(outcome.code, kExitUsage);
    return outcome.err;
  };
  EXPECT_THAT(error({}), HasSubstr("plimsoll swap needs --profile"));
  EXPECT_THAT(error({"--compare", "--profile", "-", "--gpus", "1", "--batch-size", "4"}),
              HasSubstr("--microbatch"));
  const std::vector<std::string> good = {"--compare", "--profile",    "-", "--gpus", "1", "--batch-size",
                                         "4",         "--microbatch", "2"};
  EXPECT_THAT(error(good, "{"), HasSubstr("-: "));
  EXPECT_THAT(error(good, "{}"), HasSubstr("the profile's R must be the number of layers"));
  std::vector<std::string> odd = good;
  odd.back() = "3";
  EXPECT_THAT(error(odd), HasSubstr("--microbatch must divide --batch-size, 4"));
  EXPECT_THAT(error({"--profile", "-"}), HasSubstr("plimsoll swap needs --gpus"));
  EXPECT_THAT(error({"--profile", "-", "--gpus", "4", "--batch-size", "8"}), HasSubstr("needs --capacity"));
  EXPECT_THAT(error(planned({"--mode", "DP"})), HasSubstr("--mode must be one of auto, vDP, vPP"));
  EXPECT_THAT(error(planned({"--links", "host=0"})), HasSubstr("--links: not a bandwidth"));
  EXPECT_THAT(error(planned({"--links", "nvlink=1Gi"})), HasSubstr("--links takes host=, p2p= and memory="));
  EXPECT_THAT(error(planned({"--without", "luck"})),
              HasSubstr("--without must be one of grouping, just-in-time, peer-to-peer, balance, residence"));
  EXPECT_THAT(error(planned({"--plan", "plan.json"})), HasSubstr("--plan says what --gpus would"));
  EXPECT_THAT(error({"--profile", "-", "--plan", "plan.json", "--explain"}),
              HasSubstr("--plan searches nothing"));
  EXPECT_THAT(error(planned({"--explain", "-o", "html"})), HasSubstr("--explain is about a search"));
  EXPECT_THAT(error(planned({"--compare", "--microbatch", "1", "-o", "html"})),
              HasSubstr("--compare has no page"));
  EXPECT_THAT(error({"--profile", "-", "--gpus", "1", "--batch-size", "1", "--capacity", "1Gi"},
                    R"({"R": 1, "W": [1], "K": [1], "x": {"1": [1]}})"),
              HasSubstr("the profile has no times (tf, tb, mf, mb, upd)"));
  EXPECT_THAT(error({"--profile", source_file("examples/gpt2-xl-profile.json"), "--plan", "-"}, "{}"),
              HasSubstr("-: the plan's mode must be vDP or vPP"));
}

TEST(Swap, AHostWithoutMemoryForTheModelIsRefused) {
  const Outcome refused = run(run_swap, planned({"--host-memory", "1Gi"}));
  EXPECT_EQ(refused.code, kExitRefused);
  EXPECT_THAT(refused.err,
              HasSubstr("no plan fits the host: the model, its gradients and its optimizer take"));
  EXPECT_THAT(refused.err, HasSubstr("and it has 1.00 GiB"));
  EXPECT_EQ(run(run_swap, planned({"--host-memory", "none"})).code, kExitUsage);
}

}  // namespace
}  // namespace plimsoll::cli
