#include "estimator/provisioner/provisioner.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <limits>
#include <utility>

#include "base/quantity.h"
#include "base/utf8.h"
#include "base/words.h"
#include "crds/feature_gates.h"
#include "estimator/host_training/host_memory.h"
#include "estimator/provisioner/candidates.h"
#include "estimator/provisioner/changes_that_fit.h"
#include "estimator/provisioner/explanation.h"
#include "estimator/provisioner/through_host.h"
#include "estimator/provisioner/trainer_count_search.h"

namespace plimsoll::estimator::inline provisioner {
namespace {

Provision provision_within(const ProvisionRequest& request, Budget& budget);

// Decides one request, whose budget is not null.
class Provisioning {
 public:
  explicit Provisioning(const ProvisionRequest& request)
      : request_(request),
        spec_(request.job->spec),
        original_(original_request_of(*request.job)),
        search_(request) {
    warn(search_.warnings());
  }

  Provision run() {
    if (text_member(request_.job->raw, {"metadata", "annotations", crds::kProvisioningAnnotation}) ==
        "disabled") {
      answer_.event_reason = "Disabled";
      answer_.reason = std::string("the annotation ") + crds::kProvisioningAnnotation + " says disabled";
      return std::move(answer_);
    }
    const std::optional<crds::TablesFrom>& from = spec_.model.tables_from();
    if (spec_.model.tables().empty() && from && !request_.unestimated) {
      return refuse("ModelUnknown",
                    "the embedding tables in ConfigMap " + from->config_map_name + " were not read");
    }
    Candidates candidates = candidates_for(spec_, request_.graph, original_, *request_.gpus, request_.failed,
                                           request_.min_share_of_asked);
    warn(candidates.warnings);
    if (candidates.list.empty()) {
      return refuse("NoGPUInCluster", candidates.why_none);
    }
    std::copy_if(candidates.list.begin(), candidates.list.end(), std::back_inserter(capable_),
                 [](const Candidate& candidate) { return candidate.impossible.empty(); });
    search_.learn_from(request_.failed);
    for (Candidate& candidate : candidates.list) {
      if (!candidate.impossible.empty()) {
        continue;
      }
      Result<void> bounded;
      within_budget(candidate, [&] { bounded = search_.bound(candidate); });
      if (!bounded) {
        return refuse(bounded.error().code == ErrorCode::kUnsupported ? "ModelUnknown" : "EstimateFailed",
                      bounded.error().message);
      }
    }
    if (std::optional<Fit> best = choose(candidates.list)) {
      const std::optional<Fit> fewer = with_expandable_segments({best->candidate}, best->trainers - 1);
      const bool at_floor = best->candidate->floor > 0 && best->trainers == best->candidate->least;
      const std::int64_t resized = without_keeping(*best);
      decide(*std::move(best), at_floor && resized > 0 ? request_.min_share_of_asked : 0);
      if (fewer) {
        warn({gpus_text(fewer->trainers, fewer->candidate->name()) + " would hold the job with " +
              kExpandableSegments});
      }
      if (resized > 0) {
        const std::string share = share_text(request_.min_share_of_asked);
        warn({std::to_string(resized) +
              (at_floor ? " would hold the job; at least " + share + " of those requested are given"
                        : " would hold the job; the global batch is kept, unless "
                          "provisioning.resizeDataParallel is true")});
      }
      if (request_.every_gpu_model) {
        for (Alternative& each : answer_.alternatives) {
          complete(*candidate_of(each, candidates.list), each);
        }
        order_alternatives(candidates.list);
      }
      return std::move(answer_);
    }
    if (exceeded_) {
      return refuse(event_reason_of(*exceeded_), exceeded_->message);
    }
    std::string why_not_through_host;
    if (spec_.provisioning.placement == crds::Placement::kHBMOrSwap && !request_.unestimated) {
      if (std::optional<Provision> decided = through_host(why_not_through_host)) {
        return *std::move(decided);
      }
      if (exceeded_) {
        return refuse(event_reason_of(*exceeded_), exceeded_->message);
      }
      warn({"provisioning.placement HBMOrSwap: " + why_not_through_host});
    }
    if (request_.suggest && !request_.unestimated) {
      find_changes();
    }
    const Alternative& nearest = answer_.alternatives.front();
    const bool changed = !answer_.changes.empty();
    return refuse("NoFittingGPU", (changed ? answer_.changes.front().text() + "; " : std::string()) +
                                      "no allowed GPU of the cluster can run this job" +
                                      (changed ? " as it is" : "") + "; " + nearest.gpu_model + ": " +
                                      nearest.reason + excess_of(candidates.list, nearest.gpu_model));
  }

