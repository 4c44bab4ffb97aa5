#include "estimator/provisioner/trainer_count_search.h"

#include <algorithm>

#include "estimator/provisioner/explanation.h"

namespace plimsoll::estimator::inline provisioner {
namespace {

Topology topology_of(const Candidate& candidate, std::int64_t trainers) {
  const GpuModel& gpu = candidate.gpu->model;
  return {.trainers = trainers,
          .per_node = candidate.per_node,
          .intra_node_bandwidth = gpu.intra_node_bandwidth,
          .inter_node_bandwidth = gpu.inter_node_bandwidth,
          .hbm_bandwidth = gpu.hbm_bandwidth};
}

}  // namespace

TrainerCountSearch::TrainerCountSearch(const ProvisionRequest& request)
    : request_(request), spec_(request.job->spec), tables_memory_(request.budget) {
  if (spec_.model.dlrm && !request.unestimated) {
    const std::vector<crds::EmbeddingTable>& groups = spec_.model.dlrm->tables;
    const BudgetCause cause(request.budget,
                            {"spec.model.dlrm.tables", static_cast<std::int64_t>(groups.size())});
    tables_memory_.resize(memory_of_expanded(groups));
    sharding_.tables = expand_tables(groups, request.budget);
  }
  sharding_.work_budget = request.budget;
  sharding_.batch_size = spec_.training.batch_size_per_trainer;
  sharding_.optimizer = spec_.training.embedding_optimizer;
  sharding_.allocated_bytes = true;  // torchrec's planner omits bytes that are allocated all the same
  runtime_ = runtime_settings_of(request.job->raw, warnings_);
  state_.emplace(sharding_);
}

void TrainerCountSearch::learn_from(const std::vector<FailedSize>& failed) {
  Bytes most;
  for (const FailedSize& size : failed) {
    if (size.needed > Bytes{} && size.trainers > 0) {
      most = std::max(most, shortfall_of(size));
    }
  }
  budgets_.clear();
  shortfall_ = most;
}

// GPU memory without the headroom and without what estimates lack.
Bytes TrainerCountSearch::usable(const Candidate& candidate) const {
  const Bytes memory = candidate.gpu->model.memory;
  return memory - Bytes::ceil(static_cast<double>(memory.count) * spec_.provisioning.headroom) - shortfall_;
}

Result<Estimate> TrainerCountSearch::estimate(const Candidate& candidate, std::int64_t trainers,
                                              Bytes embeddings) {
  if (request_.unestimated) {
    return Estimate();
  }
  EstimateRequest request;
  request.model = &spec_.model;
  request.training = &spec_.training;
  request.graph = request_.graph;
  request.gpu = &candidate.gpu->model;
  request.trainers = trainers;
  request.per_node = candidate.per_node;
  request.embedding_bytes = embeddings;
  if (request_.profile != nullptr) {
    request.learned = crds::bounds_for(*request_.profile, candidate.name());
    request.given = crds::given_bounds_for(*request_.profile, candidate.name());
  }
  request.method = request_.method;
  request.runtime = runtime_;
  request.capacity = usable(candidate);
  request.budget = request_.budget;
  return estimator_.estimate(request);
}

// What is left for embeddings on each trainer; negative when the model exceeds the GPU without them.
Result<Bytes> TrainerCountSearch::budget(const Candidate& candidate, std::int64_t trainers) {
  const std::pair key(candidate.name(), trainers);
  if (const auto known = budgets_.find(key); known != budgets_.end()) {
    return known->second;
  }
  const Result<Estimate> reserved = estimate(candidate, trainers, Bytes{});
  if (!reserved) {
    return reserved.error();
  }
  return budgets_[key] = usable(candidate) - reserved->peak.upper_bound;
}

// The embeddings with which the estimate itself fits. It may add to their bytes, which budget() does not
// consider; doing so here saves a second search.
Result<Bytes> TrainerCountSearch::exact_budget(const Candidate& candidate, std::int64_t trainers) {
  Result<Bytes> left = budget(candidate, trainers);
  constexpr int kMaxTries = 4;
  for (int tries = 0; tries < kMaxTries; ++tries) {
    if (!left || *left <= Bytes{}) {
      return left;
    }
    const Result<Estimate> full = estimate(candidate, trainers, *left);
    if (!full) {
      return full.error();
    }
    const Bytes excess = full->peak.upper_bound - usable(candidate);
    if (excess <= Bytes{}) {
      return left;
    }
    left = *left - excess - 1_MiB;
  }
  return left;
}

// How much more a trainer of this size needed than its present estimate.
Bytes TrainerCountSearch::shortfall_of(const FailedSize& failed) {
  const AvailableGpu* gpu = find_gpu(*request_.gpus, failed.gpu_model);
  if (gpu == nullptr) {
    // It was expected to fit, or Plimsoll did not choose it.
    return failed.needed -
           Bytes::ceil(static_cast<double>(failed.capacity.count) * (1 - spec_.provisioning.headroom));
  }
  const Candidate size{.gpu = gpu, .per_node = std::max<std::int64_t>(1, failed.per_node)};
  Bytes embeddings;
  if (!sharding_.tables.empty()) {
    const Result<Bytes> left = exact_budget(size, failed.trainers);
    if (!left) {
      return {};
    }
    sharding_.topology = topology_of(size, failed.trainers);
    sharding_.budget = *left;
    const Result<Plan> plan = shard(sharding_);
    if (!plan) {
      return failed.needed - usable(size);  // by its estimate it does not fit
    }
    embeddings = plan->max_memory;
  }
  const Result<Estimate> today = estimate(size, failed.trainers, embeddings);
  return today ? failed.needed - today->peak.upper_bound : Bytes{};
}

Result<void> TrainerCountSearch::bound(Candidate& candidate) {
  if (candidate.least > candidate.most) {
    candidate.impossible = explain_no_count(spec_.provisioning, candidate);
    return {};
  }
  if (Result<void> bounded =
          sharding_.tables.empty() ? bound_without_tables(candidate) : bound_with_tables(candidate);
      !bounded) {
    return bounded;
  }
  if (candidate.bound > candidate.capacity) {
    candidate.impossible = explain_capacity(candidate, candidate.bound);
  }
  return {};
}

// A model without tables gets the fewest trainers that hold it. Every number takes the same memory; where
// trainers share parameters, gradients or state, more trainers take less.
Result<void> TrainerCountSearch::bound_without_tables(Candidate& candidate) {
  const bool more_take_less = more_trainers_take_less(spec_);
  if (candidate.failed > 0 && !more_take_less) {
    candidate.impossible = "out of memory on " + std::to_string(candidate.failed) +
                           " trainers before, and each of more would hold as much";
    return {};
  }
  const std::int64_t most = std::min(candidate.most, std::max(candidate.capacity, candidate.least));
  std::vector<std::int64_t> counts;
  for (std::int64_t count = candidate.least; counts.empty() || (more_take_less && count <= most);
       count = whole_replicas(count + 1, candidate.per_node, spec_.training.parallelism)) {
    charge(request_.budget, 1);
    counts.push_back(count);
  }
  auto too_few = counts.begin();  // none before it fits
  auto enough = counts.end();     // all from it on fit
  std::string why_not;
  while (too_few != enough) {
    const auto middle = too_few + (enough - too_few) / 2;
    const Result<Bytes> left = budget(candidate, *middle);
    if (!left) {
      return left.error();
    }
    if (*left >= Bytes{}) {
      enough = middle;
    } else {
      too_few = middle + 1;
      why_not = "the model without its embeddings exceeds " + usable_text(usable(candidate), shortfall_) +
                " of a GPU by " + to_string(Bytes{} - *left) + " on " + std::to_string(*middle) + " trainers";
    }
  }
  if (enough == counts.end()) {
    candidate.impossible = why_not;
  } else {
    candidate.bound = *enough;
  }
  return {};
}

// The smallest number that the tables' state alone does not exclude: one comparison for each number, whatever
// the sharding. Reserved memory grows with the number, so a bound that was found with the reserve of fewer
// trainers holds; it is raised until it holds with its own reserve.
Result<void> TrainerCountSearch::bound_with_tables(Candidate& candidate) {
  for (std::int64_t count = candidate.least;;) {
    const Result<Bytes> left = budget(candidate, count);
    if (!left) {
      return left.error();
    }
    if (*left < Bytes{}) {
      candidate.impossible = "the model without its embeddings exceeds " +
                             usable_text(usable(candidate), shortfall_) + " of a GPU by " +
                             to_string(Bytes{} - *left);
      return {};
    }
    std::int64_t fewest = count;
    while (fewest < candidate.most && state_->rules_out(fewest, *left)) {
      charge(request_.budget, 1);
      fewest = round_up_to_nodes(fewest + 1, candidate.per_node);
    }
    if (fewest >= candidate.most && state_->rules_out(fewest, *left)) {
      // All bounds, with the most trainers, say in full what is missing.
      sharding_.topology = topology_of(candidate, candidate.most);
      sharding_.budget = *left;
      const Infeasibility found = rule_out(sharding_);
      candidate.impossible = found.constraint + ": " + found.reason;
      return {};
    }
    if (fewest == count) {
      candidate.bound = count;
      return {};
    }
    count = fewest;
  }
}

std::optional<Fit> TrainerCountSearch::run(const Candidate& candidate, std::int64_t most,
                                           std::string& why_not) {
  Fit fit{.candidate = &candidate, .trainers = candidate.bound, .estimate = {}, .plan = {}};
  Bytes withheld;  // what the estimate adds for embeddings beyond their own bytes
  while (true) {
    if (!sharding_.tables.empty()) {
      sharding_.topology = topology_of(candidate, fit.trainers);
      Result<FewestTrainersPlan> fewest = shard_on_fewest_trainers(
          sharding_, fit.trainers, most, [&](std::int64_t trainers) -> Result<Bytes> {
            const Result<Bytes> left = exact_budget(candidate, trainers);
            return left ? Result<Bytes>(*left - withheld) : left;
          });
      if (!fewest) {
        why_not = fewest.error().message;
        return std::nullopt;
      }
      fit.trainers = fewest->trainers;
      fit.plan = std::move(fewest->plan);
    }
    Result<Estimate> peak = estimate(candidate, fit.trainers, fit.plan.max_memory);
    if (!peak) {
      why_not = peak.error().message;
      return std::nullopt;
    }
    const Bytes excess = peak->peak.upper_bound - usable(candidate);
    if (excess <= Bytes{}) {
      fit.estimate = *std::move(peak);
      fit.estimate.breakdown.allocator_slack += shortfall_;
      fit.estimate.peak.upper_bound += shortfall_;
      fit.estimate.learned += shortfall_;
      return fit;
    }
    if (sharding_.tables.empty()) {
      why_not = "a trainer takes " + to_string(peak->peak.upper_bound) + ", and " +
                usable_text(usable(candidate), shortfall_) + " may be used";
      return std::nullopt;
    }
    withheld +=
        excess + 1_MiB;  // the step ends the loop: with the excess alone, the next might only approach 0
  }
}

}  // namespace plimsoll::estimator::provisioner
