// JSON is read through views and changed through base/json_edit.h alone: jsoncpp's own members throw when a
// value is of another kind than expected, and once that stopped the operator. What a file calls is seen in
// the symbols of its object file, not guessed from its text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

using ::testing::Contains;
using ::testing::IsEmpty;

// The object files that may call them, and why.
const std::map<std::string, std::string> kCheckersOfTypes = {
    {"json_edit.cc.o", "the module itself: checks each type first"},
    {"json_view.cc.o", "the views: check each type first, and make trees of their own"},
    {"json.cc.o", "the reader and the writer: go by type"},
    {"yaml.cc.o", "the reader and the writer of YAML: make trees of their own, and go by type"},
};

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string output;
  std::array<char, 65536> piece{};
  while (pipe != nullptr && !feof(pipe.get())) {
    output.append(piece.data(), fread(piece.data(), 1, piece.size(), pipe.get()));
  }
  return output;
}

// "job_children.cc.o: Json::Value::append(Json::Value&&)", of all rooms.
std::map<std::string, std::set<std::string>> throwing_calls() {
  // Other members do not throw on any kind of value.
  static const std::regex kThrowing(
      R"(([^:]+\.o):.* (Json::Value::(operator\[\]|append|insert|isMember|removeMember|removeIndex|getMemberNames|)"
      R"(get|find|demand|resize|clear|as[A-Z][A-Za-z0-9]*)(\[abi:[a-z0-9]+\])?\(.*))");
  std::map<std::string, std::set<std::string>> calls;
  std::istringstream archives(PLIMSOLL_ARCHIVES);
  for (std::string archive; std::getline(archives, archive, ',');) {
    std::istringstream lines(
        output_of(std::string(PLIMSOLL_NM) + " --undefined-only --demangle -A '" + archive + "'"));
    for (std::string line; std::getline(lines, line);) {
      std::smatch found;
      const std::size_t file = line.find(".a:");
      const std::string rest = file == std::string::npos ? line : line.substr(file + 3);
      if (rest.find("Json::Value::") != std::string::npos && std::regex_search(rest, found, kThrowing)) {
        calls[found[1]].insert(found[2]);
      }
    }
  }
  return calls;
}

TEST(ForeignJson, IsReadThroughCheckedViewsAndChangedThroughJsonEditOnly) {
  std::vector<std::string> wrong;
  std::vector<std::string> checkers;
  for (const auto& [file, calls] : throwing_calls()) {
    if (kCheckersOfTypes.contains(file)) {
      checkers.push_back(file);
      continue;
    }
    for (const std::string& call : calls) {
      wrong.push_back(file + " calls " + call +
                      "; take base/json_view.h to read and base/json_edit.h to write");
    }
  }
  EXPECT_THAT(wrong, IsEmpty());
  // Seen at all, and each of the exceptions still is one.
  for (const auto& [file, why] : kCheckersOfTypes) {
    EXPECT_THAT(checkers, Contains(file)) << why;
  }
}

}  // namespace
