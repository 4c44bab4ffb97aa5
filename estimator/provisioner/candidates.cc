#include "estimator/provisioner/candidates.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <set>
#include <utility>

namespace plimsoll::estimator::inline provisioner {
namespace {

std::int64_t round_down(std::int64_t trainers, std::int64_t per_node) {
  return trainers <= per_node ? trainers : trainers / per_node * per_node;
}

// The most trainers of one job that the cluster's nodes of this model can hold, `per_node` on each.
std::int64_t capacity_of(const AvailableGpu& gpu, std::int64_t per_node) {
  std::int64_t places = 0;
  for (const crds::GpuNodeShape& shape : gpu.shapes) {
    places += shape.nodes * (shape.gpus_per_node / per_node * per_node);
  }
  return gpu.shapes.empty() ? round_down(gpu.total_gpus, per_node) : places;
}

Candidate candidate_of(const AvailableGpu& gpu, const crds::TrainingJobSpec& spec, std::int64_t per_node,
                       const std::vector<FailedSize>& failed) {
  Candidate candidate{.gpu = &gpu};
  // perNode is the user's upper limit: it is lowered to what nodes have, and never raised.
  candidate.per_node =
      std::max<std::int64_t>(1, gpu.gpus_per_node > 0 ? std::min(gpu.gpus_per_node, per_node) : per_node);
  candidate.failed = trainers_ruled_out(failed, gpu);
  candidate.least = whole_replicas(std::max<std::int64_t>(1, spec.provisioning.min_trainers),
                                   candidate.per_node, spec.training.parallelism);
  if (candidate.failed >= candidate.least) {
    candidate.least = whole_replicas(candidate.failed + 1, candidate.per_node, spec.training.parallelism);
  }
  candidate.most = round_down(spec.provisioning.max_trainers, candidate.per_node);
  candidate.capacity = capacity_of(gpu, candidate.per_node);
  return candidate;
}

}  // namespace

std::int64_t whole_replicas(std::int64_t trainers, std::int64_t per_node,
                            const crds::Parallelism& parallelism) {
  const std::int64_t replica =
      std::max<std::int64_t>(1, parallelism.tensor * parallelism.pipeline * parallelism.context);
  const std::int64_t multiple = (trainers + replica - 1) / replica * replica;
  if (multiple <= per_node) {
    return multiple;
  }
  const std::int64_t step = std::lcm(per_node, replica);
  return (multiple + step - 1) / step * step;
}

CandidateRank rank_of(crds::Objective objective, const Candidate& candidate, std::int64_t trainers) {
  const auto count = static_cast<double>(trainers);
  const double cost = candidate.cost_of(trainers);
  const bool by_cost = objective == crds::Objective::kLowestCost;
  return {by_cost ? cost : count, by_cost ? count : cost, -candidate.gpu->model.hbm_bandwidth.count,
          candidate.name()};
}

Candidates candidates_for(const crds::TrainingJobSpec& spec, const OriginalRequest& original,
                          const std::vector<AvailableGpu>& gpus, const std::vector<FailedSize>& failed) {
  Candidates candidates;
  const std::vector<std::string>& allowed = spec.provisioning.gpu_models;
  std::string present;
  std::set<std::string> cloud_values;
  for (const AvailableGpu& gpu : gpus) {
    cloud_values.insert(gpu.model.cloud_labels.begin(), gpu.model.cloud_labels.end());
    present += (present.empty() ? "" : ", ") + gpu.model.name;
  }
  for (const std::string& name : allowed) {
    if (find_gpu(gpus, name) == nullptr) {
      candidates.warnings.push_back("spec.provisioning.gpuModels: no node has a GPU called \"" + name +
                                    "\"; the cluster has " + (present.empty() ? "none" : present));
    }
  }
  bool excluded_by_template = false;
  for (const AvailableGpu& gpu : gpus) {
    if (!allowed.empty() && std::none_of(allowed.begin(), allowed.end(), [&](const std::string& name) {
          return same_name(gpu.model.name, name);
        })) {
      continue;
    }
    Candidate candidate = candidate_of(gpu, spec, original.trainers.per_node, failed);
    std::copy_if(gpu.product_labels.begin(), gpu.product_labels.end(),
                 std::back_inserter(candidate.product_labels),
                 [&](const std::string& label) { return original.allows(gpu, label, cloud_values); });
    if (candidate.product_labels.empty()) {
      excluded_by_template = true;
    } else {
      candidates.list.push_back(std::move(candidate));
    }
  }
  candidates.why_none =
      gpus.empty() ? "no schedulable node of the cluster has a GPU that Plimsoll knows"
      : excluded_by_template
          ? "the template's node selector or affinity excludes every allowed GPU; the cluster has " + present
          : "none of spec.provisioning.gpuModels is in the cluster, which has " + present;
  return candidates;
}

}  // namespace plimsoll::estimator::provisioner
