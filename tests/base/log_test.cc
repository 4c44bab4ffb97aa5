#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <thread>
#include <vector>

#include "base/json/json.h"

namespace plimsoll {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class Log : public ::testing::Test {
 protected:
  ~Log() override { configure_log(LogLevel::kInfo, LogFormat::kText); }

  template <class Work>
  static std::string logged(Work work) {
    ::testing::internal::CaptureStderr();
    work();
    return ::testing::internal::GetCapturedStderr();
  }
};

TEST_F(Log, TextForPeople) {
  configure_log(LogLevel::kInfo, LogFormat::kText);
  EXPECT_THAT(logged([] {
                log_info("Provisioned the job",
                         {{"job", "default/ads"}, {"why", "two\nlines"}, {"trainers", 64}, {"leads", true}});
              }),
              MatchesRegex("[0-9T:-]+[.][0-9][0-9][0-9]Z info Provisioned the job job=\"default/ads\" "
                           "why=\"two\\\\nlines\" trainers=64 leads=true\n"));
}

TEST_F(Log, JsonForPrograms) {
  configure_log(LogLevel::kInfo, LogFormat::kJson);
  const std::string line = logged([] {
    log_error("Could not read \"x\"", {{"error", "line 1\nline 2"},
                                       {"trainers", 64},
                                       {"bytes", std::uint64_t{1} << 63},
                                       {"change", std::int64_t{-5}},
                                       {"ratio", 0.5},
                                       {"leads", false},
                                       {"version", std::string_view("64")}});
  });
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  const Result<Json> record = parse_json(line);
  ASSERT_TRUE(record.ok()) << line;
  EXPECT_EQ((*record)["level"], "error");
  EXPECT_EQ((*record)["msg"], "Could not read \"x\"");
  EXPECT_EQ((*record)["error"], "line 1\nline 2");
  EXPECT_EQ((*record)["trainers"], 64);
  EXPECT_EQ((*record)["bytes"], Json::UInt64{1} << 63);
  EXPECT_EQ((*record)["change"], -5);
  EXPECT_EQ((*record)["ratio"], 0.5);
  EXPECT_EQ((*record)["leads"], false);
  EXPECT_EQ((*record)["version"], "64");
  EXPECT_THAT((*record)["ts"].asString(), MatchesRegex("[0-9-]+T[0-9:]+[.][0-9][0-9][0-9]Z"));
}

TEST_F(Log, LevelsBelowTheLeastAreSilent) {
  configure_log(LogLevel::kWarning, LogFormat::kText);
  EXPECT_EQ(logged([] {
              log_debug("d");
              log_info("i");
            }),
            "");
  EXPECT_THAT(logged([] { log_warning("w"); }), HasSubstr("warning w"));
  configure_log(LogLevel::kDebug, LogFormat::kText);
  EXPECT_THAT(logged([] { log_debug("d"); }), HasSubstr("debug d"));
}

TEST_F(Log, RecordsOfThreadsAreWhole) {
  configure_log(LogLevel::kInfo, LogFormat::kJson);
  const std::string text = logged([] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([] {
        for (int i = 0; i < 100; ++i) {
          log_info("Said", {{"long", std::string(300, 'x')}});
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  });
  std::istringstream lines(text);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    ASSERT_TRUE(parse_json(line).ok()) << line;
  }
  EXPECT_EQ(count, 400);
}

}  // namespace
}  // namespace plimsoll
