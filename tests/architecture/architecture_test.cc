// Each library includes only what the table allows (docs/design.md, section 2), and CMakeLists.txt links the same. Folders
// of a library have no include cycle. Each library has a README.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/checkout.h"

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

using Names = std::set<std::string>;

// library -> the libraries that it may include
const std::map<std::string, Names> kAllowed = {
    {"base", {}},
    {"crds", {"base"}},
    {"estimator", {"base", "crds"}},
    {"kube", {"base"}},
    {"http", {"base"}},
    {"metrics", {"base", "kube"}},
    {"workloads", {"base", "crds", "estimator"}},
    {"webhook", {"base", "crds", "estimator", "workloads", "kube", "http", "metrics"}},
    {"remediation", {"base", "crds", "estimator"}},
    {"controllers", {"base", "crds", "estimator", "kube", "metrics", "remediation"}},
    {"cli", {"base", "crds", "estimator", "workloads", "kube", "remediation"}},
    {"operator",
     {"base", "crds", "estimator", "workloads", "kube", "http", "metrics", "remediation", "webhook",
      "controllers", "cli"}},
};

// The folders of estimator/, the lowest first, and which others of them each may include.
const std::map<std::string, Names> kEstimator = {
    {"catalog", {}},
    {"ledger", {}},
    {"allocator", {"ledger"}},
    {"trace", {"ledger"}},
    {"kernels", {"trace"}},
    {"parallel", {"kernels", "ledger", "trace"}},
    {"types", {"allocator", "catalog", "trace"}},
    {"execute", {"kernels", "ledger", "parallel", "trace"}},
    {"spec", {"trace"}},
    {"transformer", {"spec", "trace"}},
    {"fixed_costs", {"types"}},
    {"estimate",
     {"allocator", "catalog", "execute", "fixed_costs", "kernels", "ledger", "parallel", "spec", "trace",
      "transformer", "types"}},
    {"sharder", {}},
    {"swap", {}},
    {"speed", {"catalog", "estimate", "parallel", "spec", "trace", "transformer", "types"}},
    {"layer_costs",
     {"estimate", "execute", "fixed_costs", "ledger", "spec", "speed", "swap", "trace", "transformer",
      "types"}},
    {"host_training", {"catalog", "estimate", "fixed_costs", "layer_costs", "speed", "swap", "types"}},
    {"provisioner",
     {"catalog", "estimate", "fixed_costs", "host_training", "sharder", "spec", "speed", "trace", "types"}},
};
constexpr std::size_t kMaxFilesOfAFolder = 15;  // sources with their headers, counted once

