#include "estimator/estimate/ranks.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "estimator/parallel/pipeline.h"
#include "estimator/parallel/stages.h"
#include "estimator/parallel/tensor_split.h"

namespace plimsoll::estimator::inline estimate {
namespace {

using crds::ParallelStrategy;

// Trainers that differ and are looked at one by one.
constexpr std::int64_t kMaxOwners = 16;
constexpr std::int64_t kMaxUneven = 64;

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
  const bool staged = parallelism.pipeline > 1;
  const std::int64_t parts = request.iteration.gradient_accumulation;
  if (staged && strategy != ParallelStrategy::kAuto && strategy != ParallelStrategy::kDDP &&
      strategy != ParallelStrategy::kZeRO1) {
    return Error(ErrorCode::kUnsupported,
                 "the stages of a pipeline of an exported graph are replicated by DDP or ZeRO1; FSDP and "
                 "ZeRO2 and 3 within a pipeline are for model.transformer");
  }
  if (staged && (parts < 1 || request.iteration.batch % parts != 0)) {
    return invalid("the micro-batches must divide the batch of " + std::to_string(request.iteration.batch) +
                   ", are " + std::to_string(parts));
  }
  if (staged && request.iteration.zero_grad_before_backward) {
    return invalid("a pipeline has no moment between forward and backward at which gradients could be freed");
  }
  if (staged && parts < parallelism.pipeline) {
    return invalid("a pipeline of " + std::to_string(parallelism.pipeline) +
                   " stages needs at least as many micro-batches, has " + std::to_string(parts));
  }
  if (parallelism.pipeline_chunks > 1 && parts % parallelism.pipeline != 0) {
    return invalid("an interleaved pipeline needs a multiple of its " + std::to_string(parallelism.pipeline) +
                   " stages in micro-batches, has " + std::to_string(parts));
  }
  return {};
}

// Micro-batches that show all that a stage does, in multiples of the stages: warm-up, steady state and end.
constexpr std::int64_t kSteadyRounds = 3;

struct Cuts {
  PipelineCut pipeline;
  std::int64_t micro_batch = 1;  // samples
};

Cuts cuts_of(const crds::Parallelism& parallelism, const TraceRunRequest& iteration, TorchVersion version) {
  const std::int64_t all = iteration.gradient_accumulation;
  const std::int64_t run = std::min(all, parallelism.pipeline * kSteadyRounds);
  return {.pipeline = {.stages = parallelism.pipeline,
                       .stage = 0,
                       .chunks = parallelism.pipeline_chunks,
                       .micro_batches = run,
                       .further = all - run,
                       .version = version,
                       .budget = iteration.budget},
          .micro_batch = iteration.batch / std::max<std::int64_t>(1, all)};
}

// By the parameters of a stage, from those of the whole model.
std::vector<bool> apart_of(const Trace& stage, const Trace& whole, const std::vector<bool>& apart) {
  std::vector<bool> result;
  for (std::size_t i = 0, at = 0; i < stage.parameters.size() && !apart.empty(); ++i, ++at) {
    while (whole.parameters[at].name != stage.parameters[i].name) {
      ++at;
    }
    result.push_back(apart[at]);
  }
  return result;
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
      .collectives_copy = trace.device == Device::kCpu};
  const std::int64_t owners =
      parallelism.strategy == ParallelStrategy::kZeRO1 && replicas <= kMaxOwners ? replicas : 1;

  const Cuts cuts = cuts_of(parallelism, iteration, producer.version);
  const BudgetCause cause(iteration.budget, {"spec.training.parallelism.pipeline", parallelism.pipeline});

  RankRuns runs;
  using Place = std::tuple<std::int64_t, std::int64_t, std::int64_t>;  // stage, slice, owner
  Place heaviest;
  std::map<Place, Bytes> peaks;
  std::int64_t slices = 1;  // of each layer, that differ
  for (std::int64_t slice = 0; slice < slices; ++slice) {
    std::shared_ptr<const Trace> sliced;  // null: the whole model
    std::vector<bool> apart;
    if (parallelism.tensor > 1) {
      Result<SplitTrace> mine = split_trace(trace, cuts.micro_batch,
                                            {.ways = parallelism.tensor,
                                             .rank = slice,
                                             .columns = parallelism.split_columns,
                                             .rows = parallelism.split_rows,
                                             .budget = iteration.budget});
      if (!mine) {
        return mine.error();
      }
      slices = mine->uneven && parallelism.tensor <= kMaxUneven ? parallelism.tensor : 1;
      if (slice == 0 && !mine->taken.empty()) {
        runs.warnings.push_back(mine->taken);
      }
      apart = std::move(mine->split_parameters);
      sliced = std::make_shared<const Trace>(std::move(mine->trace));
    }
    const Trace& layers = sliced ? *sliced : trace;
    std::vector<std::int32_t> parts;  // of the pipeline, by operator
    if (parallelism.pipeline > 1) {
      Result<std::vector<std::int32_t>> found =
          parts_of_operators(layers, parallelism.pipeline * parallelism.pipeline_chunks,
                             parallelism.stage_blocks, iteration.budget);
      if (!found) {
        return found.error();
      }
      parts = *std::move(found);
    }
    for (std::int64_t stage = 0; stage < parallelism.pipeline; ++stage) {
      std::shared_ptr<const Trace> own = sliced;
      iteration.stepped_apart = apart;
      if (parallelism.pipeline > 1) {
        PipelineCut cut = cuts.pipeline;
        cut.stage = stage;
        own = std::make_shared<const Trace>(pipeline_trace(layers, cut, parts));
        iteration.stepped_apart = apart_of(*own, layers, apart);
        iteration.batch = cuts.micro_batch;
        iteration.gradient_accumulation = 1;
      }
      for (std::int64_t owner = 0; owner < owners; ++owner) {
        iteration.replication.rank = owner;
        Result<TraceRun> run = run_trace(own ? *own : trace, producer, iteration);
        if (!run) {
          return run.error();
        }
        const Place place(stage, slice, owner);
        const Bytes peak = run->ledger.peak();
        peaks[place] = peak;
        // Of equal ones the first, in the order of places.
        const Bytes highest = runs.heaviest ? runs.heaviest->ledger.peak() : Bytes{-1};
        if (peak > highest || (peak == highest && place < heaviest)) {
          heaviest = place;
          runs.heaviest = std::make_unique<TraceRun>(*std::move(run));
          runs.trace = own;
        }
      }
    }
  }
  for (std::int64_t stage = 0; stage < parallelism.pipeline; ++stage) {
    for (std::int64_t owner = 0; owner < owners; ++owner) {
      for (std::int64_t slice = 0; slice < slices; ++slice) {
        runs.peaks.push_back(peaks.at({stage, slice, owner}));
      }
    }
  }
  return runs;
}

}  // namespace plimsoll::estimator::estimate
