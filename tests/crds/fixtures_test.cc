// The jobs under invalid/ and valid/, which a real API server refuses and accepts as well (tests/controlplane
// applies the same files there).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <limits>

#include "tests/checkout.h"
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

// Calls `visit` with each number of the tree, which it may change.
void each_number(Json& value, const std::function<void(Json&)>& visit) {
  if (value.isNumeric()) {
    visit(value);
    return;
  }
  for (Json& child : value) {
    each_number(child, visit);
  }
}

// dhen.heads of 0 ended the webhook with SIGFPE: the mutating webhook comes before the API server's schema.
TEST(Fixtures, NumbersBeyondTheirRangesAreErrorsAndEndNoProcess) {
  std::vector<Json> jobs;
  for (const std::filesystem::path& file : files_in("valid")) {
    jobs.push_back(yaml(read_file(file)));
  }
  jobs.push_back(
      yaml(read_file(PLIMSOLL_SOURCE_DIR "/tests/crds/invalid/dhen-heads-that-do-not-divide.yaml")));
  const Json edges[] = {0, -1, 1, Json(std::numeric_limits<::Json::Int64>::min()),
                        Json(std::numeric_limits<::Json::Int64>::max())};
  int numbers = 0;
  for (Json& job : jobs) {
    job["spec"]["template"] = *parse_json(R"({"spec": {"containers": [{"name": "trainer"}]}})");
    each_number(job, [&](Json& number) {
      ++numbers;
      const Json was = number;
      for (const Json& edge : edges) {
        number = edge;
        (void)problems_of(job);
      }
      number = Json(std::numeric_limits<::Json::Int64>::min());
      EXPECT_FALSE(problems_of(job).empty()) << write_json(job);
      number = was;
    });
  }
  EXPECT_GE(numbers, 100);
}

}  // namespace
}  // namespace plimsoll::crds
