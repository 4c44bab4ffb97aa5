// The large files of examples/ are what their generator writes, and the program answers each of the files.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/yaml.h"
#include "crds/training_job.h"
#include "tests/cli/run_command.h"

namespace plimsoll::testing {
namespace {

// What `kubectl apply` may keep of an object in its annotations (validation.TotalAnnotationSizeLimitB).
constexpr std::size_t kAnnotationLimit = 256 * 1024;

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::vector<std::filesystem::path> example_files() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(source_file("examples"))) {
    if (entry.path().extension() == ".yaml") {
      files.push_back(entry.path());
    }
  }
  return files;
}

TEST(Examples, LargeOnesAreWhatTheGeneratorWrites) {
  if (std::system("python3 -c 'import sys' >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "python3 is not here, so the generator cannot run";
  }
  std::string folder = (std::filesystem::temp_directory_path() / "plimsoll-examples-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string command =
      "python3 '" + source_file("examples/generate_models.py") + "' --output '" + folder + "' >/dev/null";
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 0);
  std::size_t compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::filesystem::path committed = source_file("examples") / entry.path().filename();
    EXPECT_TRUE(content(entry.path()) == content(committed)) << committed << " differs; run the generator";
    ++compared;
  }
  EXPECT_EQ(compared, 4U);  // models A to C and the cluster
  std::filesystem::remove_all(folder);
}

TEST(Examples, AreWellFormedAndSmallEnoughForKubectlApply) {
  std::size_t jobs = 0;
  for (const std::filesystem::path& file : example_files()) {
    const Result<std::vector<Json>> documents = parse_yaml_documents(content(file));
    ASSERT_TRUE(documents.ok()) << file << ": " << documents.error().message;
    for (const Json& document : *documents) {
      if (text_member(document, {"kind"}) == "List") {
        continue;
      }
      EXPECT_LT(write_json(document).size(), kAnnotationLimit) << file;
      if (text_member(document, {"kind"}) == "TrainingJob") {
        const Result<crds::TrainingJob> job = crds::decode_training_job(document);
        ASSERT_TRUE(job.ok()) << file << ": " << job.error().message;
        EXPECT_TRUE(crds::validate(*job).empty()) << file << ": " << crds::to_string(crds::validate(*job));
        ++jobs;
      }
    }
  }
  EXPECT_EQ(jobs, 25U);
}

// Table 1 of the AMP paper (SoCC '23): dense parameters, tables, and their size, in decimal GB.
struct PaperModel {
  const char* file;
  double dense_gb;
  std::size_t tables;
  double tables_gb;
};

class PaperExamples : public ::testing::TestWithParam<PaperModel> {};

TEST_P(PaperExamples, HaveTheSizesOfTable1) {
  const Outcome outcome =
      run(cli::run_provision, {"-f", source_file(std::string("examples/") + GetParam().file), "--cluster",
                               source_file("examples/cluster.yaml"), "-o", "json"});
  const Json decision = outcome.json()["decision"];
  EXPECT_EQ(decision["sharding"]["tables"].asUInt64(), GetParam().tables);
  const Outcome estimate =
      run(cli::run_estimate,
          {"-f", source_file(std::string("examples/") + GetParam().file), "--trainers", "128", "-o", "json"});
  const Json json = estimate.json();
  EXPECT_NEAR(json["denseParameterBytes"].asDouble() / 1e9, GetParam().dense_gb, 0.002);
  // Shards, with RowWiseAdagrad's state and the buffers, take a few percent more than the tables themselves.
  const double sharded =
      decision["sharding"]["memory"]["meanBytes"].asDouble() * decision["trainers"].asDouble() / 1e9;
  EXPECT_GE(sharded, GetParam().tables_gb);
  EXPECT_LT(sharded, 1.15 * GetParam().tables_gb);
}

INSTANTIATE_TEST_SUITE_P(Table1, PaperExamples,
                         ::testing::Values(PaperModel{"model-a.yaml", 0.46, 2190, 5134},
                                           PaperModel{"model-b.yaml", 0.80, 1037, 1988},
                                           PaperModel{"model-c.yaml", 0.19, 1864, 4197}),
                         [](const ::testing::TestParamInfo<PaperModel>& model) {
                           return std::string(model.param.file, 6, 1);
                         });

TEST(Examples, EachGetsADecision) {
  for (const std::filesystem::path& file : example_files()) {
    if (file.filename() == "cluster.yaml") {
      continue;
    }
    const Outcome outcome = run(cli::run_provision, {"-f", file.string(), "--cluster",
                                                     source_file("examples/cluster.yaml"), "-o", "json"});
    EXPECT_EQ(outcome.code, 0) << file << ": " << outcome.err;
    const Json json = outcome.json();
    EXPECT_LE(json["decision"]["trainers"].asInt64(), json["requested"]["replicas"].asInt64()) << file;
  }
}

}  // namespace
}  // namespace plimsoll::testing
