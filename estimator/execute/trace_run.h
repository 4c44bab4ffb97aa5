// TraceRun: what run_trace() (run_trace.h) found: the ledger of one trainer's iteration, and what each of its blocks belongs to.
//
//   found.ledger.peak();
//   found.name_of(block);   // "layers.3.mlp: aten::addmm"
//
// A plain value; any thread. The traces that were run must outlive it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/budget.h"
#include "base/bytes.h"
#include "estimator/kernels/convolution.h"
#include "estimator/ledger/ledger.h"
#include "estimator/parallel/life_cycle.h"
#include "estimator/trace/host_memory.h"
#include "estimator/trace/lookups.h"
#include "estimator/trace/optimizer.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline execute {

class TraceRun {
 public:
  Ledger ledger;
  std::vector<std::string> warnings;
  LookupLevels lookups;
  HostMemory host;
  Bytes kept_after_forward;        // storages live at the end of the first forward pass
  ConvolutionTotals convolutions;  // of one forward pass; zero on the CPU
  // The parameters that replicas synchronize or shard, and how.
  struct Replicated {
    Replication replication;
    OptimizerRun optimizer;
    BudgetVector<ReplicaParameter> parameters;
  } replicated;

  // What a block belongs to. kParameter: a parameter's gradient, state or bucket, or a block that is gathered
  // or scattered with it.
  enum class Source : std::uint8_t { kStorage, kRecomputed, kKernel, kState, kStep, kParameter };
  struct Origin {
    Source source = Source::kStorage;
    std::int32_t chunk = 0;
    std::int32_t id = 0;  // of the storage, operator or parameter
  };
  const Origin& origin_of(BlockId block) const { return origins_[static_cast<std::size_t>(block)]; }
  std::string name_of(BlockId block) const;
  const char* kind_of(BlockId block) const;  // "parameter", "activation", "kernel temporary", ...

 private:
  friend class TraceIteration;
  TraceRun(std::int64_t granule, Budget* budget)
      : ledger(granule, budget),
        replicated{{}, {}, BudgetVector<ReplicaParameter>(budget)},
        origins_(budget) {}

  std::vector<const Trace*> traces_;  // indexed by chunk
  BudgetVector<Origin> origins_;      // indexed by block
};

}  // namespace plimsoll::estimator::execute