 private:
  // What exceeds that GPU model, to be appended to a sentence.
  std::string excess_of(const std::vector<Candidate>& candidates, const std::string& gpu_model) {
    const auto found = std::find_if(candidates.begin(), candidates.end(),
                                    [&](const Candidate& each) { return each.name() == gpu_model; });
    const bool can_run = std::any_of(capable_.begin(), capable_.end(),
                                     [&](const Candidate& each) { return each.name() == gpu_model; });
    if (!can_run || found == candidates.end() || found->failed > 0 || !request_.suggest) {
      return {};
    }
    const Result<std::string> text =
        request_.budget->run([&]() -> Result<std::string> { return search_.excess(*found); });
    return text && !text->empty() ? "; " + *text : std::string();
  }

  void warn(const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      answer_.warnings.push_back(utf8_shortened(text, kWarningLimit));
    }
  }

  Provision refuse(const char* event_reason, const std::string& reason) {
    answer_.event_reason = event_reason;
    answer_.reason = reason;
    answer_.warnings.push_back(unchanged_warning(reason, spec_));
    return std::move(answer_);
  }

  // The least samples a second that the job must have on this GPU model; 0: any.
  Result<double> least_rate(const AvailableGpu& gpu) {
    const std::optional<MinThroughput> required = min_throughput_of(spec_.provisioning);
    if (!required) {
      return 0.0;
    }
    const std::optional<Throughput> requested = search_.requested_throughput(gpu);
    return required->samples_per_second(requested ? std::optional(requested->iteration.samples_per_second)
                                                  : std::nullopt);
  }

  // Nothing: `why_not` says why, or exceeded_ is set.
  std::optional<Provision> through_host(std::string& why_not) {
    std::optional<Provision> found;
    const Result<void> done = request_.budget->run([&]() -> Result<void> {
      found = spec_.model.has_tables() ? tables_on_hosts(why_not) : swap_plan(why_not);
      return {};
    });
    if (!done) {
      exceeded_ = done.error();
    }
    return found;
  }

  std::optional<Provision> tables_on_hosts(std::string& why_not) {
    Result<Provision> answer = with_tables_on_hosts(request_, capable_, [](ProvisionRequest trial) {
      trial.every_gpu_model = false;
      return provision_within(trial, *trial.budget);
    });
    if (!answer) {
      why_not = answer.error().message;
      return std::nullopt;
    }
    answer->alternatives = answer_.alternatives;
    return *std::move(answer);
  }

  std::optional<Provision> swap_plan(std::string& why_not) {
    if (!request_.swap_training) {
      why_not = crds::off_text(crds::Feature::kSwapTraining);
      return std::nullopt;
    }
    const Result<SwapChoice> choice =
        by_swap_plan({.request = &request_,
                      .original = &original_,
                      .capable = &capable_,
                      .least_rate = [this](const AvailableGpu& gpu) { return least_rate(gpu); }});
    if (!choice) {
      why_not = choice.error().message;
      return std::nullopt;
    }
    const Candidate& chosen = *choice->candidate;
    const std::int64_t gpus = choice->found.training.planned.plan.gpus;
    answer_.reason = explain_swap(original_.trainers, chosen, choice->found.training);
    answer_.decision = Decision{.gpu_model = chosen.name(),
                                .product_labels = chosen.product_labels,
                                .trainers = gpus,
                                .per_node = gpus,
                                .batch = {choice->samples, 1},
                                .reason = answer_.reason,
                                .estimate = choice->found.estimate,
                                .plan = {},
                                .capacity = chosen.gpu->model.memory,
                                .throughput = choice->throughput,
                                .requested = search_.requested_throughput(*chosen.gpu),
                                .swap = choice->found.training,
                                .host_memory = choice->found.training.host_memory};
    // What was requested is not what it seems to be: that is told, unless an earlier admission did.
    announce(chosen, gpus, gpus, original_.recorded && has_already(chosen, gpus, gpus));
    return std::move(answer_);
  }

