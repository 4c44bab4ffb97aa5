#include "estimator/provisioner/through_host.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "crds/global_batch.h"
#include "estimator/host_training/host_memory.h"

namespace plimsoll::estimator::inline provisioner {
namespace {

// What each of the trainers of a full node may keep in its memory.
Bytes share_of_host(const Candidate& candidate) {
  const std::int64_t per_node = candidate.per_node;
  return Bytes{tensors_within(candidate.gpu->host_memory, per_node).count /
               std::max<std::int64_t>(1, per_node)};
}

// The better decision has the lower rank.
std::tuple<double, double, std::string> rank_of(crds::Objective objective, const Candidate& candidate,
                                                const Decision& decision) {
  const double cost = candidate.cost_of(decision.trainers);
  const auto count = static_cast<double>(decision.trainers);
  const bool by_cost =
      objective == crds::Objective::kLowestCost || objective == crds::Objective::kLowestCostPerSample;
  return {by_cost ? cost : count, by_cost ? count : cost, candidate.name()};
}

// GPU memory of this model that a swap plan may use: without the headroom; and where a plan ran out before, so much less than it was
// estimated to take as it took more than there is.
Bytes usable(const ProvisionRequest& request, const AvailableGpu& gpu) {
  const auto memory = static_cast<double>(gpu.model.memory.count);
  const Bytes whole = gpu.model.memory - Bytes::ceil(memory * request.job->spec.provisioning.headroom);
  Bytes least = whole;
  for (const FailedSize& failed : request.failed) {
    if (failed.swap_plan && failed.needed > Bytes{} && same_name(failed.gpu_model, gpu.model.name)) {
      const Bytes estimated = failed.estimated > Bytes{} ? failed.estimated : whole;
      const double share = std::min(1.0, memory / static_cast<double>(failed.needed.count));
      least = std::min(least,
                       Bytes{static_cast<std::int64_t>(static_cast<double>(estimated.count) * share)} - 1_B);
    }
  }
  return least;
}

class SwapPlanning {
 public:
  explicit SwapPlanning(const ThroughHost& job)
      : job_(job),
        request_(*job.request),
        spec_(job.request->job->spec),
        requested_(job.original->trainers) {}

  Result<SwapChoice> run() {
    std::optional<SwapChoice> best;
    Error why_none(ErrorCode::kUnfittable, "no allowed GPU of the cluster can run the job");
    for (const Candidate& candidate : *job_.capable) {
      Result<SwapChoice> choice = on(candidate, best);
      if (choice && (!best || rank(*choice) < rank(*best))) {
        best = *std::move(choice);
      } else if (!choice) {
        why_none = choice.error().within(candidate.name());
      }
    }
    return best ? Result<SwapChoice>(*std::move(best)) : why_none;
  }

 private:
  bool by_cost() const {
    const crds::Objective objective = spec_.provisioning.objective;
    return objective == crds::Objective::kLowestCost || objective == crds::Objective::kLowestCostPerSample;
  }

  std::pair<double, std::string> rank(const SwapChoice& choice) const {
    const PlannedSwap& planned = choice.found.training.planned;
    const double cost = choice.candidate->cost_of(planned.plan.gpus);
    const bool by_sample = spec_.provisioning.objective == crds::Objective::kLowestCostPerSample;
    return {by_cost() ? cost * (by_sample ? planned.seconds : 1) : planned.seconds, choice.candidate->name()};
  }

  // GPUs of one node that the job may have.
  std::int64_t most(const Candidate& candidate) const {
    return std::min(
        {candidate.per_node, spec_.provisioning.max_trainers, candidate.gpu->total_gpus, kMaxSwapGpus});
  }

  Result<SwapChoice> on(const Candidate& candidate, const std::optional<SwapChoice>& best) const {
    const std::int64_t all = most(candidate);
    const std::int64_t least = std::max<std::int64_t>(1, spec_.provisioning.min_trainers);
    if (least > all) {
      return Error(ErrorCode::kUnfittable, "a swap plan runs in one node, which has " + std::to_string(all) +
                                               " GPUs for the job, and provisioning.minTrainers is " +
                                               std::to_string(least));
    }
    const Result<double> rate = job_.least_rate ? job_.least_rate(*candidate.gpu) : Result<double>(0.0);
    if (!rate) {
      return rate.error();
    }
    const std::int64_t wanted = std::clamp(requested_.replicas_given ? requested_.replicas : all, least, all);
    Result<SwapChoice> choice = with(candidate, wanted, *rate, best);
    return choice || wanted == all || *rate <= 0 ? std::move(choice) : with(candidate, all, *rate, best);
  }

