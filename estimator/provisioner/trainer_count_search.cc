#include "estimator/provisioner/trainer_count_search.h"

#include <algorithm>

#include "base/words.h"
#include "estimator/estimate/spec_run.h"
#include "estimator/fixed_costs/fixed_costs.h"
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

// Whether trainers share more than the tables.
bool shards_dense_part(const crds::TrainingJobSpec& spec) {
  const crds::ParallelStrategy strategy = spec.training.parallelism.strategy;
  return strategy != crds::ParallelStrategy::kAuto && strategy != crds::ParallelStrategy::kDDP;
}

}  // namespace

TrainerCountSearch::TrainerCountSearch(const ProvisionRequest& request)
    : request_(request),
      spec_(request.job->spec),
      tables_memory_(request.budget),
      training_(request.job->spec.training),
      original_(original_request_of(*request.job)),
      min_throughput_(min_throughput_of(request.job->spec.provisioning)) {
  const std::vector<crds::EmbeddingTable>& groups = spec_.model.tables();
  if (!groups.empty() && !request.unestimated) {
    const BudgetCause cause(request.budget,
                            {spec_.model.tables_field(), static_cast<std::int64_t>(groups.size())});
    tables_memory_.resize(memory_of_expanded(groups));
    sharding_.tables = expand_tables(groups, request.budget);
  }
  sharding_.work_budget = request.budget;
  sharding_.optimizer = spec_.training.embedding_optimizer;
  sharding_.host_budget = spec_.provisioning.host_memory.value_or(Bytes{});
  sharding_.allocated_bytes = true;  // torchrec's planner omits bytes that are allocated all the same
  runtime_ = runtime_settings_of(request.job->raw, warnings_);
  runtime_.allocator.expandable_segments |= request.expandable_segments;
  // With the smallest micro-batch of any number of trainers: less than is looked up excludes less.
  sharding_.batch_size = training_.global_batch_size > 0
                             ? 1
                             : std::max<std::int64_t>(1, crds::BatchSplit{training_.batch_size_per_trainer,
                                                                          training_.gradient_accumulation}
                                                             .micro_batch());
  state_.emplace(sharding_);
}

