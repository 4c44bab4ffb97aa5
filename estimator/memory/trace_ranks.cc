#include "estimator/memory/trace_ranks.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "estimator/memory/tensor_split.h"

namespace plimsoll::estimator {
namespace {

using crds::ParallelStrategy;

// Trainers that differ and are looked at one by one.
constexpr std::int64_t kMostOwners = 16;
constexpr std::int64_t kMostUneven = 64;

Result<void> check(const RanksRequest& request, const Trace& trace) {
  const crds::Parallelism& parallelism = request.parallelism;
  if (parallelism.context > 1 || parallelism.expert > 1 || parallelism.sequence) {
    return Error(ErrorCode::kUnsupported,
                 "sequence, context and expert parallelism are for model.transformer; of an exported graph "
                 "tensor and pipeline split the model, and the rest holds replicas");
  }
  const std::int64_t product = parallelism.tensor * parallelism.pipeline;
  if (product < 1 || request.trainers % product != 0) {
    return invalid("trainers must be a multiple of parallelism.tensor x pipeline, " +
                   std::to_string(product) + ", is " + std::to_string(request.trainers));
  }
  const bool sparse = std::any_of(trace.parameters.begin(), trace.parameters.end(),
                                  [](const TraceParameter& each) { return each.sparse_gradient; });
  const ParallelStrategy strategy = parallelism.strategy;
  if (sparse && strategy != ParallelStrategy::kAuto && strategy != ParallelStrategy::kDDP) {
    return Error(ErrorCode::kUnsupported,
                 "sparse gradients go with DDP; FSDP and ZeRO take models whose gradients are dense");
  }
  return {};
}

}  // namespace

Result<RankRuns> run_ranks(const Trace& trace, const TraceProducer& producer, const RanksRequest& request) {
  if (Result<void> checked = check(request, trace); !checked) {
    return checked.error();
  }
  const crds::Parallelism& parallelism = request.parallelism;
  const std::int64_t replicas = request.trainers / (parallelism.tensor * parallelism.pipeline);
  TraceRunRequest iteration = request.iteration;
  const bool automatic = parallelism.strategy == ParallelStrategy::kAuto;
  iteration.replication = {
      .strategy = automatic && replicas > 1 ? ParallelStrategy::kDDP : parallelism.strategy,
      .replicas = replicas,
      .gradient_as_bucket_view = parallelism.gradient_as_bucket_view,
      .reshard_after_forward = parallelism.reshard_after_forward,
      .collectives_copy = trace.device == TraceDevice::kCpu};
  const std::int64_t owners =
      parallelism.strategy == ParallelStrategy::kZeRO1 && replicas <= kMostOwners ? replicas : 1;

  RankRuns runs;
  std::int64_t slices = 1;  // of each layer, that differ
  for (std::int64_t slice = 0; slice < slices; ++slice) {
    std::unique_ptr<const Trace> mine;
    bool kept = false;
    if (parallelism.tensor > 1) {
      Result<SplitTrace> split = split_trace(trace, iteration.batch / iteration.gradient_accumulation,
                                             {.ways = parallelism.tensor,
                                              .rank = slice,
                                              .columns = parallelism.split_columns,
                                              .rows = parallelism.split_rows});
      if (!split) {
        return split.error();
      }
      slices = split->uneven && parallelism.tensor <= kMostUneven ? parallelism.tensor : 1;
      if (slice == 0 && !split->taken.empty()) {
        runs.warnings.push_back(split->taken);
      }
      iteration.stepped_apart = split->split_parameters;
      mine = std::make_unique<const Trace>(std::move(split->trace));
    } else {
      mine = std::make_unique<const Trace>(trace);
    }
    for (std::int64_t owner = 0; owner < owners; ++owner) {
      iteration.replication.rank = owner;
      Result<TraceRun> run = run_trace(*mine, producer, iteration);
      if (!run) {
        return run.error();
      }
      runs.peaks.push_back(run->ledger.peak());
      if (!runs.heaviest || run->ledger.peak() > runs.heaviest->ledger.peak()) {
        runs.heaviest = std::make_unique<TraceRun>(*std::move(run));
        kept = true;
      }
    }
    if (kept) {
      runs.trace = std::move(mine);
    }
  }
  return runs;
}

}  // namespace plimsoll::estimator