  void find_changes() {
    ChangesThatFit changes = changes_that_fit(request_, [](ProvisionRequest trial) {
      trial.suggest = false;
      trial.every_gpu_model = false;
      return provision_within(trial, *trial.budget);
    });
    answer_.changes = std::move(changes.found);
    for (const Change& change : answer_.changes) {
      warn({change.text()});
    }
    if (answer_.changes.empty()) {
      warn({std::string("none of the changes that were tried makes the job fit (docs/decisions.md)") +
            (changes.all_tried ? "" : "; not all were, within the limits of one decision")});
    }
  }

  // How many of the chosen GPU model would hold the job if it did not keep what it requested, or a share of it; 0: no fewer.
  std::int64_t without_keeping(const Fit& fit) {
    Candidate candidate = *fit.candidate;
    if ((candidate.kept == 0 && candidate.floor == 0) || candidate.failed > 0 ||
        fit.trainers != candidate.least) {
      return 0;
    }
    std::string why_not;
    std::optional<Fit> fewer;
    const Result<void> done = request_.budget->run([&]() -> Result<void> {
      candidate.least =
          whole_replicas(spec_.provisioning.min_trainers, candidate.per_node, spec_.training.parallelism);
      Result<void> bounded = search_.bound(candidate);
      if (bounded && candidate.impossible.empty()) {
        fewer = search_.run(candidate, fit.trainers - 1, why_not);
      }
      return bounded;
    });
    return done && fewer ? fewer->trainers : 0;
  }

  // What holds the job on the first of these candidates that can, with at most `most` trainers, where the allocator's
  // fragmentation is what makes it take more.
  std::optional<Fit> with_expandable_segments(const std::vector<const Candidate*>& candidates,
                                              std::int64_t most) {
    std::optional<Fit> found;
    const Result<void> done = request_.budget->run([&]() -> Result<void> {
      for (const Candidate* candidate : candidates) {
        const std::int64_t limit = std::min({most, candidate->most, candidate->capacity});
        const std::optional<std::int64_t> count =
            candidate->impossible.empty() && !found && candidate->bound <= limit
                ? search_.run_with_expandable_segments(*candidate, limit)
                : std::nullopt;
        if (count) {
          found = Fit{.candidate = candidate, .trainers = *count, .batch = {}, .estimate = {}, .plan = {}};
        }
      }
      return {};
    });
    return done ? found : std::nullopt;
  }

  // A candidate for which the budget is exceeded counts as impossible; earlier results are kept.
  template <class Compute>
  void within_budget(Candidate& candidate, Compute compute) {
    const Result<void> done = request_.budget->run([&]() -> Result<void> {
      compute();
      return {};
    });
    if (!done) {
      candidate.impossible = done.error().message;
      exceeded_ = exceeded_ ? exceeded_ : std::optional(done.error());
    }
  }

  CandidateRank rank(const Candidate& candidate, std::int64_t trainers) const {
    return rank_of(spec_.provisioning.objective, candidate, trainers);
  }

  CandidateRank rank(const Fit& fit) const {
    return rank_of(spec_.provisioning.objective, *fit.candidate, fit.trainers, rate_of(fit));
  }

  // Samples a second; 0: not known.
  static double rate_of(const Fit& fit) {
    return fit.throughput ? fit.throughput->iteration.samples_per_second : 0;
  }

  // The largest number of trainers of this candidate that would be chosen over the best found.
  std::int64_t most_that_beats(const Fit& best, const Candidate& candidate) const {
    const std::int64_t limit = std::min(candidate.most, candidate.capacity);
    if (spec_.provisioning.objective == crds::Objective::kLowestCostPerSample) {
      return limit;  // the throughput of a number decides, which is not known before
    }
    const CandidateRank to_beat = rank(*best.candidate, best.trainers);
    std::int64_t most = 0;
    for (std::int64_t count = candidate.bound; count <= limit && rank(candidate, count) < to_beat;
         count = round_up_to_nodes(count + 1, candidate.per_node)) {
      charge(request_.budget, 1);
      most = count;
    }
    return most;
  }