void TrainerCountSearch::learn_from(const std::vector<FailedSize>& failed) {
  Bytes most;
  for (const FailedSize& size : failed) {
    if (size.needed > Bytes{} && size.trainers > 0 && !size.in_startup && !size.swap_plan) {
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

// What a card holds before the first forward pass at least, as earlier jobs of the family, or this job, have shown.
Bytes TrainerCountSearch::startup(const Candidate& candidate) const {
  Bytes most;
  if (request_.profile != nullptr) {
    most = crds::bounds_for(*request_.profile, candidate.name()).startup.value_or(Bytes{});
  }
  for (const FailedSize& size : request_.failed) {
    most = size.in_startup && !size.swap_plan ? std::max(most, size.needed) : most;
  }
  return most;
}

// The ways that this number of trainers may take the batch, that with the fewest parts first; none if it cannot be
// divided among them.
std::vector<TrainerCountSearch::Size> TrainerCountSearch::sizes(const Candidate& candidate,
                                                                std::int64_t trainers) const {
  std::vector<Size> sizes;
  if (const Result<std::vector<crds::BatchSplit>> splits = crds::batch_splits(spec_.training, trainers)) {
    for (const crds::BatchSplit& split : *splits) {
      sizes.push_back({&candidate, trainers, split});
    }
  }
  return sizes;
}

// The request refers to training_, and is valid until the next.
EstimateRequest TrainerCountSearch::request_for(const Size& size, Bytes embeddings) {
  const Candidate& candidate = *size.candidate;
  training_.batch_size_per_trainer = size.batch.batch_size;
  training_.gradient_accumulation = size.batch.accumulation;
  EstimateRequest request;
  request.model = &spec_.model;
  request.training = &training_;
  request.graph = request_.graph;
  request.gpu = &candidate.gpu->model;
  request.trainers = size.trainers;
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
  return request;
}

Result<Estimate> TrainerCountSearch::estimate(const Size& size, Bytes embeddings) {
  return request_.unestimated ? Estimate() : estimator_.estimate(request_for(size, embeddings));
}

Result<bool> TrainerCountSearch::holds(const Size& size) {
  return request_.unestimated ? true : estimator_.fits(request_for(size, Bytes{}));
}

// In whole nodes and whole replicas, among which the batch can be divided.
std::vector<std::int64_t> TrainerCountSearch::counts(const Candidate& candidate, std::int64_t least,
                                                     std::int64_t most) const {
  const crds::Parallelism& parallelism = spec_.training.parallelism;
  std::vector<std::int64_t> counts;
  for (std::int64_t count = whole_replicas(least, candidate.per_node, parallelism); count <= most;
       count = whole_replicas(count + 1, candidate.per_node, parallelism)) {
    charge(request_.budget, 1);
    if (crds::batch_splits(spec_.training, count)) {
      counts.push_back(count);
    }
  }
  return counts;
}

// Errors: the estimator's, if it has no estimate for any of the numbers.
Result<TrainerCountSearch::LeastMemory> TrainerCountSearch::least_memory(
    const Candidate& candidate, const std::vector<std::int64_t>& counts) {
  if (request_.unestimated) {
    return LeastMemory();
  }
  const EstimateRequest fewest = request_for(sizes(candidate, counts.front()).front(), Bytes{});
  // What was learned may be less than what is simulated, and with a global batch more trainers take less each.
  const bool has_floor =
      !fewest.learned.peak_correction && !fewest.learned.shortfall && spec_.training.global_batch_size == 0;
  const FixedCosts fixed = fixed_costs_of(fewest);
  Error none;
  for (auto count = counts.rbegin(); count != counts.rend(); ++count) {
    Result<MemoryFloor> floor = estimator_.floor(request_for(sizes(candidate, *count).front(), Bytes{}));
    if (floor) {
      return LeastMemory{.tensors = has_floor ? *std::move(floor) : MemoryFloor(),
                         .outside = fixed.cuda_context + fixed.communication + fixed.forward_workspace +
                                    fixed.backward_workspace};
    }
    none = floor.error();
    if (none.code != ErrorCode::kInvalid) {  // kInvalid: trainers that cannot be split so
      break;
    }
  }
  return none;
}

// What is left for embeddings on each trainer; negative when the model exceeds the GPU without them.
Result<Bytes> TrainerCountSearch::budget(const Size& size) {
  const std::tuple key(size.candidate->name(), size.trainers, size.batch.accumulation);
  if (const auto known = budgets_.find(key); known != budgets_.end()) {
    return known->second;
  }
  const Result<Estimate> reserved = estimate(size, Bytes{});
  if (!reserved) {
    return reserved.error();
  }
  return budgets_[key] = usable(*size.candidate) - reserved->peak.upper_bound;
}

// The embeddings with which the estimate itself fits. It may add to their bytes, which budget() does not
// consider; doing so here saves a second search.
Result<Bytes> TrainerCountSearch::exact_budget(const Size& size) {
  Result<Bytes> left = budget(size);
  constexpr int kMaxTries = 4;
  for (int tries = 0; tries < kMaxTries; ++tries) {
    if (!left || *left <= Bytes{}) {
      return left;
    }
    const Result<Estimate> full = estimate(size, *left);
    if (!full) {
      return full.error();
    }
    const Bytes excess = full->peak.upper_bound - usable(*size.candidate);
    if (excess <= Bytes{}) {
      return left;
    }
    left = *left - excess - 1_MiB;
  }
  return left;
}

// With the time of one micro-batch's lookups. Errors: those of iteration_time(), and of an exceeded budget.
Result<Throughput> TrainerCountSearch::throughput(const Size& size, double lookup_milliseconds) {
  if (request_.unestimated) {
    return Error(ErrorCode::kUnsupported, "the model is not known");
  }
  Budget unlimited;
  Budget& budget = request_.budget == nullptr ? unlimited : *request_.budget;
  constexpr double kMillisecondsPerSecond = 1e3;
  const std::optional<double> embeddings = sharding_.tables.empty()
                                               ? std::nullopt
                                               : std::optional(lookup_milliseconds / kMillisecondsPerSecond *
                                                               static_cast<double>(size.batch.accumulation));
  Result<IterationTime> time = budget.run(
      [&] { return iteration_time({.job = request_for(size, Bytes{}), .embedding_seconds = embeddings}); });
  return time ? Result(Throughput{.gpu_model = size.candidate->name(),
                                  .trainers = size.trainers,
                                  .iteration = *std::move(time)})
              : time.error();
}

// Of the requested trainers, without a plan: nothing rests on their exact time unless a share of it is required.
Result<double> TrainerCountSearch::lookup_milliseconds(const Size& size) {
  if (sharding_.tables.empty()) {
    return 0.0;
  }
  const Result<Bytes> left = budget(size);
  if (!left) {
    return left.error();
  }
  ShardRequest sharding = sharding_;
  sharding.topology = topology_of(*size.candidate, size.trainers);
  sharding.batch_size = size.batch.micro_batch();
  sharding.budget = *left;
  if (!min_throughput_ || !min_throughput_->is_share) {
    return least_milliseconds(sharding);
  }
  const Result<Plan> plan = shard(sharding);
  return plan ? Result<double>(plan->max_milliseconds) : plan.error();
}

std::optional<Throughput> TrainerCountSearch::requested_throughput(const AvailableGpu& otherwise) {
  const crds::Trainers& requested = original_.trainers;
  const AvailableGpu* const gpu =
      requested.gpu_model.empty() ? &otherwise : find_gpu(*request_.gpus, requested.gpu_model);
  if (!requested.replicas_given || gpu == nullptr) {
    return std::nullopt;
  }
  const auto [entry, unknown] = requested_throughputs_.try_emplace(gpu->model.name);
  if (!unknown) {
    return entry->second;
  }
  const std::int64_t per_node =
      gpu->gpus_per_node > 0 ? std::min(gpu->gpus_per_node, requested.per_node) : requested.per_node;
  const Candidate candidate{.gpu = gpu, .per_node = std::max<std::int64_t>(1, per_node)};
  const std::vector<Size> ways = sizes(candidate, requested.replicas);
  if (ways.empty()) {
    return std::nullopt;
  }
  Budget unlimited;
  Budget& budget = request_.budget == nullptr ? unlimited : *request_.budget;
  const Result<double> lookups = budget.run([&] { return lookup_milliseconds(ways.front()); });
  const Result<Throughput> time = lookups ? throughput(ways.front(), *lookups) : lookups.error();
  if (time) {
    entry->second = *time;
  }
  return entry->second;
}

// Whether it is as fast as the job requires. Errors: kUnfittable, kUnsupported where that is not known.
Result<void> TrainerCountSearch::fast_enough(const Size& size, const Plan& plan) {
  if (!min_throughput_) {
    return {};
  }
  const std::optional<Throughput> requested = requested_throughput(*size.candidate->gpu);
  const Result<double> required = min_throughput_->samples_per_second(
      requested ? std::optional(requested->iteration.samples_per_second) : std::nullopt);
  if (!required) {
    return required.error();
  }
  const Result<Throughput> given = throughput(size, plan.max_milliseconds);
  if (!given) {
    return given.error().within("provisioning.minThroughput is set");
  }
  const double rate = given->iteration.samples_per_second;
  if (rate >= *required) {
    return {};
  }
  return Error(ErrorCode::kUnfittable,
               gpus_text(size.trainers, size.candidate->name()) + " take about " + rounded_text(rate) +
                   " samples a second, and provisioning.minThroughput is " + rounded_text(*required));
}

// How much more a trainer of this size needed than its present estimate.
Bytes TrainerCountSearch::shortfall_of(const FailedSize& failed) {
  const AvailableGpu* gpu = find_gpu(*request_.gpus, failed.gpu_model);
  if (gpu == nullptr) {
    // It was expected to fit, or Plimsoll did not choose it.
    return failed.needed -
           Bytes::ceil(static_cast<double>(failed.capacity.count) * (1 - spec_.provisioning.headroom));
  }
  const Candidate candidate{.gpu = gpu, .per_node = std::max<std::int64_t>(1, failed.per_node)};
  const std::vector<Size> ways = sizes(candidate, failed.trainers);
  if (ways.empty()) {
    return {};
  }
  const auto same = std::find_if(ways.begin(), ways.end(), [&](const Size& way) {
    return way.batch.accumulation == failed.accumulation;
  });
  const Size& size = same == ways.end() ? ways.front() : *same;
  Bytes embeddings;
  if (!sharding_.tables.empty()) {
    const Result<Bytes> left = exact_budget(size);
    if (!left) {
      return {};
    }
    sharding_.topology = topology_of(candidate, failed.trainers);
    sharding_.batch_size = size.batch.micro_batch();
    sharding_.budget = *left;
    const Result<Plan> plan = shard(sharding_);
    if (!plan) {
      return failed.needed - usable(candidate);  // by its estimate it does not fit
    }
    embeddings = plan->max_memory;
  }
  const Result<Estimate> today = estimate(size, embeddings);
  return today ? failed.needed - today->peak.upper_bound : Bytes{};
}

Result<void> TrainerCountSearch::bound(Candidate& candidate) {
  if (candidate.least > candidate.most) {
    candidate.impossible = explain_no_count(spec_.provisioning, candidate);
    return {};
  }
  if (spec_.training.global_batch_size > 0 && counts(candidate, candidate.least, candidate.most).empty()) {
    candidate.impossible = explain_no_division(spec_, candidate);
    return {};
  }
  if (Result<void> bounded =
          sharding_.tables.empty() ? bound_without_tables(candidate) : bound_with_tables(candidate);
      !bounded) {
    return bounded;
  }
  if (const Bytes needed = startup(candidate); candidate.impossible.empty() && needed > usable(candidate)) {
    candidate.impossible = "start-up, before the first forward pass, takes " + to_string(needed) +
                           " on any number of trainers, and " + to_string(usable(candidate)) +
                           " of a GPU may be used; make and load the model on the CPU or the meta device";
  } else if (candidate.bound > candidate.capacity) {
    candidate.impossible = explain_capacity(candidate, candidate.bound);
  }
  return {};
}

Result<void> TrainerCountSearch::bound_without_tables(Candidate& candidate) {
  if (candidate.failed > 0 && !more_trainers_take_less(spec_)) {
    candidate.impossible = "out of memory on " + counted(candidate.failed, "trainer") +
                           " before, and each of more would hold as much";
    return {};
  }
  const std::vector<std::int64_t> all = counts(
      candidate, candidate.least, std::max(candidate.least, std::min(candidate.most, candidate.capacity)));
  if (all.empty()) {
    candidate.bound = candidate.least;
    return {};
  }
  const auto holders = [&](std::int64_t count) { return holders_of(spec_.training.parallelism, count); };
  const auto is_alone = [&](std::int64_t count) {
    return holders(count) <= std::max<std::int64_t>(1, spec_.training.parallelism.replicate);
  };
  const auto several = std::find_if_not(all.begin(), all.end(), is_alone);
  const Result<LeastMemory> alone = least_memory(candidate, all);
  const Result<LeastMemory> least =
      several == all.end() ? alone : least_memory(candidate, {several, all.end()});
  if (!alone || !least) {
    return alone ? least.error() : alone.error();
  }
  // One that holds a part alone exchanges nothing, and may take less than each of two: it is tried by itself.
  for (auto count = all.begin(); count != several; ++count) {
    if (alone->at(holders(*count), request_.budget) > usable(candidate)) {
      continue;
    }
    for (const Size& size : sizes(candidate, *count)) {
      const Result<bool> held = holds(size);
      if (held && *held) {
        candidate.bound = *count;
        return {};
      }
    }
  }
  const auto at = [&](std::int64_t count) { return least->at(holders(count), request_.budget); };
  const auto bound = std::partition_point(several, all.end(),
                                          [&](std::int64_t count) { return at(count) > usable(candidate); });
  if (bound == all.end()) {
    const Result<Bytes> left = several == all.end() ? budget(sizes(candidate, all.back()).back()) : Bytes{};
    const Bytes takes = several == all.end() && left ? usable(candidate) - *left : at(all.back());
    candidate.impossible = "a trainer takes at least " + to_string(takes) + " on " +
                           counted(all.back(), "trainer") + ", and " +
                           usable_text(usable(candidate), shortfall_) + " of a GPU may be used";
  } else {
    candidate.bound = *bound;
  }
  return {};
}

std::string TrainerCountSearch::excess(const Candidate& candidate) {
  const std::int64_t most = std::max(candidate.least, std::min(candidate.most, candidate.capacity));
  const std::vector<std::int64_t> all = counts(candidate, candidate.least, most);
  if (all.empty() || request_.unestimated) {
    return {};
  }
  const auto requested = std::lower_bound(all.begin(), all.end(), original_.trainers.replicas);
  const std::int64_t count = requested == all.end() ? all.back() : *requested;
  const Result<Estimate> found = estimate(sizes(candidate, count).back(), Bytes{});
  if (!found || found->peak.upper_bound <= usable(candidate)) {
    return {};
  }
  const std::string text = explain_excess(spec_, *found);
  return text.empty() ? text : "on " + counted(count, "trainer") + " " + text;
}

// The smallest number that the tables' state alone does not exclude, whatever the sharding. What the dense part leaves is
// looked at for each number that the whole card does not exclude: it does not only shrink with more trainers.
Result<void> TrainerCountSearch::bound_with_tables(Candidate& candidate) {
  if (shards_dense_part(spec_) || spec_.training.global_batch_size > 0) {
    return bound_with_tables_and_shards(candidate);
  }
  Bytes left = usable(candidate);
  std::int64_t count = candidate.least;
  for (; count <= candidate.most; count = round_up_to_nodes(count + 1, candidate.per_node)) {
    charge(request_.budget, 1);
    if (count < candidate.most && state_->rules_out(count, usable(candidate))) {
      continue;
    }
    const Result<Bytes> of_count = budget(sizes(candidate, count).front());
    if (!of_count) {
      return of_count.error();
    }
    left = *of_count;
    if (left >= Bytes{} && !state_->rules_out(count, left)) {
      candidate.bound = count;
      return {};
    }
  }
  if (left < Bytes{}) {
    candidate.impossible = "the model without its embeddings exceeds " +
                           usable_text(usable(candidate), shortfall_) + " of a GPU by " +
                           to_string(Bytes{} - left);
  } else {
    rule_out_tables(candidate, left);
  }
  return {};
}

// All bounds, with the most trainers, say in full what is missing.
void TrainerCountSearch::rule_out_tables(Candidate& candidate, Bytes left) {
  sharding_.topology = topology_of(candidate, candidate.most);
  sharding_.batch_size = std::max<std::int64_t>(
      1, crds::BatchSplit{training_.batch_size_per_trainer, training_.gradient_accumulation}.micro_batch());
  sharding_.budget = left;
  const Infeasibility found = rule_out(sharding_);
  candidate.impossible = found.constraint + ": " + found.reason;
}

// More trainers take less of the dense part or of the batch too, so there may be more left for the tables.
Result<void> TrainerCountSearch::bound_with_tables_and_shards(Candidate& candidate) {
  const std::vector<std::int64_t> all = counts(candidate, candidate.least, candidate.most);
  if (all.empty()) {
    candidate.bound = candidate.least;
    return {};
  }
  const Result<LeastMemory> least = least_memory(candidate, all);
  if (!least) {
    return least.error();
  }
  Bytes left;
  for (const std::int64_t count : all) {
    left = usable(candidate) - least->at(holders_of(spec_.training.parallelism, count), request_.budget);
    if (left >= Bytes{} && !state_->rules_out(count, left)) {
      candidate.bound = count;
      return {};
    }
  }
  if (left < Bytes{}) {
    candidate.impossible = "the model without its embeddings exceeds " +
                           usable_text(usable(candidate), shortfall_) + " of a GPU by at least " +
                           to_string(Bytes{} - left);
  } else {
    rule_out_tables(candidate, left);
  }
  return {};
}

// Whether it is fast enough and fits. Errors: kInvalid for trainers that cannot be split so.
Result<bool> TrainerCountSearch::suffices(const Size& size) {
  const Result<void> fast = fast_enough(size, Plan());
  if (!fast && fast.error().code == ErrorCode::kUnfittable) {
    too_slow_ = fast.error().message;
    return false;
  }
  return fast ? holds(size) : fast.error();
}

// Numbers that the trainers cannot be split by have no estimate, and are skipped. Where each of more trainers takes as
// much, the fewest that are fast enough decide. Errors: those of other causes.
Result<std::optional<TrainerCountSearch::Size>> TrainerCountSearch::fewest(const Candidate& candidate,
                                                                           std::int64_t most) {
  for (const std::int64_t count : counts(candidate, candidate.bound, most)) {
    bool estimated = false;
    fewer_too_slow_ = !too_slow_.empty();
    too_slow_.clear();
    for (const Size& size : sizes(candidate, count)) {
      const Result<bool> held = suffices(size);
      if (!held && held.error().code != ErrorCode::kInvalid) {
        return held.error();
      }
      if (held && *held) {
        return std::optional(size);
      }
      estimated = estimated || held.ok();
    }
    if (estimated && too_slow_.empty() && !more_trainers_take_less(spec_)) {
      break;
    }
  }
  return std::optional<Size>();
}

std::optional<Fit> TrainerCountSearch::run_without_tables(const Candidate& candidate, std::int64_t most,
                                                          std::string& why_not) {
  const Result<std::optional<Size>> found = fewest(candidate, most);
  if (!found) {
    why_not = found.error().message;
    return std::nullopt;
  }
  const std::vector<std::int64_t> all = counts(candidate, candidate.bound, most);
  if (!*found && all.empty()) {
    why_not = explain_no_division(spec_, candidate);
    return std::nullopt;
  }
  const Size size = *found ? **found : sizes(candidate, all.back()).back();
  Result<Estimate> peak = estimate(size, Bytes{});
  if (!peak) {
    why_not = peak.error().message;
    return std::nullopt;
  }
  if (!*found && peak->peak.upper_bound <= usable(candidate)) {
    why_not = too_slow_;
    return std::nullopt;
  }
  if (!*found) {
    why_not = "a trainer takes up to " + to_string(peak->peak.upper_bound) + " on " +
              counted(size.trainers, "trainer") + ", and " + usable_text(usable(candidate), shortfall_) +
              " of a GPU may be used";
    return std::nullopt;
  }
  return Fit{.candidate = &candidate,
             .trainers = size.trainers,
             .batch = size.batch,
             .estimate = *std::move(peak),
             .plan = {},
             .fewer_too_slow = fewer_too_slow_};
}

std::optional<std::int64_t> TrainerCountSearch::run_with_expandable_segments(const Candidate& candidate,
                                                                             std::int64_t most) {
  if (runtime_.allocator.expandable_segments || runtime_.allocator.memory_fraction ||
      !sharding_.tables.empty() || request_.unestimated) {
    return std::nullopt;
  }
  runtime_.allocator.expandable_segments = true;
  const Result<std::optional<Size>> found = fewest(candidate, most);
  runtime_.allocator.expandable_segments = false;
  return found && *found ? std::optional((*found)->trainers) : std::nullopt;
}

std::optional<Fit> TrainerCountSearch::run(const Candidate& candidate, std::int64_t most,
                                           std::string& why_not) {
  too_slow_.clear();
  std::optional<Fit> fit = sharding_.tables.empty() ? run_without_tables(candidate, most, why_not)
                                                    : run_with_tables(candidate, most, why_not);
  if (fit) {
    const Bytes bound = fit->estimate.peak.upper_bound + shortfall_;
    const Bytes learned = shortfall_ + std::max(Bytes{}, startup(candidate) - bound);
    fit->estimate.breakdown.allocator_slack += learned;
    fit->estimate.peak.upper_bound += learned;
    fit->estimate.learned += learned;
    const Result<Throughput> speed =
        throughput({&candidate, fit->trainers, fit->batch}, fit->plan.max_milliseconds);
    fit->throughput = speed ? std::optional(*speed) : std::nullopt;
  }
  return fit;
}

std::optional<Fit> TrainerCountSearch::run_with_tables(const Candidate& candidate, std::int64_t most,
                                                       std::string& why_not) {
  Fit fit{.candidate = &candidate, .trainers = candidate.bound, .batch = {}, .estimate = {}, .plan = {}};
  // By trainers and variant, of those whose plan took more than was left by its estimate, which may add to the
  // embeddings' bytes: what is kept from the next plan. The others are planned with all that the dense part leaves.
  std::map<std::pair<std::int64_t, std::size_t>, Bytes> withheld;
  while (true) {
    sharding_.topology = topology_of(candidate, fit.trainers);
    const auto variants = [&](ShardRequest& at, std::size_t variant) -> Result<bool> {
      const std::vector<Size> ways = sizes(candidate, at.topology.trainers);
      if (variant >= ways.size()) {
        return false;
      }
      const Size& size = ways[variant];
      const auto exceeded = withheld.find({size.trainers, variant});
      const Result<Bytes> left = exceeded == withheld.end() ? budget(size) : exact_budget(size);
      if (!left && left.error().code != ErrorCode::kInvalid) {
        return left.error();
      }
      const Bytes kept = exceeded == withheld.end() ? Bytes{} : exceeded->second;
      at.budget = left ? *left - kept : Bytes{-1};  // trainers that cannot be split so hold no table
      at.batch_size = size.batch.micro_batch();
      return true;
    };
    Result<FewestTrainersPlan> planned = shard_on_fewest_trainers(sharding_, fit.trainers, most, variants);
    if (!planned) {
      why_not = planned.error().message;
      return std::nullopt;
    }
    const Size size = sizes(candidate, planned->trainers).at(planned->variant);
    fit.trainers = planned->trainers;
    fit.batch = size.batch;
    fit.plan = std::move(planned->plan);
    Result<Estimate> peak = estimate(size, fit.plan.max_memory);
    if (!peak) {
      why_not = peak.error().message;
      return std::nullopt;
    }
    const Bytes excess = peak->peak.upper_bound - usable(candidate);
    if (excess <= Bytes{}) {
      const Result<void> fast = fast_enough(size, fit.plan);
      if (fast) {
        fit.estimate = *std::move(peak);
        return fit;
      }
      fit.trainers = whole_replicas(size.trainers + 1, candidate.per_node, spec_.training.parallelism);
      fit.fewer_too_slow = fast.error().code == ErrorCode::kUnfittable;
      if (!fit.fewer_too_slow || fit.trainers > most) {
        why_not = fast.error().message;
        too_slow_ = fit.fewer_too_slow ? why_not : std::string();
        return std::nullopt;
      }
      continue;
    }
    const auto [entry, is_first] = withheld.try_emplace({size.trainers, planned->variant});
    if (!is_first) {  // exact_budget() was not enough; the step ends the loop: the excess alone might only approach 0
      entry->second += excess + 1_MiB;
    }
  }
}

}  // namespace plimsoll::estimator::provisioner
