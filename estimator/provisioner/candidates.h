// The GPU models that may run a job, and how many trainers each allows.
//
//   Candidates candidates = candidates_for(job.spec, graph, original_request_of(job), gpus, failed);
//   if (candidates.list.empty()) warn(candidates.why_none);
//
// Pure; any thread; candidates refer to the GPUs, which must outlive them.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "crds/training_job.h"
#include "estimator/catalog/inventory.h"
#include "estimator/provisioner/original_request.h"
#include "estimator/provisioner/size_exclusion.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline provisioner {

struct Candidate {
  const AvailableGpu* gpu = nullptr;
  std::vector<std::string> product_labels = {};  // those that the template's own selectors allow
  std::int64_t per_node = 1;
  std::int64_t least = 1;       // minTrainers, `kept` or `floor`, in whole nodes, above all sizes that failed
  std::int64_t kept = 0;        // the requested number, where fewer would change the global batch; else 0
  std::int64_t floor = 0;       // the least share of the requested number, where it decides `least`; else 0
  std::int64_t most = 0;        // provisioning.maxTrainers in whole nodes
  std::int64_t capacity = 0;    // trainers that the cluster can hold
  std::int64_t failed = 0;      // the largest number that ran out of memory on this model or a larger one
  std::int64_t bound = 0;       // no smaller number can fit; 0 when `impossible` says why none can
  std::string impossible = {};  // empty: some number may fit

  const std::string& name() const { return gpu->model.name; }
  double cost_of(std::int64_t trainers) const {
    return static_cast<double>(trainers) * gpu->model.relative_cost;
  }
};

struct Candidates {
  std::vector<Candidate> list;
  std::string why_none;  // when the list is empty
  std::vector<std::string> warnings;
};

// The models that are present, allowed by spec.provisioning.gpuModels and by the template.
// Those that cannot run the job are `impossible` from the start (card_limits.h). `graph` may be null. No count is below
// `min_share_of_asked` of the requested trainers.
Candidates candidates_for(const crds::TrainingJobSpec& spec, const TraceFile* graph,
                          const OriginalRequest& original, const std::vector<AvailableGpu>& gpus,
                          const std::vector<FailedSize>& failed, double min_share_of_asked = 0);

// The next number of trainers in whole nodes (round_up_to_nodes) and whole replicas of the model.
std::int64_t whole_replicas(std::int64_t trainers, std::int64_t per_node,
                            const crds::Parallelism& parallelism);

// What decides between two candidates; the lower rank is chosen. For LowestCostPerSample, samples a second decide;
// where they are 0, which is not known, all others are better.
using CandidateRank = std::tuple<bool, double, double, std::int64_t, std::string>;
CandidateRank rank_of(crds::Objective objective, const Candidate& candidate, std::int64_t trainers,
                      double samples_per_second = 0);

}  // namespace plimsoll::estimator::provisioner
