// JSON is read through views and changed through base/json/edit.h alone: jsoncpp's own members throw when a
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

// The sources that may call them, and why.
const std::map<std::string, std::string> kCheckersOfTypes = {
    {"base/json/edit.cc", "the module itself: checks each type first"},
    {"base/json/view.cc", "the views: check each type first, and make trees of their own"},
    {"base/json/json.cc", "the reader and the writer: go by type"},
    {"base/yaml.cc", "the reader and the writer of YAML: make trees of their own, and go by type"},
};

// "base: json_view.cc.o", as its archive has it.
std::string object_of(const std::string& source) {
  return source.substr(0, source.find('/')) + ": " + source.substr(source.rfind('/') + 1) + ".o";
}

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string output;
  std::array<char, 65536> piece{};
  while (pipe != nullptr && !feof(pipe.get())) {
    output.append(piece.data(), fread(piece.data(), 1, piece.size(), pipe.get()));
  }
  return output;
}

// "controllers: job_children.cc.o" -> {"Json::Value::append(Json::Value&&)"}, of all libraries.
std::map<std::string, std::set<std::string>> throwing_calls() {
  // Other members do not throw on any kind of value.
  static const std::regex kThrowing(
      R"(([^:]+\.o):.* (Json::Value::(operator\[\]|append|insert|isMember|removeMember|removeIndex|getMemberNames|)"
      R"(get|find|demand|resize|clear|as[A-Z][A-Za-z0-9]*)(\[abi:[a-z0-9]+\])?\(.*))");
  std::map<std::string, std::set<std::string>> calls;
  std::istringstream archives(PLIMSOLL_ARCHIVES);
  for (std::string archive; std::getline(archives, archive, ',');) {
    const std::size_t name = archive.rfind("libplimsoll_") + std::string("libplimsoll_").size();
    const std::string library = archive.substr(name, archive.rfind(".a") - name);
    std::istringstream lines(
        output_of(std::string(PLIMSOLL_NM) + " --undefined-only --demangle -A '" + archive + "'"));
    for (std::string line; std::getline(lines, line);) {
      std::smatch found;
      const std::size_t file = line.find(".a:");
      const std::string rest = file == std::string::npos ? line : line.substr(file + 3);
      if (rest.find("Json::Value::") != std::string::npos && std::regex_search(rest, found, kThrowing)) {
        calls[library + ": " + found[1].str()].insert(found[2]);
      }
    }
  }
  return calls;
}

TEST(ForeignJson, IsReadThroughCheckedViewsAndChangedThroughJsonEditOnly) {
  std::set<std::string> exempt;
  for (const auto& [source, why] : kCheckersOfTypes) {
    exempt.insert(object_of(source));
  }
  std::vector<std::string> wrong;
  std::vector<std::string> checkers;
  for (const auto& [file, calls] : throwing_calls()) {
    if (exempt.contains(file)) {
      checkers.push_back(file);
      continue;
    }
    for (const std::string& call : calls) {
      wrong.push_back(file + " calls " + call +
                      "; take base/json/view.h to read and base/json/edit.h to write");
    }
  }
  EXPECT_THAT(wrong, IsEmpty());
  // Seen at all, and each of the exceptions still is one.
  for (const auto& [source, why] : kCheckersOfTypes) {
    EXPECT_THAT(checkers, Contains(object_of(source))) << why;
  }
}

}  // namespace
