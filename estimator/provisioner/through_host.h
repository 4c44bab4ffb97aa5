// How a job that no allowed GPUs hold trains through host memory (provisioning.placement HBMOrSwap): by a swap plan on the GPUs of
// one node, or with embedding tables in host memory.
//
//   Result<SwapChoice> choice = by_swap_plan({.request = &request, .original = &original, .capable = &capable});
//   Result<Provision> answer = with_tables_on_hosts(request, capable, decide);
//
// Pure; any thread; both charge the request's budget.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "estimator/host_training/swap_search.h"
#include "estimator/provisioner/candidates.h"
#include "estimator/provisioner/original_request.h"
#include "estimator/provisioner/provisioner.h"

namespace plimsoll::estimator::inline provisioner {

struct ThroughHost {
  const ProvisionRequest* request = nullptr;
  const OriginalRequest* original = nullptr;
  const std::vector<Candidate>* capable = nullptr;  // GPU models that can run the job, whatever their memory
  // The least samples a second on a GPU model; 0: any. Errors: it is not known.
  std::function<Result<double>(const AvailableGpu&)> least_rate;
};

struct SwapChoice {
  const Candidate* candidate = nullptr;
  std::int64_t samples = 0;  // of an optimizer step
  SwapFound found;
  Throughput throughput;
};

// The job gets as many GPUs as it requests, in one node; the whole node where these are too slow. Of the GPU models, that with the
// most samples a second is chosen (LowestCost, LowestCostPerSample: that with the lowest cost). The samples of an optimizer step are
// those of the requested trainers, or of as many as there are GPUs. Errors: kUnfittable or kUnsupported, saying why the last GPU model has no plan.
Result<SwapChoice> by_swap_plan(const ThroughHost& job);

// provisioning.hostMemoryPerTrainer, chosen by Plimsoll: each trainer may use its GPU's share of the node's memory for tables that are
// seldom looked up (torchrec's UVM and UVM caching). `decide` is provision() within the budget of the request that it is given.
// Errors: kUnfittable, saying why.
Result<Provision> with_tables_on_hosts(const ProvisionRequest& request, const std::vector<Candidate>& capable,
                                       const std::function<Provision(const ProvisionRequest&)>& decide);

// Of the most loaded trainer: what the plan keeps in host memory.
Bytes host_bytes_of(const Plan& plan);

}  // namespace plimsoll::estimator::provisioner
