#include "estimator/provisioner/candidates.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <set>
#include <utility>

#include "base/words.h"
#include "estimator/provisioner/card_limits.h"

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

// The number of trainers that a job keeps at least: its data-parallel replicas make the global batch, so fewer would
// train another model. Embedding tables are cut to what holds them, as in the AMP paper.
std::int64_t kept_trainers(const crds::TrainingJobSpec& spec, const crds::Trainers& requested) {
  const bool keeps = !spec.provisioning.resize_data_parallel && !spec.model.has_tables() &&
                     requested.replicas_given && spec.training.global_batch_size == 0;
  return keeps ? std::min(requested.replicas, spec.provisioning.max_trainers) : 1;
}

// The least number of trainers that a decision may leave of those requested.
std::int64_t floor_of(const crds::TrainingJobSpec& spec, const crds::Trainers& requested, double share) {
  const auto least = static_cast<std::int64_t>(std::ceil(static_cast<double>(requested.replicas) * share));
  return requested.replicas_given ? std::min(least, spec.provisioning.max_trainers) : 0;
}

Candidate candidate_of(const AvailableGpu& gpu, const crds::TrainingJobSpec& spec,
                       const crds::Trainers& requested, const std::vector<FailedSize>& failed,
                       double min_share_of_asked) {
  Candidate candidate{.gpu = &gpu};
  // perNode is the user's upper limit: it is lowered to what nodes have, and never raised.
  candidate.per_node = std::max<std::int64_t>(
      1, gpu.gpus_per_node > 0 ? std::min(gpu.gpus_per_node, requested.per_node) : requested.per_node);
  candidate.failed = trainers_ruled_out(failed, gpu);
  const std::int64_t least = std::max<std::int64_t>(1, spec.provisioning.min_trainers);
  const std::int64_t kept = kept_trainers(spec, requested);
  candidate.kept = kept > least ? kept : 0;
  const std::int64_t floor = floor_of(spec, requested, min_share_of_asked);
  candidate.floor = floor > std::max(least, kept) ? floor : 0;
  candidate.least =
      whole_replicas(std::max({least, kept, floor}), candidate.per_node, spec.training.parallelism);
  if (candidate.failed >= candidate.least) {
    candidate.least = whole_replicas(candidate.failed + 1, candidate.per_node, spec.training.parallelism);
  }
  candidate.most = round_down(spec.provisioning.max_trainers, candidate.per_node);
  candidate.capacity = capacity_of(gpu, candidate.per_node);
  return candidate;
}

std::vector<std::string> allowed_labels(const AvailableGpu& gpu, const OriginalRequest& original,
                                        const std::set<std::string>& cloud_values) {
  std::vector<std::string> allowed;
  std::copy_if(gpu.product_labels.begin(), gpu.product_labels.end(), std::back_inserter(allowed),
               [&](const std::string& label) { return original.allows(gpu, label, cloud_values); });
  return allowed;
}

}  // namespace

std::int64_t whole_replicas(std::int64_t trainers, std::int64_t per_node,
                            const crds::Parallelism& parallelism) {
  // What must be whole: the replicas, and HSDP's groups of those that hold the same parameters.
  const std::int64_t replica = std::max<std::int64_t>(
      1, parallelism.tensor * parallelism.pipeline * std::lcm(parallelism.context, parallelism.replicate));
  const std::int64_t multiple = (trainers + replica - 1) / replica * replica;
  if (multiple <= per_node) {
    return multiple;
  }
  const std::int64_t step = std::lcm(per_node, replica);
  return (multiple + step - 1) / step * step;
}

CandidateRank rank_of(crds::Objective objective, const Candidate& candidate, std::int64_t trainers,
                      double samples_per_second) {
  const auto count = static_cast<double>(trainers);
  const double cost = candidate.cost_of(trainers);
  const bool by_sample = objective == crds::Objective::kLowestCostPerSample;
  const bool by_cost = by_sample || objective == crds::Objective::kLowestCost;
  const bool waits =
      objective == crds::Objective::kSoonestStart && !can_start(*candidate.gpu, trainers, candidate.per_node);
  const double price = by_sample && samples_per_second > 0 ? cost / samples_per_second : cost;
  return {waits || (by_sample && samples_per_second <= 0), by_cost ? price : count, by_cost ? count : cost,
          -candidate.gpu->model.hbm_bandwidth.count, candidate.name()};
}

Candidates candidates_for(const crds::TrainingJobSpec& spec, const TraceFile* graph,
                          const OriginalRequest& original, const std::vector<AvailableGpu>& gpus,
                          const std::vector<FailedSize>& failed, double min_share_of_asked) {
  const CardDemands demands = demands_of(spec, graph);
  Candidates candidates;
  const std::vector<std::string>& allowed = spec.provisioning.gpu_models;
  std::vector<std::string> names;
  std::set<std::string> cloud_values;
  for (const AvailableGpu& gpu : gpus) {
    cloud_values.insert(gpu.model.cloud_labels.begin(), gpu.model.cloud_labels.end());
    names.push_back(gpu.model.name);
  }
  const std::string present = listed(names);
  for (const std::string& name : allowed) {
    if (find_gpu(gpus, name) == nullptr) {
      candidates.warnings.push_back("spec.provisioning.gpuModels: no node has a GPU called \"" + name + "\"" +
                                    did_you_mean(name, names) + "; the cluster has " +
                                    (present.empty() ? "none" : present));
    }
  }
  const std::string& requested = original.trainers.gpu_model;
  if (!original.recorded && !requested.empty() && !gpus.empty() && find_gpu(gpus, requested) == nullptr) {
    candidates.warnings.push_back("spec.trainers.gpuModel: no node has a GPU called \"" + requested + "\"" +
                                  did_you_mean(requested, names) + "; the cluster has " + present);
  }
  bool excluded_by_template = false;
  for (const AvailableGpu& gpu : gpus) {
    if (!allowed.empty() && std::none_of(allowed.begin(), allowed.end(), [&](const std::string& name) {
          return same_name(gpu.model.name, name);
        })) {
      continue;
    }
    Candidate candidate = candidate_of(gpu, spec, original.trainers, failed, min_share_of_asked);
    candidate.product_labels = allowed_labels(gpu, original, cloud_values);
    candidate.impossible = why_it_cannot_run(demands, gpu);
    if (candidate.product_labels.empty()) {
      AvailableGpu on_any_cpu = gpu;
      on_any_cpu.cpu_architectures.clear();
      candidate.product_labels = allowed_labels(on_any_cpu, original, cloud_values);
      candidate.impossible = "its nodes are " + listed(gpu.cpu_architectures) +
                             ", which the template's node selector or affinity excludes";
    }
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
