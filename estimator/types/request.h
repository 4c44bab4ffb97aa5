// EstimateRequest and Estimate: request and result of the estimator. Value types; the request points to
// objects that the caller owns.
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
#include "estimator/trace/between_iterations.h"
#include "estimator/trace/host_memory.h"
#include "estimator/trace/lookups.h"
#include "estimator/trace/trace.h"
#include "estimator/types/runtime_settings.h"

namespace plimsoll::estimator::inline types {

enum class Method {
  kPlimsoll,  // symbolic execution with per-operator autograd rules; each storage counts once
  kAmp,       // AMP's published formula: 10 micro-batches, regression, maximum of forward and backward sums
};

struct EstimateRequest {
  const crds::ModelSpec* model = nullptr;        // required; tables_from is already resolved into its tables
  const crds::TrainingSpec* training = nullptr;  // required
  const TraceFile* graph = nullptr;              // the graph that model->graph refers to, already imported
  const GpuModel* gpu = nullptr;                 // null: no fixed costs of a GPU are counted (device kCpu)
  std::int64_t trainers = 1;                     // world size: communication grows with it (Findings 7, 12)
  std::int64_t per_node = 8;
  Bytes embedding_bytes{};        // of the most loaded trainer, if a sharding plan is known (Finding 4)
  crds::LearnedBounds learned{};  // from the family's MemoryProfile
  crds::LearnedBounds given{};    // the part of `learned` that users set
  Method method = Method::kPlimsoll;
  Device device = Device::kCuda;
  bool reentrant_checkpointing = false;    // graphs: torch.utils.checkpoint's use_reentrant=True
  bool zero_grad_before_backward = false;  // graphs: gradients are freed before backward, not before forward
  // This alone instead of an iteration, a validation pass with batch_size_per_trainer samples. Only
  // estimate/other_passes.h sets it.
  std::optional<BetweenIterations> between{};
  // What comes before the first iteration: no library has its workspace yet. Only estimate/initialisation.h sets it.
  bool before_iterations = false;
  // Replication::without_padding: sizes that fewer trainers have at least (estimate/floor.h).
  bool without_padding = false;
  bool next_batch_early = false;  // the next batch arrives on the GPU before the last one is freed
  bool lenient = false;  // graphs: charge an operator without a rule a bound and warn, instead of failing
  RuntimeSettings runtime{};        // from the job's environment variables
  std::optional<Bytes> capacity{};  // GPU memory for this trainer; absent: all of gpu->memory
  Budget* budget = nullptr;         // of the decision; null: no limit
};

// The parts sum exactly to the peak. A part that does not occur is zero.
struct Breakdown {
  Bytes parameters;
  Bytes gradients;
  Bytes optimizer_state;
  Bytes inputs;
  Bytes activations;
  Bytes temporaries;
  Bytes ddp_buckets;
  Bytes embeddings;
  Bytes allocator_slack;  // memory that the allocator reserves beyond the tensors, and the safety margin
  Bytes workspace;
  Bytes communication;
  Bytes cuda_context;

  Bytes total() const;
};

struct Peak {
  Bytes allocated;    // tensors and workspaces: torch.cuda.max_memory_allocated of a steady-state iteration
  Bytes reserved;     // torch.cuda.max_memory_reserved on this GPU
  Bytes upper_bound;  // safe bound on all memory used on the GPU; equals breakdown.total()
};

// Room in the upper bound for one thing that the simulation cannot know.
struct Margin {
  std::string name;    // in docs/estimation.md, "The upper bound"
  Bytes bytes;         // part of breakdown.allocator_slack
  std::string source;  // of its figure
};

// A block that is live at the peak.
struct LiveTensor {
  std::string name;  // of the parameter, or of the module and operator that allocated it
  std::string kind;  // "parameter", "gradient", "activation", "kernel temporary", ...
  Bytes bytes;
};

// Estimate::peak_phase before the first iteration.
inline constexpr const char* kBeforeIterations = "Initialisation";

// Before the first iteration, of a model that trainers shard (training.initialisation).
struct InitialPeak {
  crds::Initialisation where = crds::Initialisation::kCPU;  // as it was counted; not kAuto
  Bytes upper_bound;                                        // of Estimate::peak, then
  std::optional<Bytes> on_cpu{};  // if it were made there; nothing for parts of a model
  std::optional<Bytes> on_gpu{};
  std::string warning{};  // for users; empty: none. Also among Estimate::warnings
};

struct Estimate {
  Peak peak;
  Breakdown breakdown;
  std::string peak_phase;  // "Initialisation" | "Forward" | "Backward" | "OptimizerStep"
  // The part of the upper bound that comes from `learned` minus `given`; negative if these lowered it.
  Bytes learned;
  Bytes dense_parameters;                  // parameter bytes of the dense part of the model
  std::vector<Margin> margins{};           // empty on the CPU and for kAmp
  std::vector<LiveTensor> largest_live{};  // at the peak, at most ten, largest first; empty for kAmp
  std::vector<std::string> warnings{};
  HostMemory host{};                     // of the trainer; zero for kAmp
  std::optional<InitialPeak> initial{};  // nothing on the CPU, for kAmp, and where no model is sharded
  // Of graphs with embedding tables: tensors that are live at its lookups, when their exchanges take memory too.
  std::optional<LookupLevels> lookups{};
  // The allocated peak of each rank, if ranks differ (pipeline stages, owners under ZeRO-1).
  std::vector<Bytes> allocated_by_rank{};
};

// The format in docs/cli.md: {"allocatedBytes", "reservedBytes", "upperBoundBytes"}, and the twelve members
// of the breakdown.
Json to_json(const Peak& peak);
Json to_json(const Breakdown& breakdown);
// [{"allocatedBytes"}]
Json to_json(const std::vector<Bytes>& allocated_by_rank);
Json to_json(const std::vector<LiveTensor>& tensors);  // [{name, kind, bytes}]
Json to_json(const std::vector<Margin>& margins);      // [{name, bytes, source}]
Json to_json(const InitialPeak& initial);              // {where, upperBoundBytes, onCpu..., onGpu...}
Json to_json(const HostMemory& host);                  // {parameters, gradients, optimizerState, checkpoint}

}  // namespace plimsoll::estimator::types
