// iteration_time(): the time of one training iteration of a job on a card and a number of trainers, with its parts.
//
//   Result<IterationTime> time = iteration_time({.job = request, .embedding_seconds = plan.max_milliseconds / 1000});
//   time->seconds; time->samples_per_second;
//   time->parts;                  // "matrix products" 1.93 s, "attention" 0.32 s, ... which sum to `seconds`
//
// The model is lowered as for the memory estimate, with the same split. Each operator takes the larger of its arithmetic at
// the card's speed for its precision and its bytes at the memory's bandwidth. What strategies exchange behind computation
// counts only where it takes longer. A stage of a pipeline runs its micro-batches, and waits (pipeline - 1) / chunks of
// them. docs/speed.md explains the terms and how far they are from published measurements. The job must be one that the
// estimator accepts. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "estimator/types/request.h"

namespace plimsoll::estimator::inline speed {

struct TimePart {
  std::string name;
  double seconds = 0;
};

// Nine of ten rows of the tables in docs/speed.md that chose no constant took at most this many times as long as predicted, and at
// least this part of it.
inline constexpr double kTransformerUncertainty = 1.3;
inline constexpr double kFloat8Uncertainty = 1.8;
// Of models with embedding tables two rows are known (published_dlrm_test.cc).
inline constexpr double kTablesUncertainty = 1.7;
// The same of timm's models on an RTX 3090 (tests/accuracy/graph_speed.py).
inline constexpr double kGraphUncertainty = 1.7;

struct IterationTime {
  double seconds = 0;
  double samples_per_second = 0;                 // of all trainers
  double uncertainty = kTransformerUncertainty;  // a factor, by the kind of model
  std::vector<TimePart> parts;  // those that occur, in the order of docs/speed.md; they sum to `seconds`
};

struct SpeedRequest {
  EstimateRequest job;  // gpu: required
  // Of a model with tables: what the sharder's plan takes (Plan::max_milliseconds).
  std::optional<double> embedding_seconds{};
  // Exchanges run behind computation where that is not the default: torchtitan's async tensor parallelism, Megatron-LM's
  // --tp-comm-overlap, --overlap-grad-reduce and --overlap-param-gather.
  bool overlaps_exchanges = false;
  bool half_gradients =
      false;  // Megatron-LM's --grad-reduce-in-bf16: else it reduces gradients of BF16 in fp32
};

// Errors: kUnsupported if cards.csv has no figures for the card or the precision or its bandwidths are not known, for a graph that
// is split other than by replicas or checkpointed selectively, and for a model with tables but no plan; those of
// lower_transformer(), lower_dlrm() and select_trace(); kInvalid for sizes that do not divide the trainers.
Result<IterationTime> iteration_time(const SpeedRequest& request);

}  // namespace plimsoll::estimator::speed
