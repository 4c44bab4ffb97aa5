// The search for the slowest decision: evolution of TrainingJobs, for processor time and for peak heap.
//
//   SlowestSearch search({.seed = 7, .limits = {.deadline = std::chrono::milliseconds(500)}});
//   search.add(job);                        // from an earlier search
//   while (time_left()) search.step();
//   for (const Found& found : search.worst(10)) write(found);
//
// It keeps the worst job of each kind (model, interaction or architecture, ways to parallelise, reason of the
// decision), as MAP-Elites does (Mouret and Clune, arXiv 1504.04909): many roads stay open, and one bad kind
// does not hide the others. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/fuzz/slowest/job_mutator.h"
#include "tests/fuzz/slowest/measured_decision.h"

namespace plimsoll::testing {

struct Found {
  crds::TrainingJobSpec spec;
  Measured measured;
};

class SlowestSearch {
 public:
  struct Options {
    std::uint64_t seed = 1;
    // Short, for more decisions in an hour: what is beyond a deadline does not depend on when it was.
    DecisionLimits limits{.deadline = std::chrono::milliseconds(500),
                          .grace = std::chrono::milliseconds(500)};
  };

  explicit SlowestSearch(Options options) : options_(options), random_(options.seed) {}

  void add(const crds::TrainingJobSpec& spec);
  // One more job, made at random or of those that are kept, decided and perhaps kept.
  void step();

  // By time, then by heap, the worst first; each at most once.
  std::vector<Found> worst(std::size_t most) const;
  std::int64_t decisions() const { return decisions_; }  // of valid jobs
  std::int64_t refused() const { return refused_; }      // invalid, or larger than the API server takes
  // Beyond deadline plus 100 ms, beyond 256 MiB, killed or crashed.
  std::int64_t findings() const { return findings_; }

 private:
  struct Kept {
    Found slowest;
    Found largest;
  };

  const crds::TrainingJobSpec& any_kept();

  const Options options_;
  Random random_;
  std::map<std::string, Kept> kept_;  // by kind
  std::int64_t decisions_ = 0;
  std::int64_t refused_ = 0;
  std::int64_t findings_ = 0;
};

inline constexpr std::chrono::milliseconds kOverrunLimit{100};
inline constexpr Bytes kHeapLimit = 256_MiB;

bool is_finding(const Measured& measured);

}  // namespace plimsoll::testing
