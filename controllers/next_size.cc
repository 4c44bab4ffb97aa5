#include "controllers/next_size.h"

#include <strings.h>

#include <algorithm>
#include <cmath>

#include "estimator/provisioner/patch.h"
#include "estimator/provisioner/provisioner.h"
#include "estimator/provisioner/size_exclusion.h"

namespace plimsoll::controllers {
namespace {

using estimator::AvailableGpu;
using estimator::FailedSize;
using estimator::Provision;

bool same_name(const std::string& a, const std::string& b) {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

const AvailableGpu* find(const std::vector<AvailableGpu>& gpus, const std::string& name) {
  const auto found = std::find_if(gpus.begin(), gpus.end(),
                                  [&](const AvailableGpu& gpu) { return same_name(gpu.model.name, name); });
  return found == gpus.end() ? nullptr : &*found;
}

std::string size_text(std::int64_t trainers, const std::string& model) {
  return std::to_string(trainers) + (model.empty() ? " GPUs" : " x " + model);
}

// An attempt that does not say ran on what the job says.
std::int64_t trainers_of(const RemediationInputs& inputs, const crds::Attempt& attempt) {
  return attempt.trainers > 0 ? attempt.trainers : inputs.job->spec.trainers.replicas;
}

// The provisioner's question about this job, with other bounds on the number of trainers.
class Question {
 public:
  explicit Question(const RemediationInputs& inputs) : inputs_(inputs), job_(*inputs.job) {}

  Question& at_least(std::int64_t trainers) {
    job_.spec.provisioning.min_trainers = std::max(job_.spec.provisioning.min_trainers, trainers);
    return *this;
  }
  Question& at_most(std::int64_t trainers) {
    job_.spec.provisioning.max_trainers = std::min(job_.spec.provisioning.max_trainers, trainers);
    return *this;
  }

  Provision ask(const std::vector<AvailableGpu>& gpus, std::vector<FailedSize> failed,
                bool unestimated = false) const {
    estimator::ProvisionRequest request{.job = &job_,
                                        .graph = inputs_.graph,
                                        .gpus = &gpus,
                                        .profile = inputs_.profile,
                                        .failed = std::move(failed),
                                        .unestimated = unestimated};
    if (!unestimated) {
      request.budget = inputs_.budget;
    }
    return estimator::provision(request);
  }

 private:
  const RemediationInputs& inputs_;
  crds::TrainingJob job_;
};

std::string size_text(const estimator::Decision& decision) {
  return size_text(decision.trainers, decision.gpu_model);
}

NextSize taken(const RemediationInputs& inputs, Provision provision, const std::string& why) {
  estimator::Decision& decision = *provision.decision;
  NextSize next;
  next.found = true;
  next.words = size_text(decision);
  if (decision.estimate.peak.upper_bound > Bytes{}) {
    next.words += ", peak at most " + to_string(decision.estimate.peak.upper_bound) + " of " +
                  to_string(decision.capacity) + " a GPU";
  }
  decision.reason = next.words + "; " + why;
  next.patch = estimator::patch_for(*inputs.job, provision);
  return next;
}

NextSize none(std::string why) {
  NextSize next;
  next.words = std::move(why);
  return next;
}

// The most trainers that one failed size ruled out, on GPUs of this memory.
std::int64_t most_failed(const std::vector<FailedSize>& failed, const AvailableGpu& gpu) {
  std::int64_t most = 0;
  for (const FailedSize& size : failed) {
    if (same_name(size.gpu_model, gpu.model.name) || gpu.model.memory <= size.capacity) {
      most = std::max(most, size.trainers);
    }
  }
  return most;
}

// So many trainers on this model, whatever they hold.
std::optional<NextSize> place(const RemediationInputs& inputs, const AvailableGpu& gpu, std::int64_t trainers,
                              std::int64_t cap, const std::string& why) {
  const Provision answer = Question(inputs).at_least(trainers).at_most(cap).ask({gpu}, {}, true);
  return answer.decided() ? std::optional(taken(inputs, answer, why)) : std::nullopt;
}

NextSize nothing_larger(const crds::TrainingJobSpec& spec) {
  return none("no larger size is left within provisioning.maxTrainers " +
              std::to_string(spec.provisioning.max_trainers) + ", failurePolicy.oomMaxGrowth " +
              std::to_string(spec.failure_policy.oom_max_growth) + " and the GPUs of the cluster");
}

// As far towards a size as one step may go; what is missing then is the next step's.
NextSize step_towards(const RemediationInputs& inputs, const std::vector<FailedSize>& failed,
                      const estimator::Decision& wanted, std::int64_t cap, const std::string& why) {
  const AvailableGpu& gpu = *find(*inputs.gpus, wanted.gpu_model);
  const std::int64_t tried = most_failed(failed, gpu);
  const std::int64_t whole = cap <= wanted.per_node ? cap : cap / wanted.per_node * wanted.per_node;
  for (const std::int64_t trainers : {whole, tried + 1}) {
    if (trainers > tried) {
      if (std::optional<NextSize> next = place(inputs, gpu, trainers, cap, why)) {
        return *std::move(next);
      }
    }
  }
  return nothing_larger(inputs.job->spec);
}

// One step up without an estimate: more trainers where that helps, else the next larger GPU model.
NextSize step_up(const RemediationInputs& inputs, const std::vector<FailedSize>& failed, std::int64_t cap,
                 const std::string& why) {
  const crds::TrainingJobSpec& spec = inputs.job->spec;
  const crds::Attempt& last = inputs.attempts->back();
  std::vector<const AvailableGpu*> order;
  for (const AvailableGpu& gpu : *inputs.gpus) {
    order.push_back(&gpu);
  }
  const auto key = [&](const AvailableGpu* gpu) {
    return std::pair(!same_name(gpu->model.name, last.gpu_model), gpu->model.memory);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](const AvailableGpu* a, const AvailableGpu* b) { return key(a) < key(b); });
  for (const AvailableGpu* gpu : order) {
    const std::int64_t tried = most_failed(failed, *gpu);
    if (tried > 0 && !more_trainers_take_less(spec)) {
      continue;
    }
    const auto grown = static_cast<std::int64_t>(
        std::ceil(static_cast<double>(tried) * spec.failure_policy.oom_bump_up_ratio));
    const std::int64_t trainers = tried > 0 ? std::max(tried + 1, grown) : trainers_of(inputs, last);
    if (std::optional<NextSize> next = place(inputs, *gpu, trainers, cap, why)) {
      return *std::move(next);
    }
  }
  return nothing_larger(spec);
}

// Whether the last attempt's text leaves open how much was missing: it has no figures, or they say no more
// than would be taken for granted without them. A correction by so much is an assumption, and so is its
// conclusion that no size is large enough.
bool is_missing_a_step(const RemediationInputs& inputs) {
  const crds::Attempt& last = inputs.attempts->back();
  const std::optional<Bytes> card = estimator::capacity_of(last, *inputs.gpus);
  const double ratio = inputs.job->spec.failure_policy.oom_bump_up_ratio;
  return last.outcome == crds::Outcome::kCudaOutOfMemory &&
         (!last.needed || (card && *last.needed <= Bytes::ceil(static_cast<double>(card->count) * ratio)));
}

}  // namespace

bool more_trainers_take_less(const crds::TrainingJobSpec& spec) {
  const std::optional<crds::DlrmModel>& dlrm = spec.model.dlrm;
  const bool tables = dlrm && (!dlrm->tables.empty() || dlrm->tables_from);
  const crds::ParallelStrategy strategy = spec.training.parallelism.strategy;
  return tables || (strategy != crds::ParallelStrategy::kAuto && strategy != crds::ParallelStrategy::kDDP);
}

NextSize larger_size(const RemediationInputs& inputs) {
  const crds::Attempt& last = inputs.attempts->back();
  const std::vector<FailedSize> failed = estimator::failed_sizes(*inputs.job, *inputs.attempts, *inputs.gpus);
  const std::int64_t trainers = trainers_of(inputs, last);
  const std::string why =
      size_text(trainers, last.gpu_model) +
      (last.outcome == crds::Outcome::kCudaOutOfMemory ? " ran out of memory" : " could not be sharded");
  const std::int64_t cap =
      (Bytes{trainers} * inputs.job->spec.failure_policy.oom_max_growth).count;  // saturates

  Provision answer = Question(inputs).ask(*inputs.gpus, failed);
  if (answer.decided() && answer.decision->trainers > cap) {
    Provision smaller = Question(inputs).at_most(cap).ask(*inputs.gpus, failed);
    if (!smaller.decided()) {
      return step_towards(inputs, failed, *answer.decision, cap, why);
    }
    answer = std::move(smaller);
  }
  if (answer.decided()) {
    return taken(inputs, std::move(answer), why);
  }
  if (answer.event_reason == "NoFittingGPU" || answer.event_reason == "NoGPUInCluster") {
    NextSize next;
    if (is_missing_a_step(inputs)) {
      next = step_up(inputs, failed, cap, why + "; how much was missing is not known");
    }
    return next.found ? next : none(answer.reason);
  }
  return step_up(inputs, failed, cap, why + "; estimated it could not be: " + answer.reason);
}

NextSize room_elsewhere(const RemediationInputs& inputs) {
  const crds::Attempt& last = inputs.attempts->back();
  const std::int64_t trainers = trainers_of(inputs, last);
  const AvailableGpu* present = find(*inputs.gpus, last.gpu_model);
  if (present != nullptr && present->free_gpus >= trainers) {
    return none("its own GPUs are free again");
  }
  std::vector<AvailableGpu> others;
  for (const AvailableGpu& gpu : *inputs.gpus) {
    if (&gpu != present && gpu.free_gpus >= trainers) {
      others.push_back(gpu);
    }
  }
  const std::string why = size_text(trainers, last.gpu_model) + " were preempted, and are taken";
  const std::vector<FailedSize> failed = estimator::failed_sizes(*inputs.job, *inputs.attempts, *inputs.gpus);
  while (!others.empty()) {
    Provision answer = Question(inputs).at_least(trainers).ask(others, failed);
    if (!answer.decided()) {
      break;
    }
    const auto chosen = std::find_if(others.begin(), others.end(), [&](const AvailableGpu& gpu) {
      return same_name(gpu.model.name, answer.decision->gpu_model);
    });
    if (answer.decision->trainers <= chosen->free_gpus) {
      return taken(inputs, std::move(answer), why);
    }
    others.erase(chosen);
  }
  return none("no other allowed GPU model has room");
}

}  // namespace plimsoll::controllers
