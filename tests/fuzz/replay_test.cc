// Every file of corpus/<target> goes through its target: the seeds, and each input that a fuzzer has found.
// A file is named for what it broke.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/log.h"
#include "tests/checkout.h"
#include "tests/fuzz/target.h"

namespace plimsoll::testing {
namespace {

namespace fs = std::filesystem;

struct Input {
  FuzzTarget target;
  fs::path file;
};

fs::path corpus_of(const FuzzTarget& target) {
  return fs::path(PLIMSOLL_SOURCE_DIR) / "tests/fuzz/corpus" / target.name;
}

std::vector<Input> inputs() {
  std::vector<Input> all;
  for (const FuzzTarget& target : fuzz_targets()) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(corpus_of(target))) {
      files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) {
      all.push_back({target, file});
    }
  }
  return all;
}

class Replay : public ::testing::TestWithParam<Input> {};

TEST_P(Replay, EndsWithinTheLimits) {
  configure_log(LogLevel::kError, LogFormat::kText);
  std::ifstream file(GetParam().file, std::ios::binary);
  const std::string input{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  GetParam().target.run("");  // what it sets up once is no part of an execution
  // Loose: sanitizers and other tests beside this one make it slower, and an endless one still shows.
  execute(GetParam().target, input, {.processor_time = std::chrono::seconds(20)});
}

INSTANTIATE_TEST_SUITE_P(Corpus, Replay, ::testing::ValuesIn(inputs()), [](const auto& instance) {
  std::string name = std::string(instance.param.target.name) + "_" + instance.param.file.filename().string();
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

TEST(FuzzTargets, HaveSeeds) {
  EXPECT_GE(fuzz_targets().size(), 10U);
  for (const FuzzTarget& target : fuzz_targets()) {
    EXPECT_FALSE(fs::is_empty(corpus_of(target))) << target.name;
  }
}

}  // namespace
}  // namespace plimsoll::testing
