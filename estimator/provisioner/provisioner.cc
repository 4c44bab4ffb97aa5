#include "estimator/provisioner/provisioner.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/utf8.h"
#include "estimator/provisioner/candidates.h"
#include "estimator/provisioner/explanation.h"
#include "estimator/provisioner/trainer_count_search.h"

namespace plimsoll::estimator::inline provisioner {
namespace {

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
    const std::optional<crds::DlrmModel>& dlrm = spec_.model.dlrm;
    if (dlrm && dlrm->tables.empty() && dlrm->tables_from && !request_.unestimated) {
      return refuse("ModelUnknown", "the embedding tables in ConfigMap " +
                                        dlrm->tables_from->config_map_name + " were not read");
    }
    Candidates candidates = candidates_for(spec_, original_, *request_.gpus, request_.failed);
    warn(candidates.warnings);
    if (candidates.list.empty()) {
      return refuse("NoGPUInCluster", candidates.why_none);
    }
    search_.learn_from(request_.failed);
    for (Candidate& candidate : candidates.list) {
      Result<void> bounded;
      within_budget(candidate, [&] { bounded = search_.bound(candidate); });
      if (!bounded) {
        return refuse(bounded.error().code == ErrorCode::kUnsupported ? "ModelUnknown" : "EstimateFailed",
                      bounded.error().message);
      }
    }
    if (std::optional<Fit> best = choose(candidates.list)) {
      decide(*std::move(best));
      return std::move(answer_);
    }
    if (exceeded_) {
      return refuse(event_reason_of(*exceeded_), exceeded_->message);
    }
    if (spec_.provisioning.placement == crds::Placement::kHBMOrSwap) {
      warn({"spec.provisioning.placement HBMOrSwap: this version places in GPU memory only"});
    }
    const Alternative& nearest = answer_.alternatives.front();
    return refuse("NoFittingGPU", "no allowed GPU of the cluster holds this job; " + nearest.gpu_model +
                                      ": " + nearest.reason);
  }

 private:
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

  // The largest number of trainers of this candidate that would be chosen over the best found.
  std::int64_t most_that_beats(const Fit& best, const Candidate& candidate) const {
    const CandidateRank to_beat = rank(*best.candidate, best.trainers);
    const std::int64_t limit = std::min(candidate.most, candidate.capacity);
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
      result.fits = true;
      result.trainers = fit->trainers;
      result.reason = "fits, peak at most " + to_string(fit->estimate.peak.upper_bound) + " of " +
                      to_string(candidate.gpu->model.memory);
      best = std::move(fit);
      return result;
    }
    result.trainers = most;
    if (!candidate.impossible.empty()) {
      result.reason = candidate.impossible;
    } else if (best && most < limit) {
      result.reason = "does not fit on " + gpus_text(most, candidate.name()) +
                      ", and more would be no better than " +
                      gpus_text(best->trainers, best->candidate->name());
    } else {
      result.reason = "does not fit: " + why_not;
    }
    return result;
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
    std::vector<std::pair<std::pair<bool, CandidateRank>, Alternative>> ranked;
    for (Candidate& candidate : candidates) {
      Alternative result = consider(candidate, best);
      result.cost = candidate.cost_of(result.trainers);
      ranked.emplace_back(
          std::pair(!result.fits, result.fits ? rank(candidate, result.trainers) : CandidateRank{}),
          std::move(result));
    }
    std::stable_sort(ranked.begin(), ranked.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto& entry : ranked) {
      answer_.alternatives.push_back(std::move(entry.second));
    }
    return best;
  }

  void decide(Fit fit) {
    const Candidate& chosen = *fit.candidate;
    const AvailableGpu& gpu = *chosen.gpu;
    const crds::Trainers& now = spec_.trainers;
    const bool already = now.replicas == fit.trainers && now.per_node == chosen.per_node &&
                         (now.gpu_model.empty() || same_name(now.gpu_model, chosen.name()));
    const bool recommend_only = spec_.provisioning.mode == crds::ProvisioningMode::kOff;
    answer_.event_reason = already ? "AlreadyRight" : recommend_only ? "Recommended" : "Provisioned";
    answer_.reason =
        explain_choice(spec_, original_.trainers, chosen, fit.trainers, fit.estimate.peak.upper_bound);
    answer_.decision = Decision{.gpu_model = chosen.name(),
                                .product_labels = chosen.product_labels,
                                .trainers = fit.trainers,
                                .per_node = chosen.per_node,
                                .reason = answer_.reason,
                                .estimate = std::move(fit.estimate),
                                .plan = std::move(fit.plan),
                                .capacity = gpu.model.memory};
    if (exceeded_) {
      warn({"not all GPU models were compared: " + chosen.name() + " fits, another might take fewer; " +
            exceeded_->message});
    }
    if (already || recommend_only) {
      return;
    }
    warn({answer_.reason});
    if (fit.trainers > gpu.free_gpus) {
      warn({"only " + std::to_string(gpu.free_gpus) + " of the cluster's " +
            std::to_string(gpu.total_gpus - gpu.addable_gpus) + " " + chosen.name() +
            " GPUs are free now: the job will wait"});
    }
  }

  const ProvisionRequest& request_;
  const crds::TrainingJobSpec& spec_;
  const OriginalRequest original_;
  TrainerCountSearch search_;
  std::optional<Error> exceeded_;  // the budget, during a part of the search
  Provision answer_;
};

}  // namespace

bool more_trainers_take_less(const crds::TrainingJobSpec& spec) {
  using enum crds::ParallelStrategy;
  const std::optional<crds::DlrmModel>& dlrm = spec.model.dlrm;
  const bool has_tables = dlrm && (!dlrm->tables.empty() || dlrm->tables_from);
  const crds::ParallelStrategy strategy = spec.training.parallelism.strategy;
  return has_tables || (strategy != kAuto && strategy != kDDP);
}

Provision provision(const ProvisionRequest& request) {
  assert(request.job != nullptr && request.gpus != nullptr);
  Budget unlimited;
  ProvisionRequest bounded = request;
  bounded.budget = request.budget == nullptr ? &unlimited : request.budget;
  Result<Provision> answer =
      bounded.budget->run([&]() -> Result<Provision> { return Provisioning(bounded).run(); });
  if (answer) {
    return *std::move(answer);
  }
  Provision none;
  none.event_reason = event_reason_of(answer.error());
  none.reason = answer.error().message;
  none.warnings.push_back(unchanged_warning(none.reason, request.job->spec));
  return none;
}

}  // namespace plimsoll::estimator::provisioner
