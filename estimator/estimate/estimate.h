// estimate(): the peak GPU memory of one trainer, before the job has run.
//
//   EstimateRequest request{
//       .model = &job.spec.model, .training = &job.spec.training, .gpu = &a100, .trainers = 64};
//   Result<Estimate> estimate = estimate_memory(request);
//   Bytes for_the_sharder = a100.memory - estimate->peak.upper_bound;
//
// The structure is AMP's (SoCC'23 section 9.2.1): peak = fixed costs (CUDA context, communication) + dense
// parameters, gradients, DDP buckets and optimizer + training-time peak + the trainer's embedding shard.
// Without `embedding_bytes` the result is the *reserved* memory that the sharder must leave free. Pure: no
// clock, no network; equal input gives equal output; any thread. It works on shapes and allocates nothing of
// the model's size.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/budget.h"
#include "base/bytes.h"
#include "base/result.h"
#include "estimator/estimate/floor.h"
#include "estimator/estimate/spec_parts.h"
#include "estimator/spec/transformer_spec.h"
#include "estimator/types/request.h"  // IWYU pragma: export

namespace plimsoll::estimator::inline estimate {

// Errors: kInvalid (an impossible dimension), kUnsupported (the graph lacks a trace, or has an operator
// without a rule; the message says which). Throws the budget's BudgetExceeded, which names the size that is
// too large.
Result<Estimate> estimate_memory(const EstimateRequest& request);

// Estimates for several requests of one model. What does not depend on the GPU, the embeddings or, in most
// cases, the number of trainers is simulated once; the last few simulations are kept. All other fields but the
// batch size and its parts must be equal in all requests. Not thread-safe.
class Estimator {
 public:
  Estimator();
  ~Estimator();
  Result<Estimate> estimate(const EstimateRequest& request);

  // Whether that estimate's upper bound is at most request.capacity, or the GPU's memory without it. Needs
  // request.gpu. Faster than the estimate, most of all where it does not fit.
  Result<bool> fits(const EstimateRequest& request);

  // What a trainer's tensors take at least on at most request.trainers, as a run of these shows: by the number of
  // trainers that hold the same part of the model (holders_of).
  Result<MemoryFloor> floor(const EstimateRequest& request);

 private:
  struct Run;
  struct Key {
    std::int64_t trainers = 0;  // trainers_that_matter()
    std::int64_t layers = 0;
    std::int64_t batch_size = 0;
    std::int64_t accumulation = 0;
    bool without_padding = false;
    bool has_flash = true;
    std::string gpu_family{};                      // of a graph
    std::optional<Bytes> convolution_workspace{};  // of a graph
    bool operator==(const Key&) const = default;
  };
  Result<Run*> run_of(const EstimateRequest& request, const TransformerSpec* spec);
  Result<Run*> single_run(const EstimateRequest& request);  // null: several runs, or a formula
  Result<Estimate> by_simulation(const EstimateRequest& request);

  KnownSpecParts parts_;
  std::list<std::pair<Key, std::unique_ptr<Run>>> runs_;  // the last used first
};

}  // namespace plimsoll::estimator::estimate
