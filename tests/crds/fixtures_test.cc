// The jobs under invalid/ and valid/, which a real API server refuses and accepts as well (tests/controlplane
// applies the same files there).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/crds/test_jobs.h"

namespace plimsoll::crds {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<std::filesystem::path> files_in(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(PLIMSOLL_SOURCE_DIR "/tests/crds/" + folder)) {
    if (entry.path().extension() == ".yaml") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

TEST(Fixtures, EachInvalidJobIsRefusedWithTheFieldNamed) {
  const std::vector<std::filesystem::path> files = files_in("invalid");
  EXPECT_GE(files.size(), 30U);
  const std::string prefix = "# expect: ";
  for (const std::filesystem::path& file : files) {
    SCOPED_TRACE(file.filename());
    const std::string text = read_file(file);
    ASSERT_THAT(text, StartsWith(prefix));
    const std::string expected = text.substr(prefix.size(), text.find('\n') - prefix.size());
    const std::vector<FieldError> problems = problems_of(yaml(text));
    ASSERT_FALSE(problems.empty()) << "accepted";
    EXPECT_THAT(to_string(problems), HasSubstr(expected));
    EXPECT_EQ(problems.size(), 1U) << "a fixture has one defect: " << to_string(problems);
  }
}

TEST(Fixtures, EachValidJobIsAccepted) {
  const std::vector<std::filesystem::path> files = files_in("valid");
  EXPECT_GE(files.size(), 5U);
  for (const std::filesystem::path& file : files) {
    SCOPED_TRACE(file.filename());
    EXPECT_EQ(problem_text(yaml(read_file(file))), "");
  }
}

}  // namespace
}  // namespace plimsoll::crds
