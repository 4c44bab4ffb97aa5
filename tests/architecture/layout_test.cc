// Where things are: each source has a header and a test of its own name, and each folder one namespace. What does
// not follow the rule yet is listed in a file beside this one, and the lists only shrink: an entry that is no
// longer needed fails too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/checkout.h"

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

const fs::path kRoot = PLIMSOLL_SOURCE_DIR;

// The lines of a list without comments, as words.
std::vector<std::vector<std::string>> read_list(const std::string& name) {
  std::ifstream file(kRoot / "tests/architecture" / name);
  EXPECT_TRUE(file) << name;
  std::vector<std::vector<std::string>> list;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::vector<std::string> entry;
    for (std::string word; words >> word;) {
      entry.push_back(word);
    }
    if (!entry.empty()) {
      list.push_back(std::move(entry));
    }
  }
  return list;
}

std::set<std::string> read_paths(const std::string& name) {
  std::set<std::string> paths;
  for (const std::vector<std::string>& entry : read_list(name)) {
    paths.insert(entry.front());
  }
  return paths;
}

// folder -> its namespaces. The folders are those that have product sources, so a new one must be listed.
std::map<std::string, std::set<std::string>> read_namespaces() {
  std::map<std::string, std::set<std::string>> namespaces;
  for (const std::vector<std::string>& entry : read_list("namespaces.txt")) {
    namespaces[entry.front()].insert(entry.begin() + 1, entry.end());
  }
  return namespaces;
}

// All sources and headers of the libraries, from the root.
std::vector<std::string> product_files(const std::string& extension) {
  std::set<std::string> libraries;
  for (const auto& [folder, names] : read_namespaces()) {
    libraries.insert(folder.substr(0, folder.find('/')));
  }
  std::vector<std::string> files;
  for (const std::string& library : libraries) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / library)) {
      if (entry.path().extension() == extension) {
        files.push_back(fs::relative(entry.path(), kRoot));
      }
    }
  }
  return files;
}

std::string without_extension(const std::string& path) {
  return path.substr(0, path.rfind('.'));
}

// What breaks the rule and is not listed, and what is listed without need.
std::vector<std::string> differences(const std::set<std::string>& wrong, const std::set<std::string>& listed,
                                     const std::string& list) {
  std::vector<std::string> found;
  for (const std::string& path : wrong) {
    if (!listed.contains(path)) {
      found.push_back(path);
    }
  }
  for (const std::string& path : listed) {
    if (!wrong.contains(path)) {
      found.push_back(path + ": no longer needs to be in tests/architecture/" + list);
    }
  }
  return found;
}

// The namespaces of ours that a file opens, as clang-format leaves them: at the beginning of a line.
std::set<std::string> namespaces_of(std::istream& text) {
  std::set<std::string> names;
  const std::string begin = "namespace plimsoll";
  for (std::string line; std::getline(text, line);) {
    if (const std::size_t is_inline = line.find("::inline "); is_inline != std::string::npos) {
      line.erase(is_inline + 2, std::string("inline ").size());
    }
    if (line.rfind(begin, 0) == 0 && line.find('=') == std::string::npos) {
      const std::size_t name = std::string("namespace ").size();
      names.insert(line.substr(name, line.find(' ', name) - name));
    }
  }
  return names;
}

TEST(Layout, EverySourceHasItsHeader) {
  std::set<std::string> wrong;
  for (const std::string& source : product_files(".cc")) {
    if (!fs::exists(kRoot / (without_extension(source) + ".h"))) {
      wrong.insert(source);
    }
  }
  EXPECT_THAT(differences(wrong, read_paths("without_header.txt"), "without_header.txt"), IsEmpty());
}

TEST(Layout, EverySourceHasItsTest) {
  std::set<std::string> wrong;
  for (const std::string& source : product_files(".cc")) {
    if (!fs::exists(kRoot / "tests" / (without_extension(source) + "_test.cc"))) {
      wrong.insert(source);
    }
  }
  EXPECT_THAT(differences(wrong, read_paths("without_test.txt"), "without_test.txt"), IsEmpty());
}

TEST(Layout, FoldersKeepToTheirNamespaces) {
  const std::map<std::string, std::set<std::string>> allowed = read_namespaces();
  std::vector<std::string> wrong;
  std::map<std::string, std::set<std::string>> used;
  for (const char* extension : {".h", ".cc"}) {
    for (const std::string& path : product_files(extension)) {
      const std::string folder = path.substr(0, path.rfind('/'));
      const auto found = allowed.find(folder);
      std::ifstream text(kRoot / path);
      for (const std::string& name : namespaces_of(text)) {
        used[folder].insert(name);
        if (found == allowed.end() || !found->second.contains(name)) {
          wrong.push_back(path + ": " + folder + " is not the folder of " + name);
        }
      }
    }
  }
  EXPECT_THAT(wrong, IsEmpty());
  EXPECT_EQ(used, allowed) << "tests/architecture/namespaces.txt lists what nothing uses";
}

// The checks themselves.
TEST(Layout, ChecksSeeWhatIsWrong) {
  EXPECT_THAT(differences({"a.cc", "b.cc"}, {"b.cc", "c.cc"}, "list.txt"),
              ElementsAre("a.cc", "c.cc: no longer needs to be in tests/architecture/list.txt"));
  std::istringstream text(
      "namespace plimsoll::kube {\nnamespace {\nnamespace po = boost::po;\n  namespace plimsoll::not {\n");
  EXPECT_THAT(namespaces_of(text), ElementsAre("plimsoll::kube"));
}

}  // namespace
