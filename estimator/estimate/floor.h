// MemoryFloor: what a trainer's tensors take at least, with their margins, for any number of trainers, from the run of
// one number. A search for the fewest trainers skips the numbers that it excludes (provisioner/trainer_count_search.h).
//
//   const MemoryFloor floor(trace_run, request);  // of at least two replicas
//   if (floor.at(64) > capacity) skip(64);
//
// The tensors of the model's own operators are equal for any number of replicas: each has its own batch. What replicas
// share is live in the whole iteration, and its bytes are known for each number (persistent_bytes). Where they gather
// parameters, the blocks of the exchange come in the same order for any number with several shards. If the run is
// without their padding (Replication::without_padding), each is at least as large with fewer trainers, and so is the
// peak: at the moment of this run's peak, all of these blocks are live there too. The margins are shares of the same
// blocks (margins.h).
// A value; const methods on any thread. Refers to the budget of its run.
#pragma once

#include <algorithm>
#include <optional>

#include "base/budget.h"
#include "base/bytes.h"
#include "estimator/execute/run_trace.h"
#include "estimator/types/request.h"

namespace plimsoll::estimator::inline estimate {

class MemoryFloor {
 public:
  MemoryFloor() = default;  // excludes nothing
  MemoryFloor(const TraceRun& run, const EstimateRequest& request);

  // Never rises with `replicas`, the trainers that hold the same part of the model, from several shards on. Zero for a
  // single one, unless the strategy gathers.
  Bytes at(std::int64_t replicas, Budget* budget = nullptr) const;

  // Of what comes before the iterations: at() is never less.
  void raise_to(Bytes least) { least_ = std::max(least_, least); }

 private:
  Bytes of_iterations(std::int64_t replicas, Budget* budget) const;

  Bytes least_;
  Bytes traced_;                    // the peak of what the model's own operators allocate
  Bytes margin_;                    // of them
  std::optional<Bytes> exchanged_;  // the peak of these and of what is gathered and reduced, with its margins
  std::optional<TraceRun::Replicated> sharded_;
};

}  // namespace plimsoll::estimator::estimate