// file, from the repository's root -> what it includes in quotes
using Sources = std::map<std::string, std::vector<std::string>>;

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> includes_of(const std::string& text) {
  static const std::regex kInclude(R"re(^[ \t]*#[ \t]*include[ \t]*"([^"]+)")re", std::regex::multiline);
  std::vector<std::string> includes;
  for (std::sregex_iterator it(text.begin(), text.end(), kInclude), end; it != end; ++it) {
    includes.push_back((*it)[1]);
  }
  return includes;
}

Sources read_sources() {
  const fs::path root = PLIMSOLL_SOURCE_DIR;
  Sources sources;
  for (const auto& [library, allowed] : kAllowed) {
    for (const auto& entry : fs::recursive_directory_iterator(root / library)) {
      const std::string extension = entry.path().extension();
      if (extension == ".h" || extension == ".cc") {
        sources[fs::relative(entry.path(), root)] = includes_of(text_of(entry.path()));
      }
    }
  }
  return sources;
}

std::string library_of(const std::string& path) {
  return path.substr(0, path.find('/'));
}

// "estimator/trace" for a file in that folder or below; empty for a file of the library's own.
std::string folder_of(const std::string& path) {
  const std::size_t first = path.find('/');
  const std::size_t second = first == std::string::npos ? first : path.find('/', first + 1);
  return second == std::string::npos ? "" : path.substr(0, second);
}

std::vector<std::string> forbidden_includes(const Sources& sources) {
  std::vector<std::string> wrong;
  for (const auto& [file, includes] : sources) {
    const std::string library = library_of(file);
    for (const std::string& include : includes) {
      const std::string other = library_of(include);
      if (!kAllowed.contains(other)) {
        wrong.push_back(file + ": \"" + include + "\" is not a path from the root into a library");
      } else if (other != library && !kAllowed.at(library).contains(other)) {
        wrong.push_back(file + ": " + library + " may not include " + other + " (" + include + ")");
      }
    }
  }
  return wrong;
}

// Each include cycle of folders of a library, once: "estimator/a -> estimator/b -> estimator/a".
std::vector<std::string> cycles(const Sources& sources) {
  std::map<std::string, Names> graph;
  for (const auto& [file, includes] : sources) {
    for (const std::string& include : includes) {
      const std::string from = folder_of(file);
      const std::string to = folder_of(include);
      if (!from.empty() && !to.empty() && from != to) {
        graph[from].insert(to);
      }
    }
  }
  std::vector<std::string> found;
  Names finished;
  std::vector<std::string> path;
  const std::function<void(const std::string&)> visit = [&](const std::string& folder) {
    const auto seen = std::find(path.begin(), path.end(), folder);
    if (seen != path.end()) {
      std::string cycle;
      for (auto step = seen; step != path.end(); ++step) {
        cycle += *step + " -> ";
      }
      found.push_back(cycle + folder);
      return;
    }
    if (finished.contains(folder)) {
      return;
    }
    path.push_back(folder);
    for (const std::string& next : graph[folder]) {
      visit(next);
    }
    path.pop_back();
    finished.insert(folder);
  };
  Names folders;
  for (const auto& [folder, others] : graph) {
    folders.insert(folder);
  }
  for (const std::string& folder : folders) {
    visit(folder);
  }
  return found;
}

TEST(Architecture, RoomsIncludeOnlyWhatTheirArrowsAllow) {
  const Sources sources = read_sources();
  EXPECT_GT(sources.size(), 30U);
  EXPECT_THAT(forbidden_includes(sources), IsEmpty());
}

TEST(Architecture, FoldersOfALibraryHaveNoIncludeCycle) {
  EXPECT_THAT(cycles(read_sources()), IsEmpty());
}

// "trace" for "estimator/trace/shapes.h"; empty for what is not in a folder of estimator/.
std::string estimator_folder(const std::string& path) {
  const std::string folder = folder_of(path);
  return folder.starts_with("estimator/") ? folder.substr(std::string("estimator/").size()) : "";
}

TEST(Architecture, FoldersOfTheEstimatorIncludeOnlyLowerOnes) {
  std::vector<std::string> wrong;
  for (const auto& [file, includes] : read_sources()) {
    const std::string folder = estimator_folder(file);
    if (library_of(file) != "estimator") {
      continue;
    }
    ASSERT_TRUE(kEstimator.contains(folder)) << file << " is in no folder of estimator/README.md";
    for (const std::string& include : includes) {
      const std::string other = estimator_folder(include);
      if (!other.empty() && other != folder && !kEstimator.at(folder).contains(other)) {
        wrong.push_back(file + " includes " + include);
      }
    }
  }
  EXPECT_THAT(wrong, IsEmpty());
}

TEST(Architecture, FoldersOfTheEstimatorAreSmallAndHaveAReadme) {
  std::map<std::string, Names> stems;
  for (const auto& [file, includes] : read_sources()) {
    if (library_of(file) != "estimator") {
      continue;
    }
    const std::string folder = estimator_folder(file);
    stems[folder].insert(fs::path(file).stem());
  }
  for (const auto& [folder, names] : stems) {
    EXPECT_LE(names.size(), kMaxFilesOfAFolder) << folder;
    EXPECT_GT(text_of(fs::path(PLIMSOLL_SOURCE_DIR) / "estimator" / folder / "README.md").size(), 100U)
        << folder;
  }
}

// It evaluates custom resources by their CRD alone: types of the program would hide a rule that the CRD lacks.
TEST(Architecture, TheFakeApiServerKnowsNoTypesOfPlimsoll) {
  const std::string folder = "tests/fake_apiserver/";
  std::size_t sources = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(PLIMSOLL_SOURCE_DIR) / folder)) {
    const std::string name = entry.path().filename();
    if (name.ends_with("_test.cc") || !(name.ends_with(".cc") || name.ends_with(".h"))) {
      continue;
    }
    ++sources;
    for (const std::string& include : includes_of(text_of(entry.path()))) {
      EXPECT_TRUE(include.starts_with("base/") || include.starts_with(folder) ||
                  include == "tests/checkout.h")
          << name << ": " << include;
    }
  }
  EXPECT_GT(sources, 30U);
}

