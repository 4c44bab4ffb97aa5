// estimate(): the peak GPU memory of one trainer, before the job has run.
//
//   EstimateRequest request{
//       .model = &job.spec.model, .training = &job.spec.training, .gpu = &a100, .trainers = 64};
//   Result<Estimate> estimate = estimate_memory(request);
//   Bytes for_the_sharder = a100.memory - estimate->peak.upper_bound;
//
// AMP's frame (SoCC'23 section 9.2.1): peak = fixed costs (CUDA context, communication) + dense parameters,
// gradients, DDP buckets and optimizer + training-time peak + the trainer's embedding shard. Without
// `embedding_bytes` the answer is the *reserved* memory that the sharder must leave free. Pure: no clock, no
// network, same input same output; any thread. Nothing is allocated at the model's size: shapes only.
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

// Errors: kInvalid (a dimension that cannot be), kUnsupported (a graph that lacks a trace or has an operator
// without a rule: says so). Throws the budget's BudgetExceeded, naming the size that is too large.
Result<Estimate> estimate_memory(const EstimateRequest& request);

// The same, many times over for one model: what neither the card nor the embeddings nor, mostly, the number
// of trainers change is simulated once. All else in the requests must stay as it was in the first. One
// thread.
class Estimator {
 public:
  Estimator();
  ~Estimator();
  Result<Estimate> estimate(const EstimateRequest& request);

 private:
  struct Run;
  Result<Run*> run_of(const EstimateRequest& request, const TransformerSpec* spec);
  Result<Estimate> by_simulation(const EstimateRequest& request);

  std::map<std::pair<std::int64_t, std::int64_t>, std::unique_ptr<Run>>
      runs_;  // by the trainers that matter, layers
};

}  // namespace plimsoll::estimator::estimate
