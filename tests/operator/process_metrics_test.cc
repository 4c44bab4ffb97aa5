#include "operator/process_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace plimsoll::process {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string scrape(const ProcessMetrics& metrics) {
  return prometheus::TextSerializer().Serialize(metrics.Collect());
}

double value_of(const std::string& name) {
  for (const prometheus::MetricFamily& family : ProcessMetrics().Collect()) {
    if (family.name == name) {
      const prometheus::ClientMetric& metric = family.metric.front();
      return family.type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value;
    }
  }
  ADD_FAILURE() << name << " is missing";
  return 0;
}

// The files of a process of another machine.
class ProcessMetricsOf : public ::testing::Test {
 protected:
  ProcessMetricsOf() {
    std::string name = (std::filesystem::temp_directory_path() / "process_metrics_test_XXXXXX").string();
    root_ = ::mkdtemp(name.data());
  }
  ~ProcessMetricsOf() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  std::string root_;
};

TEST(ProcessMetrics, TellWhatTheProcessUses) {
  EXPECT_GT(value_of("process_resident_memory_bytes"), 1 << 20);
  EXPECT_GT(value_of("process_virtual_memory_bytes"), value_of("process_resident_memory_bytes"));
  EXPECT_GE(value_of("process_threads"), 1);
  EXPECT_GE(value_of("process_cpu_seconds_total"), 0);
  EXPECT_GE(value_of("process_open_fds"), 3);
  rlimit files{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  EXPECT_EQ(value_of("process_max_fds"), static_cast<double>(files.rlim_cur));
  EXPECT_GT(value_of("process_start_time_seconds"), 1.7e9);
}

TEST(ProcessMetrics, AnOpenFileCounts) {
  const double before = value_of("process_open_fds");
  const std::ifstream file("/proc/self/stat");
  EXPECT_EQ(value_of("process_open_fds"), before + 1);
}

TEST(ProcessMetrics, TellWhichBuildRuns) {
  EXPECT_THAT(scrape(ProcessMetrics()),
              ::testing::ContainsRegex("plimsoll_build_info\\{version=\"" PLIMSOLL_VERSION
                                       "\",commit=\"[^\"]+\",compiler=\"[^\" ]+ [0-9.]+\"\\} 1\n"));
}

TEST_F(ProcessMetricsOf, ANameOfAProgramMayLookLikeFields) {
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  const auto page = static_cast<double>(::sysconf(_SC_PAGE_SIZE));
  write("/proc/self/stat",
        "7 (a) R 1 (b) S 1 7 7 0 -1 4194304 9 0 0 0 " + std::to_string(static_cast<int>(ticks * 2)) + " " +
            std::to_string(static_cast<int>(ticks)) + " 0 0 20 0 5 0 " +
            std::to_string(static_cast<int>(ticks * 30)) + " 8192 2 18446744073709551615 1 1 0\n");
  write("/proc/stat", "cpu  1 2 3\nbtime 1700000000\nprocesses 5\n");
  write("/proc/self/fd/0", "");
  const std::string text = scrape(ProcessMetrics(root_));
  for (const std::string line :
       {"process_cpu_seconds_total 3\n", "process_threads 5\n", "process_virtual_memory_bytes 8192\n",
        "process_start_time_seconds 1700000030\n", "process_open_fds 1\n"}) {
    EXPECT_THAT(text, HasSubstr("\n" + line));
  }
  EXPECT_THAT(text, HasSubstr("process_resident_memory_bytes " + std::to_string(static_cast<int>(page * 2))));
}

TEST_F(ProcessMetricsOf, WhatIsNotKnownIsAbsent) {
  write("/proc/self/stat", "7 (plimsoll) S 1 2 3\n");
  const std::string text = scrape(ProcessMetrics(root_));
  EXPECT_THAT(text, HasSubstr("plimsoll_build_info"));
  EXPECT_THAT(text, HasSubstr("process_max_fds"));  // the kernel's own answer
  for (const char* name : {"process_cpu", "process_resident", "process_start", "process_open_fds"}) {
    EXPECT_THAT(text, Not(HasSubstr(name)));
  }
}

TEST_F(ProcessMetricsOf, WithoutTheTimeOfTheBootTheStartIsAbsent) {
  write("/proc/self/stat", "7 (plimsoll) S 1 7 7 0 -1 4194304 9 0 0 0 1 1 0 0 20 0 5 0 30 8192 2 0\n");
  const std::string text = scrape(ProcessMetrics(root_));
  EXPECT_THAT(text, HasSubstr("process_threads 5\n"));
  EXPECT_THAT(text, Not(HasSubstr("process_start_time_seconds")));
}

}  // namespace
}  // namespace plimsoll::process