  SwapSearch search_on(const AvailableGpu& gpu, std::int64_t gpus) const {
    std::vector<std::string> warnings;  // the search for trainers has said them
    SwapSearch search{.job = {}, .gpus = gpus, .usable = usable(request_, gpu)};
    search.job.model = &spec_.model;
    search.job.training = &spec_.training;
    search.job.graph = request_.graph;
    search.job.gpu = &gpu.model;
    search.job.runtime = runtime_settings_of(request_.job->raw, warnings);
    search.job.budget = request_.budget;
    if (request_.profile != nullptr) {
      search.job.learned = crds::bounds_for(*request_.profile, gpu.model.name);
    }
    search.samples =
        crds::global_batch_of(spec_.training, requested_.replicas_given ? requested_.replicas : gpus);
    search.node_memory = gpu.host_memory;
    return search;
  }

  Result<SwapChoice> with(const Candidate& candidate, std::int64_t gpus, double least_rate,
                          const std::optional<SwapChoice>& best) const {
    SwapSearch search = search_on(*candidate.gpu, gpus);
    if (best && !by_cost()) {
      search.seconds_to_beat = best->found.training.planned.seconds;
    }
    Result<SwapFound> found = search_swap_plan(search);
    if (!found) {
      return found.error();
    }
    const double seconds = found->training.planned.seconds;
    const double rate = static_cast<double>(search.samples) / seconds;
    if (rate < least_rate) {
      return Error(ErrorCode::kUnfittable, "a swap plan on " + gpus_text(gpus, candidate.name()) +
                                               " takes about " + rounded_text(seconds) + " s an iteration, " +
                                               rounded_text(rate) +
                                               " samples a second, and provisioning.minThroughput is " +
                                               spec_.provisioning.min_throughput);
    }
    return SwapChoice{.candidate = &candidate,
                      .samples = search.samples,
                      .found = *std::move(found),
                      .throughput = {.gpu_model = candidate.name(),
                                     .trainers = gpus,
                                     .iteration = {.seconds = seconds,
                                                   .samples_per_second = rate,
                                                   .uncertainty = kGraphUncertainty,
                                                   .parts = {}}}};
  }

  const ThroughHost& job_;
  const ProvisionRequest& request_;
  const crds::TrainingJobSpec& spec_;
  const crds::Trainers& requested_;
};

}  // namespace

Bytes host_bytes_of(const Plan& plan) {
  Bytes most;
  for (const RankLoad& rank : plan.ranks) {
    most = std::max(most, rank.host_memory);
  }
  return most;
}

Result<Provision> with_tables_on_hosts(const ProvisionRequest& request, const std::vector<Candidate>& capable,
                                       const std::function<Provision(const ProvisionRequest&)>& decide) {
  if (request.job->spec.provisioning.host_memory) {
    return Error(ErrorCode::kUnfittable, "the embedding tables do not fit with hostMemoryPerTrainer either");
  }
  std::optional<Provision> best;
  const Candidate* best_candidate = nullptr;
  std::string why_none = "no node is known to have host memory for the embedding tables";
  for (const Candidate& candidate : capable) {
    const Bytes share = share_of_host(candidate);
    if (share <= Bytes{}) {
      continue;
    }
    crds::TrainingJob job = *request.job;
    job.spec.provisioning.placement = crds::Placement::kHBM;
    job.spec.provisioning.host_memory = share;
    const std::vector<AvailableGpu> gpus = {*candidate.gpu};
    ProvisionRequest trial = request;
    trial.job = &job;
    trial.gpus = &gpus;
    trial.suggest = false;
    Provision answer = decide(trial);
    if (!answer.decided()) {
      why_none = candidate.name() + ": " + answer.reason;
      continue;
    }
    const crds::Objective objective = job.spec.provisioning.objective;
    if (!best || rank_of(objective, candidate, *answer.decision) <
                     rank_of(objective, *best_candidate, *best->decision)) {
      best = std::move(answer);
      best_candidate = &candidate;
    }
  }
  if (!best) {
    return Error(ErrorCode::kUnfittable, why_none);
  }
  Decision& decision = *best->decision;
  const std::int64_t processes = std::min(decision.per_node, decision.trainers);
  const Bytes each = host_bytes_of(decision.plan);
  decision.host_memory_per_trainer = share_of_host(*best_candidate);
  decision.host_memory = container_memory(each * processes, processes);
  decision.reason += "; each trainer keeps up to " + to_string(each) +
                     " of embedding tables in host memory, as no allowed GPUs hold them";
  best->reason = decision.reason;
  return *std::move(best);
}

Result<SwapChoice> by_swap_plan(const ThroughHost& job) {
  return SwapPlanning(job).run();
}

}  // namespace plimsoll::estimator::provisioner
