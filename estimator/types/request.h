// EstimateRequest and Estimate: what the estimator is asked, and what it answers. Value types; the request
// points to what its caller owns.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/budget.h"
#include "base/bytes.h"
#include "base/json/json.h"
#include "crds/memory_profile.h"
#include "crds/training_job.h"
#include "estimator/catalog/gpu_catalog.h"
#include "estimator/trace/trace.h"
#include "estimator/types/runtime_settings.h"

namespace plimsoll::estimator::inline types {

enum class Method {
  kPlimsoll,  // symbolic execution with per-operator autograd rules and storages counted once
  kAmp,       // the published formula: 10 micro-batches, regression, max of forward and backward sums
};

struct EstimateRequest {
  const crds::ModelSpec* model = nullptr;        // required; tables_from already resolved into dlrm->tables
  const crds::TrainingSpec* training = nullptr;  // required
  const TraceFile* graph = nullptr;              // what model->graph refers to, once it has been read
  const GpuModel* gpu = nullptr;                 // null: no fixed costs of a card are counted (device kCpu)
  std::int64_t trainers = 1;                     // world size: communication grows with it (Findings 7, 12)
  std::int64_t per_node = 8;
  Bytes embedding_bytes{};        // of the most loaded trainer, once a plan is known (Finding 4)
  crds::LearnedBounds learned{};  // from the family's MemoryProfile
  crds::LearnedBounds given{};    // of these, what people set
  Method method = Method::kPlimsoll;
  Device device = Device::kCuda;
  bool reentrant_checkpointing = false;    // graphs: torch.utils.checkpoint's use_reentrant=True
  bool zero_grad_before_backward = false;  // graphs: the loop frees gradients there, not before forward
  bool next_batch_early = false;           // the loader brings it to the card before the last one is freed
  bool lenient = false;  // graphs: charge an operator without a rule a bound, and warn, instead of refusing
  RuntimeSettings runtime{};        // what the job's environment sets
  std::optional<Bytes> capacity{};  // of the card, for this trainer; absent: all of gpu->memory
  Budget* budget = nullptr;         // of the decision; null: no limit
};

// Sums exactly to the peak. Zero where a part plays no role.
struct Breakdown {
  Bytes parameters;
  Bytes gradients;
  Bytes optimizer_state;
  Bytes inputs;
  Bytes activations;
  Bytes temporaries;
  Bytes ddp_buckets;
  Bytes embeddings;
  Bytes allocator_slack;  // what its allocator holds beyond the tensors, and the safety margin
  Bytes workspace;
  Bytes communication;
  Bytes cuda_context;

  Bytes total() const;
};

struct Peak {
  Bytes allocated;    // tensors and workspaces: torch.cuda.max_memory_allocated of a steady-state iteration
  Bytes reserved;     // torch.cuda.max_memory_reserved on this card
  Bytes upper_bound;  // everything on the card, safe; equals breakdown.total()
};

// Something that is alive at the peak.
struct LiveTensor {
  std::string name;  // of the parameter, or of the module and operator that made it
  std::string kind;  // "parameter", "gradient", "activation", "kernel temporary", ...
  Bytes bytes;
};

struct Estimate {
  Peak peak;
  Breakdown breakdown;
  std::string peak_phase;  // "Forward" | "Backward" | "OptimizerStep"
  // Of the upper bound, what `learned` of the request, beyond `given`, made of it; less than 0 where it took
  // away.
  Bytes learned;
  Bytes dense_parameters;                  // parameter bytes of the dense part of the model
  std::vector<LiveTensor> largest_live{};  // at the peak, at most ten, largest first; not AMP's
  std::vector<std::string> warnings{};
  // Where trainers differ (stages of a pipeline, owners under ZeRO-1), the allocated peak of each.
  std::vector<Bytes> allocated_by_rank{};
};

// The contract of docs/cli.md: {"allocatedBytes", "reservedBytes", "upperBoundBytes"}, and the breakdown's
// twelve.
Json to_json(const Peak& peak);
Json to_json(const Breakdown& breakdown);
// [{"allocatedBytes"}]
Json to_json(const std::vector<Bytes>& allocated_by_rank);
Json to_json(const std::vector<LiveTensor>& tensors);  // [{name, kind, bytes}]

}  // namespace plimsoll::estimator::types
