// The slowest decisions that were found, and that the search finds only jobs that are valid.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/json/view.h"
#include "base/yaml.h"
#include "tests/checkout.h"
#include "tests/fuzz/slowest/search.h"

namespace plimsoll::testing {
namespace {

namespace fs = std::filesystem;

// Sanitizers slow down what happens between two looks at the clock, and hold more memory.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kSlowdown = 30;
#else
constexpr int kSlowdown = 1;
#endif

std::vector<fs::path> worst_jobs() {
  std::vector<fs::path> files;
  for (const auto& entry :
       fs::directory_iterator(PLIMSOLL_SOURCE_DIR "/tests/fuzz/corpus/slowest_decision")) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

class WorstJob : public ::testing::TestWithParam<fs::path> {};

// Processor time, which other processes do not lengthen: the one time that tests assert.
TEST_P(WorstJob, IsDecidedSoonAfterItsDeadlineInBoundedMemory) {
  std::ifstream file(GetParam(), std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const Result<std::vector<Json>> documents = parse_yaml_documents(text);
  ASSERT_TRUE(documents.ok()) << to_string(documents.error());
  ASSERT_EQ(documents->size(), 1U);
  const DecisionLimits limits{.deadline = std::chrono::milliseconds(300),
                              .grace = std::chrono::seconds(20) * kSlowdown};
  const Measured measured = measure_decision(documents->front(), limits);
  EXPECT_EQ(measured.end, Measured::End::kDecided) << measured.reason;
  EXPECT_LE(measured.overrun, kOverrunLimit * kSlowdown) << measured.reason;
  EXPECT_LE(measured.peak_heap, kHeapLimit) << measured.reason;
}

INSTANTIATE_TEST_SUITE_P(Corpus, WorstJob, ::testing::ValuesIn(worst_jobs()), [](const auto& instance) {
  std::string name = instance.param.stem().string();
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

TEST(JobMutator, MakesJobsOfWhichNearlyAllAreValid) {
  constexpr std::uint64_t kSeed = 20260107;
  Random random(kSeed);
  int valid = 0;
  std::string wrong;
  constexpr int kJobs = 400;
  crds::TrainingJobSpec spec = random_spec(random);
  for (int i = 0; i < kJobs; ++i) {
    const Json object = job_of(spec);
    const Result<crds::TrainingJob> job = crds::decode_training_job(object);
    ASSERT_TRUE(job.ok()) << "seed " << kSeed << ": " << job.error().message;
    const std::vector<crds::FieldError> errors = crds::validate(*job);
    valid += errors.empty() ? 1 : 0;
    wrong += errors.empty() ? "" : crds::to_string(errors) + "\n";
    if (i % 20 == 19) {
      spec = random_spec(random);
    } else {
      mutate(spec, random);
    }
  }
  EXPECT_GE(valid, kJobs * 9 / 10) << "seed " << kSeed << "\n" << wrong;
}

// Written and read, a job is what it was: no field is forgotten by the mutator's writer.
TEST(JobMutator, WritesWhatTheDecoderReads) {
  constexpr std::uint64_t kSeed = 7;
  Random random(kSeed);
  for (int i = 0; i < 50; ++i) {
    const Json object = job_of(random_spec(random));
    const Result<crds::TrainingJob> job = crds::decode_training_job(object);
    ASSERT_TRUE(job.ok()) << "seed " << kSeed << ": " << job.error().message;
    EXPECT_EQ(write_json(job_of(job->spec)), write_json(object)) << "seed " << kSeed;
  }
}

}  // namespace
}  // namespace plimsoll::testing