  // Searches one candidate for a number of trainers that beats the best so far, and replaces that.
  Alternative consider(Candidate& candidate, std::optional<Fit>& best) {
    Alternative result{.gpu_model = candidate.name(),
                       .trainers = candidate.bound,
                       .per_node = candidate.per_node,
                       .reason = candidate.impossible};
    if (!candidate.impossible.empty()) {
      return result;
    }
    const std::int64_t limit = std::min(candidate.most, candidate.capacity);
    std::int64_t most = limit;
    if (best) {
      within_budget(candidate, [&] { most = most_that_beats(*best, candidate); });
    }
    if (most == 0) {
      result.reason = "takes at least " + gpus_text(candidate.bound, candidate.name()) + ", no better than " +
                      gpus_text(best->trainers, best->candidate->name());
      return result;
    }
    result.searched = true;
    std::string why_not;
    std::optional<Fit> fit;
    within_budget(candidate, [&] { fit = search_.run(candidate, most, why_not); });
    if (fit) {
      describe(*fit, result);
      if (!best || rank(*fit) < rank(*best)) {
        best = std::move(fit);
      }
      return result;
    }
    result.trainers = most;
    if (!candidate.impossible.empty()) {
      result.reason = candidate.impossible;
    } else if (best && most < limit) {
      result.reason =
          (search_.was_too_slow() ? why_not : "does not fit on " + gpus_text(most, candidate.name())) +
          ", and more would be no better than " + gpus_text(best->trainers, best->candidate->name());
    } else {
      result.reason = why_unfit(why_not);
    }
    return result;
  }

  // After a search that found nothing.
  std::string why_unfit(const std::string& why_not) const {
    return search_.was_too_slow() ? why_not : "does not fit: " + why_not;
  }

  static void describe(const Fit& fit, Alternative& result) {
    result.fits = true;
    result.trainers = fit.trainers;
    result.reason = "fits, peak at most " + to_string(fit.estimate.peak.upper_bound) + " of " +
                    to_string(fit.candidate->gpu->model.memory);
    if (fit.throughput) {
      result.iteration_seconds = fit.throughput->iteration.seconds;
      result.samples_per_second = fit.throughput->iteration.samples_per_second;
    }
  }

  // Searches what was left out because another GPU model is better.
  void complete(const Candidate& candidate, Alternative& result) {
    const std::int64_t limit = std::min(candidate.most, candidate.capacity);
    if (result.fits || !candidate.impossible.empty() || (result.searched && result.trainers >= limit)) {
      return;
    }
    std::string why_not;
    std::optional<Fit> fit;
    const Result<void> done = request_.budget->run([&]() -> Result<void> {
      fit = search_.run(candidate, limit, why_not);
      return {};
    });
    if (!done) {  // after the decision, which stays
      result.reason += "; its least number was not found: " + done.error().message;
      return;
    }
    result.searched = true;
    if (fit) {
      describe(*fit, result);
    } else {
      result.trainers = limit;
      result.reason = why_unfit(why_not);
    }
  }

  // The best number of trainers of the best candidate. Begins with the most promising candidate: the sooner a
  // good one is known, the fewer need a search.
  std::optional<Fit> choose(std::vector<Candidate>& candidates) {
    const auto promise = [&](const Candidate& candidate) {
      return std::pair(!candidate.impossible.empty(), rank(candidate, candidate.bound));
    };
    std::sort(candidates.begin(), candidates.end(),
              [&](const Candidate& a, const Candidate& b) { return promise(a) < promise(b); });
    std::optional<Fit> best;
    for (Candidate& candidate : candidates) {
      answer_.alternatives.push_back(consider(candidate, best));
    }
    order_alternatives(candidates);
    return best;
  }

