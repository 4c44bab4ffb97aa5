#include "estimator/estimate/ranks.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "estimator/parallel/optimizer_support.h"
#include "estimator/parallel/pipeline.h"
#include "estimator/parallel/stages.h"
#include "estimator/parallel/tensor_split.h"

namespace plimsoll::estimator::inline estimate {
namespace {

using crds::ParallelStrategy;

// Maximum numbers of different ranks that are run one by one.
constexpr std::int64_t kMaxOwners = 16;
constexpr std::int64_t kMaxUneven = 64;

Result<void> check(const RanksRequest& request, const Trace& trace) {
  const crds::Parallelism& parallelism = request.parallelism;
  if (parallelism.context > 1 || parallelism.expert > 1 || parallelism.sequence) {
    return Error(
        ErrorCode::kUnsupported,
        "sequence, context and expert parallelism are for model.transformer; an exported graph supports "
        "tensor and pipeline parallelism, and the remaining trainers hold replicas");
  }
  const std::int64_t product = parallelism.tensor * parallelism.pipeline;
  if (product < 1 || request.trainers % product != 0) {
    return invalid("trainers must be a multiple of parallelism.tensor x pipeline, " +
                   std::to_string(product) + ", is " + std::to_string(request.trainers));
  }
  if (Result<void> checked = check_replicate(parallelism, request.trainers / product); !checked) {
    return checked;
  }
  const bool sparse = std::any_of(trace.parameters.begin(), trace.parameters.end(),
                                  [](const TraceParameter& each) { return each.sparse_gradient; });
  const ParallelStrategy strategy = parallelism.strategy;
  if (sparse && strategy != ParallelStrategy::kAuto && strategy != ParallelStrategy::kDDP) {
    return Error(ErrorCode::kUnsupported,
                 "sparse gradients need DDP; FSDP and ZeRO support only dense gradients");
  }
  if (Result<void> checked = check_steps(parallelism, request.steps_in_backward, request.trainers / product,
                                         request.iteration.gradient_accumulation);
      !checked) {
    return checked;
  }
  const bool staged = parallelism.pipeline > 1;
  const std::int64_t parts = request.iteration.gradient_accumulation;
  if (staged && strategy != ParallelStrategy::kAuto && strategy != ParallelStrategy::kDDP &&
      strategy != ParallelStrategy::kZeRO1) {
    return Error(ErrorCode::kUnsupported,
                 "the stages of a pipeline of an exported graph are replicated by DDP or ZeRO1; FSDP and "
                 "ZeRO2 and ZeRO3 in a pipeline are for model.transformer");
  }
  if (staged && (parts < 1 || request.iteration.batch % parts != 0)) {
    return invalid("the number of micro-batches must divide the batch of " +
                   std::to_string(request.iteration.batch) + ", is " + std::to_string(parts));
  }
  if (staged && request.iteration.zero_grad_before_backward) {
    return invalid("a pipeline cannot free gradients between forward and backward");
  }
  if (staged && parts < parallelism.pipeline) {
    return invalid("a pipeline of " + std::to_string(parallelism.pipeline) +
                   " stages needs at least as many micro-batches, has " + std::to_string(parts));
  }
  if (parallelism.pipeline_chunks > 1 && parts % parallelism.pipeline != 0) {
    return invalid("an interleaved pipeline needs a multiple of its " + std::to_string(parallelism.pipeline) +
                   " stages in micro-batches, has " + std::to_string(parts));
  }
  return check_optimizer(request.iteration.optimizer, parallelism, request.trainers / product,
                         parallelism.tensor > 1);
}

// Rounds of micro-batches that show everything that a stage does: warm-up, steady state and end.
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
                       .unsimulated = all - run,
                       .version = version,
                       .budget = iteration.budget},
          .micro_batch = iteration.batch / std::max<std::int64_t>(1, all)};
}

// The parameters of a stage with a separate optimizer step, from those of the whole model.
std::vector<bool> separate_step_of(const Trace& stage, const Trace& whole,
                                   const std::vector<bool>& separate) {
  std::vector<bool> result;
  for (std::size_t i = 0, at = 0; i < stage.parameters.size() && !separate.empty(); ++i, ++at) {
    while (whole.parameters[at].name != stage.parameters[i].name) {
      ++at;
    }
    result.push_back(separate[at]);
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
      .replicate = parallelism.replicate,
      .gradient_as_bucket_view = parallelism.gradient_as_bucket_view,
      .reshard_after_forward = parallelism.reshard_after_forward,
      .collectives_copy = trace.device == Device::kCpu,
      .reduce_bucket_elements = parallelism.reduce_bucket_size,
      .offload = parallelism.offload,
      .offload_percent = parallelism.offload_percent,
      .steps_in_backward = request.steps_in_backward,
      .without_padding = request.iteration.replication.without_padding};
  const std::int64_t owners =
      parallelism.strategy == ParallelStrategy::kZeRO1 && replicas <= kMaxOwners ? replicas : 1;

  const Cuts cuts = cuts_of(parallelism, iteration, producer.version);
  const BudgetCause cause(iteration.budget, {"spec.training.parallelism.pipeline", parallelism.pipeline});

  RankRuns runs;
  using Rank = std::tuple<std::int64_t, std::int64_t, std::int64_t>;  // stage, slice, owner
  Rank heaviest;
  std::map<Rank, Bytes> peaks;
  std::int64_t slices = 1;  // number of different slices of each layer
  for (std::int64_t slice = 0; slice < slices; ++slice) {
    std::shared_ptr<const Trace> sliced;  // null: the whole model
    std::vector<bool> separate;
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
      if (slice == 0 && !mine->note.empty()) {
        runs.warnings.push_back(mine->note);
      }
      separate = std::move(mine->split_parameters);
      sliced = std::make_shared<const Trace>(std::move(mine->trace));
    }
    const Trace& layers = sliced ? *sliced : trace;
    std::vector<std::int32_t> parts;  // of the pipeline, indexed by operator
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
      iteration.separate_step = separate;
      if (parallelism.pipeline > 1) {
        PipelineCut cut = cuts.pipeline;
        cut.stage = stage;
        own = std::make_shared<const Trace>(pipeline_trace(layers, cut, parts));
        iteration.separate_step = separate_step_of(*own, layers, separate);
        iteration.batch = cuts.micro_batch;
        iteration.gradient_accumulation = 1;
      }
      for (std::int64_t owner = 0; owner < owners; ++owner) {
        iteration.replication.rank = owner;
        Result<TraceRun> run = run_trace(own ? *own : trace, producer, iteration);
        if (!run) {
          return run.error();
        }
        const Rank rank(stage, slice, owner);
        const Bytes peak = run->ledger.peak();
        peaks[rank] = peak;
        // Among equal peaks, the first rank in order.
        const Bytes highest = runs.heaviest ? runs.heaviest->ledger.peak() : Bytes{-1};
        if (peak > highest || (peak == highest && rank < heaviest)) {
          heaviest = rank;
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
