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
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/budget.h"
#include "base/bytes.h"
#include "base/result.h"
#include "estimator/spec/transformer_spec.h"
#include "estimator/types/request.h"  // IWYU pragma: export

namespace plimsoll::estimator::inline estimate {

// Errors: kInvalid (an impossible dimension), kUnsupported (the graph lacks a trace, or has an operator
// without a rule; the message says which). Throws the budget's BudgetExceeded, which names the size that is
// too large.
Result<Estimate> estimate_memory(const EstimateRequest& request);

// Estimates for several requests of one model. What does not depend on the GPU, the embeddings or, in most
// cases, the number of trainers is simulated once. All other fields must be equal in all requests. Not
// thread-safe.
class Estimator {
 public:
  Estimator();
  ~Estimator();
  Result<Estimate> estimate(const EstimateRequest& request);

 private:
  struct Run;
  Result<Run*> run_of(const EstimateRequest& request, const TransformerSpec* spec);
  Result<Estimate> by_simulation(const EstimateRequest& request);

  // By number of trainers (trainers_that_matter) and layers.
  std::map<std::pair<std::int64_t, std::int64_t>, std::unique_ptr<Run>> runs_;
};

}  // namespace plimsoll::estimator::estimate
