// Searches for the TrainingJob that takes longest, or most memory, to decide (search.h), and checks those
// that were found before. scripts/fuzz slowest-decision runs it.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <boost/program_options.hpp>

#include "base/json/view.h"
#include "base/log.h"
#include "base/yaml.h"
#include "tests/checkout.h"
#include "tests/fuzz/slowest/search.h"

namespace plimsoll::testing {
namespace {

namespace fs = std::filesystem;
namespace po = boost::program_options;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kWorst = 12;  // that are written

std::vector<fs::path> jobs_below(const fs::path& folder) {
  std::vector<fs::path> files;
  if (fs::exists(folder)) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

Result<Json> read_job(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  Result<std::vector<Json>> documents = parse_yaml_documents(text);
  if (!documents) {
    return documents.error().within(path.string());
  }
  if (documents->size() != 1) {
    return invalid(path.string() + " must hold one TrainingJob");
  }
  return documents->front();
}

void print(const std::string& name, const Measured& measured) {
  std::printf(
      "%-44s %-8s %-20.20s %6lld ms, %5lld of them after the deadline, %8.1f MiB%s\n", name.c_str(),
      name_of(measured.end), measured.reason.c_str(), static_cast<long long>(measured.processor_time.count()),
      static_cast<long long>(measured.overrun.count()),
      static_cast<double>(measured.peak_heap.count) / (1 << 20), is_finding(measured) ? "  FINDING" : "");
  std::fflush(stdout);
}

// The number of findings among the files.
int check(const std::vector<fs::path>& files, const DecisionLimits& limits) {
  int findings = 0;
  for (const fs::path& file : files) {
    const Result<Json> job = read_job(file);
    if (!job) {
      std::fprintf(stderr, "%s\n", to_string(job.error()).c_str());
      ++findings;
      continue;
    }
    const Measured measured = measure_decision(*job, limits);
    print(file.filename().string(), measured);
    findings += is_finding(measured) ? 1 : 0;
  }
  return findings;
}

std::string name_of_worst(int number) {
  return "worst-" + std::to_string(number) + ".yaml";
}

void write(const fs::path& path, const Found& found, const Measured& measured, const DecisionLimits& limits) {
  std::ofstream(path) << "# " << name_of(measured.end) << " (" << measured.reason << ") in "
                      << measured.processor_time.count() << " ms of processor time with a deadline of "
                      << limits.deadline.count() << " ms, " << measured.overrun.count()
                      << " ms of it after that, peak heap " << to_string(measured.peak_heap) << "\n"
                      << write_yaml(job_of(found.spec));
}

// As they were decided in the search, for a search that does not come to its end.
void write_all(const fs::path& folder, const std::vector<Found>& worst, const DecisionLimits& limits) {
  int number = 0;
  for (const Found& found : worst) {
    write(folder / name_of_worst(++number), found, found.measured, limits);
  }
}

// What earlier searches have found is where this one begins.
void seed(SlowestSearch& search, const std::vector<fs::path>& files) {
  for (const fs::path& file : files) {
    const Result<Json> job = read_job(file);
    const Result<crds::TrainingJob> decoded =
        job ? crds::decode_training_job(*job) : Result<crds::TrainingJob>(job.error());
    if (decoded) {
      search.add(decoded->spec);
    } else {
      std::fprintf(stderr, "%s\n", to_string(decoded.error()).c_str());
    }
  }
}

int run(int argc, char** argv) {
  double minutes = 1;
  std::uint64_t seed_number = 1;
  std::int64_t deadline_ms = 4800;
  std::int64_t search_deadline_ms = 500;
  std::string corpus = PLIMSOLL_SOURCE_DIR "/tests/fuzz/corpus/slowest_decision";
  std::string output;
  po::options_description options("usage: slowest_decision [OPTION...]");
  options.add_options()("help", "print this")  //
      ("minutes", po::value(&minutes), "how long to search (default 1)")(
          "seed", po::value(&seed_number), "of the search: equal seeds begin alike (default 1)")(
          "deadline-ms", po::value(&deadline_ms), "of a decision that is checked (default 4800)")(
          "search-deadline-ms", po::value(&search_deadline_ms), "of one in the search (default 500)")(
          "check", "search nothing, only decide the jobs of the corpus")(
          "corpus", po::value(&corpus), "folder of jobs to begin with, one YAML file each")(
          "output", po::value(&output), "folder for the worst jobs (default: none are written)");
  po::variables_map given;
  try {
    po::store(po::parse_command_line(argc, argv, options), given);
    po::notify(given);
  } catch (const po::error& problem) {
    std::fprintf(stderr, "%s\n", problem.what());
    return 2;
  }
  if (given.count("help") > 0) {
    std::printf("usage: slowest_decision [OPTION...]\n");
    for (const auto& option : options.options()) {
      std::printf("  %-22s %s\n", ("--" + option->long_name()).c_str(), option->description().c_str());
    }
    return 0;
  }
  configure_log(LogLevel::kError, LogFormat::kText);
  const DecisionLimits real{.deadline = milliseconds(deadline_ms)};
  const std::vector<fs::path> known = jobs_below(corpus);
  if (given.count("check") > 0) {
    const int findings = check(known, real);
    std::printf("%zu jobs, %d findings\n", known.size(), findings);
    return findings == 0 ? 0 : 1;
  }

  if (!output.empty()) {
    fs::create_directories(output);
  }
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed_number));
  const DecisionLimits brief{.deadline = milliseconds(search_deadline_ms), .grace = milliseconds(500)};
  SlowestSearch search({.seed = seed_number, .limits = brief});
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double, std::ratio<60>>(minutes));
  seed(search, known);
  for (auto next_line = Clock::now(); Clock::now() < end; search.step()) {
    if (Clock::now() >= next_line) {
      const std::vector<Found> worst = search.worst(2);
      std::printf("%lld decisions, %lld refused, %lld findings", static_cast<long long>(search.decisions()),
                  static_cast<long long>(search.refused()), static_cast<long long>(search.findings()));
      if (!worst.empty()) {
        std::printf("; slowest %lld ms and %lld after the deadline, largest %.1f MiB",
                    static_cast<long long>(worst.front().measured.processor_time.count()),
                    static_cast<long long>(worst.front().measured.overrun.count()),
                    static_cast<double>(worst.back().measured.peak_heap.count) / (1 << 20));
      }
      std::printf("\n");
      std::fflush(stdout);
      if (!output.empty()) {
        write_all(output, search.worst(kWorst), brief);
      }
      next_line = Clock::now() + std::chrono::seconds(15);
    }
  }
  std::printf("%lld decisions, %lld refused, %lld findings; the worst with a deadline of %lld ms:\n",
              static_cast<long long>(search.decisions()), static_cast<long long>(search.refused()),
              static_cast<long long>(search.findings()), static_cast<long long>(deadline_ms));
  int findings = 0;
  int number = 0;
  for (const Found& found : search.worst(kWorst)) {
    const Measured measured = measure_decision(job_of(found.spec), real);
    const std::string name = name_of_worst(++number);
    print(name, measured);
    findings += is_finding(measured) ? 1 : 0;
    if (!output.empty()) {
      write(fs::path(output) / name, found, measured, real);
    }
  }
  return findings == 0 ? 0 : 1;
}

}  // namespace
}  // namespace plimsoll::testing

int main(int argc, char** argv) {
  return plimsoll::testing::run(argc, argv);
}
