// The search behind shard(): which option each table takes, and where its shards go.
//
//   const PlacedSelection found = search(request, options, limits, bound_time(options, trainers, limits));
//   if (found.fits(limits)) use(found.selection, found.places);
//
// docs/sharding.md describes the method. Deterministic: effort is counted in comparisons, not in time. Pure;
// any thread; the result refers to the options, which must outlive it.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "estimator/sharder/bound.h"
#include "estimator/sharder/options.h"
#include "estimator/sharder/plan.h"
#include "estimator/sharder/selection.h"

namespace plimsoll::estimator::inline sharder {

// By table: the ranks of its column blocks, or their nodes; none where every rank does the same work.
class Places {
 public:
  Places() = default;
  explicit Places(const Selection& selection);

  std::size_t tables() const { return first_.size() - 1; }
  std::span<std::int64_t> of(std::size_t table) {
    return {all_.data() + first_[table], all_.data() + first_[table + 1]};
  }
  std::span<const std::int64_t> of(std::size_t table) const {
    return {all_.data() + first_[table], all_.data() + first_[table + 1]};
  }

 private:
  std::vector<std::int64_t> all_;
  std::vector<std::size_t> first_;
};

// A selection with a place for every shard.
struct PlacedSelection {
  Selection selection;
  Places places;
  double highest_ms = 0;
  double highest_bytes =
      0;  // in GPU memory; a trainer with a smaller budget counts as filled by the difference
  double highest_host = 0;
  std::int64_t slowest = 0;                                // rank
  std::int64_t fullest = 0;                                // rank
  double score = std::numeric_limits<double>::infinity();  // lower is better

  bool fits(const MemoryLimits& limits) const {
    return highest_bytes <= limits.gpu && highest_host <= limits.host;
  }
};

// The best placement found, which may exceed the limits. Every table must have an option.
PlacedSelection search(const ShardRequest& request, const Options& options, const MemoryLimits& limits,
                       const TimeBound& bound);

}  // namespace plimsoll::estimator::sharder