  // Best first. Those that do not fit come last, and of them first those that can run the job, the ones with more memory before.
  void order_alternatives(const std::vector<Candidate>& candidates) {
    std::vector<std::pair<std::pair<bool, CandidateRank>, Alternative>> ranked;
    for (Alternative& result : answer_.alternatives) {
      const Candidate& candidate = *candidate_of(result, candidates);
      result.cost = candidate.cost_of(result.trainers);
      const CandidateRank at = result.fits ? rank_of(spec_.provisioning.objective, candidate, result.trainers,
                                                     result.samples_per_second)
                                           : rank_of_unfit(candidate);
      ranked.emplace_back(std::pair(!result.fits, at), std::move(result));
    }
    std::stable_sort(ranked.begin(), ranked.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    answer_.alternatives.clear();
    for (auto& entry : ranked) {
      answer_.alternatives.push_back(std::move(entry.second));
    }
  }

  CandidateRank rank_of_unfit(const Candidate& candidate) const {
    const bool can_run = std::any_of(capable_.begin(), capable_.end(),
                                     [&](const Candidate& each) { return each.name() == candidate.name(); });
    const auto memory = static_cast<double>(candidate.gpu->model.memory.count);
    const auto sharing =
        static_cast<double>(spec_.model.has_tables() ? std::min(candidate.most, candidate.capacity) : 1);
    return {!can_run, -memory * sharing, 0, 0, candidate.name()};
  }

  static std::vector<Candidate>::const_iterator candidate_of(const Alternative& alternative,
                                                             const std::vector<Candidate>& candidates) {
    return std::find_if(candidates.begin(), candidates.end(), [&](const Candidate& candidate) {
      return candidate.name() == alternative.gpu_model;
    });
  }

  // `share`: of the requested trainers, where fewer would hold the job; else 0.
  void decide(Fit fit, double share) {
    const Candidate& chosen = *fit.candidate;
    const AvailableGpu& gpu = *chosen.gpu;
    const bool already = has_already(chosen, fit.trainers, chosen.per_node);
    answer_.reason = explain_choice(spec_, original_.trainers,
                                    {.candidate = &chosen,
                                     .trainers = fit.trainers,
                                     .batch = fit.batch,
                                     .peak = fit.estimate.peak.upper_bound,
                                     .min_share_of_asked = share,
                                     .by_throughput = fit.fewer_too_slow});
    const bool same = spec_.trainers.replicas == original_.trainers.replicas && already;
    std::optional<Throughput> requested =
        same && original_.trainers.replicas_given ? fit.throughput : search_.requested_throughput(gpu);
    answer_.decision = Decision{.gpu_model = chosen.name(),
                                .product_labels = chosen.product_labels,
                                .trainers = fit.trainers,
                                .per_node = chosen.per_node,
                                .batch = fit.batch,
                                .reason = answer_.reason,
                                .estimate = std::move(fit.estimate),
                                .plan = std::move(fit.plan),
                                .capacity = gpu.model.memory,
                                .throughput = std::move(fit.throughput),
                                .requested = std::move(requested)};
    if (!answer_.decision->throughput &&
        spec_.provisioning.objective == crds::Objective::kLowestCostPerSample) {
      warn(
          {"provisioning.objective LowestCostPerSample: the time of an iteration is not known, so the cheapest GPUs "
           "an hour were taken"});
    }
    if (exceeded_) {
      warn({"not all GPU models were compared: " + chosen.name() + " fits, another might take fewer; " +
            exceeded_->message});
    }
    announce(chosen, fit.trainers, chosen.per_node, already);
  }

  bool has_already(const Candidate& chosen, std::int64_t trainers, std::int64_t per_node) const {
    const crds::Trainers& now = spec_.trainers;
    return now.replicas == trainers && now.per_node == per_node &&
           (now.gpu_model.empty() || same_name(now.gpu_model, chosen.name()));
  }

  // Tells of the decision that has been made, unless the job has it already.
  void announce(const Candidate& chosen, std::int64_t trainers, std::int64_t per_node, bool already) {
    const bool recommend_only = spec_.provisioning.mode == crds::ProvisioningMode::kOff;
    answer_.event_reason = already ? "AlreadyRight" : recommend_only ? "Recommended" : "Provisioned";
    warn_of_host_memory();
    warn_of_initialisation();
    if (!already && !recommend_only) {
      warn({answer_.reason});
      warn_of_throughput();
    }
    const AvailableGpu& gpu = *chosen.gpu;
    warn_of_cpu(gpu);
    if (!can_start(gpu, trainers, per_node)) {
      const std::string free = std::to_string(gpu.free_gpus) + " of the cluster's " +
                               std::to_string(gpu.total_gpus - gpu.addable_gpus) + " " + chosen.name();
      warn({(trainers > gpu.free_gpus ? "only " + free
                                      : "too few nodes have " + std::to_string(std::min(per_node, trainers)) +
                                            " free GPUs for a pod, though " + free) +
            " GPUs are free now: the job will wait" +
            (spec_.provisioning.objective == crds::Objective::kSoonestStart
                 ? std::string()
                 : "; provisioning.objective SoonestStart prefers GPUs that are free")});
    }
  }

  void warn_of_throughput() {
    const std::optional<Throughput>& given = answer_.decision->throughput;
    const std::optional<Throughput>& requested = answer_.decision->requested;
    if (given && requested &&
        (given->trainers != requested->trainers || given->gpu_model != requested->gpu_model)) {
      warn({compared_text(*given, *requested)});
    }
  }

  void warn_of_initialisation() {
    const std::optional<InitialPeak>& initial = answer_.decision->estimate.initial;
    if (initial && !initial->warning.empty()) {
      warn({initial->warning});
    }
  }

  // Where the template's limit is below what the trainers of a pod take, by what the job says that they load and keep there.
  void warn_of_host_memory() {
    const Decision& decision = *answer_.decision;
    const Json& containers = member(request_.job->raw, {"spec", "template", "spec", "containers"});
    const int trainer = crds::trainer_container(containers);
    if (decision.swap || decision.host_memory > Bytes{} || trainer < 0) {
      return;
    }
    const Json& container = element(containers, static_cast<std::size_t>(trainer));
    const Bytes limit = quantity_of(member(container, {"resources", "limits", "memory"})).value_or(Bytes{});
    const std::int64_t processes = std::min(decision.per_node, decision.trainers);
    const HostDemand demand = host_demand(spec_.training, decision.estimate, processes);
    // What processes take by themselves is too rough to warn of.
    const bool more_than_processes = demand.total() > demand.processes;
    if (more_than_processes && limit > Bytes{} && limit < demand.total()) {
      warn({"the trainer container may have " + to_string(limit) + " of host memory, and its " +
            counted(processes, "trainer") + " take about " + to_string(demand.total()) + ": " +
            text_of(demand)});
    }
  }

  // Images are often built for one CPU architecture, and the user may have had another GPU model in mind.
  void warn_of_cpu(const AvailableGpu& gpu) {
    const bool other_cpu = std::any_of(gpu.cpu_architectures.begin(), gpu.cpu_architectures.end(),
                                       [](const std::string& name) { return name != "amd64"; });
    if (other_cpu && !same_name(original_.trainers.gpu_model, gpu.model.name) &&
        !original_.selects_label(kCpuArchitectureLabel)) {
      warn({"nodes with " + gpu.model.name + " are " + gpu.cpu_architectures.front() +
            ": the job's image must be built for it, or the template must select another " +
            kCpuArchitectureLabel});
    }
  }

  const ProvisionRequest& request_;
  const crds::TrainingJobSpec& spec_;
  const OriginalRequest original_;
  TrainerCountSearch search_;
  std::vector<Candidate> capable_;  // the candidates that can run the job, whatever their memory
  std::optional<Error> exceeded_;   // the budget, during a part of the search
  Provision answer_;
};

Provision provision_within(const ProvisionRequest& request, Budget& budget) {
  ProvisionRequest bounded = request;
  bounded.budget = &budget;
  Result<Provision> answer = budget.run([&]() -> Result<Provision> { return Provisioning(bounded).run(); });
  if (answer) {
    return *std::move(answer);
  }
  Provision none;
  none.event_reason = event_reason_of(answer.error());
  none.reason = answer.error().message;
  none.warnings.push_back(unchanged_warning(none.reason, request.job->spec));
  return none;
}

}  // namespace

bool more_trainers_take_less(const crds::TrainingJobSpec& spec) {
  using enum crds::ParallelStrategy;
  const crds::ParallelStrategy strategy = spec.training.parallelism.strategy;
  return spec.model.has_tables() || (strategy != kAuto && strategy != kDDP) ||
         spec.training.parallelism.expert > 1 || spec.training.global_batch_size > 0;
}

bool rejects(const crds::ProvisioningSpec& provisioning, const Provision& answer) {
  return answer.event_reason == "NoFittingGPU" && provisioning.on_unfit == crds::OnUnfit::kDeny;
}

std::string Change::text() const {
  return "fits " + gpus_text(trainers, gpu_model) + " with " + listed(changes);
}

Provision provision(const ProvisionRequest& request) {
  assert(request.job != nullptr && request.gpus != nullptr);
  Budget unlimited;
  return provision_within(request, request.budget == nullptr ? unlimited : *request.budget);
}

}  // namespace plimsoll::estimator::provisioner
