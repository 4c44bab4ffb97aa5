// SharedParameters: which parameters of a trainer's chunks its life cycle manages (parallel/life_cycle.h), and what that must know of
// each: those with dense gradients, and frozen ones where the strategy gathers parameters. Warns of what sharding costs.
//
//   SharedParameters shared(request);
//   const ChunkParameters of_chunk = shared.add(0, trace, prepared);
//   of_chunk.shared[storage];    // the life cycle's parameter that is in this storage, or -1
//   shared.origin(parameter);    // the chunk, and which of its parameters
//
// One thread. The request and its budget must outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/budget.h"
#include "estimator/execute/prepared_trace.h"
#include "estimator/execute/run_trace.h"
#include "estimator/parallel/life_cycle.h"
#include "estimator/trace/optimizer.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline execute {

// Whether nothing is shared with other trainers.
bool is_alone(const Replication& replication);

struct ChunkParameters {
  std::vector<SteppedParameter> own{};  // with sparse gradients: whoever runs the chunk manages them
  std::vector<std::int32_t> shared{};   // by storage: its parameter in the life cycle; -1: none
  std::int32_t first_unit = 0;          // numbers of the chunk's units in the life cycle
  std::int32_t end_unit = 0;
};

class SharedParameters {
 public:
  struct Origin {
    std::int32_t chunk = 0;
    std::size_t parameter = 0;
  };

  explicit SharedParameters(const TraceRunRequest& request)
      : request_(request), parameters_(request.budget) {}

  // DDP has no buckets for sparse gradients (reducer.cpp: expect_sparse_gradient). Units are numbered on from the last chunk's.
  ChunkParameters add(std::int32_t chunk, const Trace& trace, const PreparedTrace& prepared);

  const Origin& origin(std::size_t parameter) const { return origins_[parameter]; }
  const std::vector<Origin>& origins() const { return origins_; }
  // Indexed as `origin`; for the life cycle, once.
  BudgetVector<ReplicaParameter> take_parameters() { return std::move(parameters_); }

  // Warns once, of the first parameter of which FSDP2 pads much: equal layers have the same.
  void warn_of_padding(const std::string& name, const ReplicaParameter& parameter);
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  void add(std::int32_t chunk, const Trace& trace, const PreparedTrace& prepared,
           const SteppedParameter& parameter, bool trained, ChunkParameters& of_chunk);
  std::int32_t next() const { return static_cast<std::int32_t>(origins_.size()); }

  const TraceRunRequest& request_;
  BudgetVector<ReplicaParameter> parameters_;
  std::vector<Origin> origins_;
  std::int32_t end_unit_ = 0;
  std::vector<std::string> warnings_;
  bool warned_of_padding_ = false;
};

}  // namespace plimsoll::estimator::execute