TEST(Architecture, EveryLibraryHasAReadme) {
  for (const auto& [library, allowed] : kAllowed) {
    EXPECT_GT(text_of(fs::path(PLIMSOLL_SOURCE_DIR) / library / "README.md").size(), 100U)
        << library << "/README.md must say what the library is, its main header, and how it is tested";
  }
}

TEST(Architecture, TheBuildLinksOnlyWhatIsAllowed) {
  const std::string build = text_of(fs::path(PLIMSOLL_SOURCE_DIR) / "CMakeLists.txt");
  const std::regex library_line(R"(plimsoll_library\((\w+) USES([^)]*)\))");
  std::map<std::string, Names> linked;
  for (std::sregex_iterator it(build.begin(), build.end(), library_line), end; it != end; ++it) {
    std::istringstream targets((*it)[2]);
    Names& libraries = linked[(*it)[1]];
    for (std::string target; targets >> target;) {
      if (kAllowed.contains(target)) {
        libraries.insert(target);
      }
    }
  }
  for (const auto& [library, allowed] : kAllowed) {
    ASSERT_TRUE(linked.contains(library)) << library << " is no library of the build";
    for (const std::string& other : linked[library]) {
      EXPECT_TRUE(allowed.contains(other)) << "CMakeLists.txt links " << library << " with " << other;
    }
  }
}

// "`path`" in the last column of section 7 of docs/design.md.
TEST(Architecture, TheTableOfWhereToFindWhatIsRight) {
  const std::string design = text_of(fs::path(PLIMSOLL_SOURCE_DIR) / "docs/design.md");
  const std::size_t section = design.find("## 7. Where to find what");
  ASSERT_NE(section, std::string::npos);
  static const std::regex kRow(R"(\| `([^`]+)` \|)");
  std::size_t rows = 0;
  for (std::sregex_iterator it(design.begin() + static_cast<std::ptrdiff_t>(section), design.end(), kRow),
       end;
       it != end; ++it, ++rows) {
    EXPECT_TRUE(fs::exists(fs::path(PLIMSOLL_SOURCE_DIR) / (*it)[1].str())) << (*it)[1];
  }
  EXPECT_GE(rows, 12U);
}

// The checks themselves.
TEST(Architecture, ChecksSeeWhatIsWrong) {
  EXPECT_THAT(
      includes_of("#include <vector>\n #  include \"base/json/json.h\"\n// #include \"not/this.h\"\n"),
      ElementsAre("base/json/json.h"));
  EXPECT_THAT(forbidden_includes({{"crds/a.h", {"base/json/json.h", "crds/b.h"}}}), IsEmpty());
  EXPECT_THAT(forbidden_includes({{"kube/client.h", {"crds/training_job.h"}}}),
              ElementsAre("kube/client.h: kube may not include crds (crds/training_job.h)"));
  EXPECT_THAT(forbidden_includes({{"base/json/json.cc", {"json.h"}}}),
              ElementsAre("base/json/json.cc: \"json.h\" is not a path from the root into a library"));
  EXPECT_THAT(cycles({{"estimator/a/x.h", {"estimator/b/x.h"}},
                      {"estimator/b/y.h", {"estimator/c/x.h", "estimator/b/x.h"}},
                      {"estimator/c/z.h", {"estimator/top.h"}}}),
              IsEmpty());
  EXPECT_THAT(cycles({{"estimator/a/x.h", {"estimator/b/x.h"}},
                      {"estimator/b/y.h", {"estimator/c/x.h"}},
                      {"estimator/c/z.h", {"estimator/a/y.h"}}}),
              ElementsAre("estimator/a -> estimator/b -> estimator/c -> estimator/a"));
}

}  // namespace
