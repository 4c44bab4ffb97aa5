#include "remediation/next_size.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "estimator/provisioner/patch.h"
#include "estimator/provisioner/provisioner.h"
#include "estimator/provisioner/size_exclusion.h"

namespace plimsoll::remediation {
namespace {

using estimator::AvailableGpu;
using estimator::FailedSize;
using estimator::Provision;
using estimator::same_name;

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

std::string size_text(std::int64_t trainers, const std::string& model) {
  return std::to_string(trainers) + (model.empty() ? " GPUs" : " x " + model);
}

// An attempt without a recorded size ran on the size of the job's spec.
std::int64_t trainers_of(const RemediationInputs& inputs, const crds::Attempt& attempt) {
  return attempt.trainers > 0 ? attempt.trainers : inputs.job->spec.trainers.replicas;
}

// The provisioner's decision for this job, with narrower bounds on the number of trainers.
Provision provision(const RemediationInputs& inputs, estimator::ProvisionRequest request,
                    std::int64_t min_trainers, std::int64_t max_trainers) {
  crds::TrainingJob job = *inputs.job;
  crds::ProvisioningSpec& bounds = job.spec.provisioning;
  bounds.min_trainers = std::max(bounds.min_trainers, min_trainers);
  bounds.max_trainers = std::min(bounds.max_trainers, max_trainers);
  request.job = &job;
  request.graph = inputs.graph;
  request.profile = inputs.profile;
  request.min_share_of_asked = inputs.min_share_of_asked;
  request.swap_training = inputs.swap_training;
  return estimator::provision(request);
}

Provision with_estimate(const RemediationInputs& inputs, const std::vector<AvailableGpu>& gpus,
                        const std::vector<FailedSize>& failed, std::int64_t min_trainers = 0,
                        std::int64_t max_trainers = kUnlimited) {
  return provision(inputs, {.gpus = &gpus, .budget = inputs.budget, .failed = failed}, min_trainers,
                   max_trainers);
}

NextSize chosen(const RemediationInputs& inputs, Provision provision, const std::string& why) {
  estimator::Decision& decision = *provision.decision;
  NextSize next{.patch = {}, .text = size_text(decision.trainers, decision.gpu_model)};
  if (decision.swap) {
    next.text += ", through host memory by " + estimator::text_of(*decision.swap);
  } else if (decision.estimate.peak.upper_bound > Bytes{}) {
    next.text += ", peak at most " + to_string(decision.estimate.peak.upper_bound) + " of " +
                 to_string(decision.capacity) + " a GPU";
  }
  decision.reason = next.text + "; " + why;
  next.patch = estimator::patch_for(*inputs.job, provision);
  return next;
}

Error none(std::string why) {
  return Error(ErrorCode::kUnfittable, std::move(why));
}

Error nothing_larger(const crds::TrainingJobSpec& spec) {
  return none("no larger size is left within provisioning.maxTrainers " +
              std::to_string(spec.provisioning.max_trainers) + ", failurePolicy.oomMaxGrowth " +
              std::to_string(spec.failure_policy.oom_max_growth) + " and the GPUs of the cluster");
}

// This number of trainers on this model, without an estimate of what they hold.
std::optional<NextSize> without_estimate(const RemediationInputs& inputs, const AvailableGpu& gpu,
                                         std::int64_t trainers, std::int64_t max_trainers,
                                         const std::string& why) {
  const std::vector<AvailableGpu> gpus = {gpu};
  const Provision answer = provision(inputs, {.gpus = &gpus, .unestimated = true}, trainers, max_trainers);
  return answer.decided() ? std::optional(chosen(inputs, answer, why)) : std::nullopt;
}

// As far towards the wanted size as one step may go. The next step continues from there.
Result<NextSize> step_towards(const RemediationInputs& inputs, const std::vector<FailedSize>& failed,
                              const estimator::Decision& wanted, std::int64_t max_trainers,
                              const std::string& why) {
  const AvailableGpu& gpu = *estimator::find_gpu(*inputs.gpus, wanted.gpu_model);
  const std::int64_t ruled_out = estimator::trainers_ruled_out(failed, gpu);
  const std::int64_t whole_nodes =
      max_trainers <= wanted.per_node ? max_trainers : max_trainers / wanted.per_node * wanted.per_node;
  for (const std::int64_t trainers : {whole_nodes, ruled_out + 1}) {
    if (trainers > ruled_out) {
      if (std::optional<NextSize> next = without_estimate(inputs, gpu, trainers, max_trainers, why)) {
        return *std::move(next);
      }
    }
  }
  return nothing_larger(inputs.job->spec);
}

// One step up without an estimate: more trainers where that helps, else the next larger GPU model.
Result<NextSize> step_up(const RemediationInputs& inputs, const std::vector<FailedSize>& failed,
                         std::int64_t max_trainers, const std::string& why) {
  const crds::TrainingJobSpec& spec = inputs.job->spec;
  const crds::Attempt& last = inputs.attempts->back();
  std::vector<const AvailableGpu*> order;
  for (const AvailableGpu& gpu : *inputs.gpus) {
    order.push_back(&gpu);
  }
  std::stable_sort(order.begin(), order.end(), [&](const AvailableGpu* a, const AvailableGpu* b) {
    const auto key = [&](const estimator::GpuModel& model) {
      return std::pair(!same_name(model.name, last.gpu_model), model.memory);
    };
    return key(a->model) < key(b->model);
  });
  for (const AvailableGpu* gpu : order) {
    const std::int64_t ruled_out = estimator::trainers_ruled_out(failed, *gpu);
    if (ruled_out > 0 && !estimator::more_trainers_take_less(spec)) {
      continue;
    }
    const auto grown = static_cast<std::int64_t>(
        std::ceil(static_cast<double>(ruled_out) * spec.failure_policy.oom_bump_up_ratio));
    const std::int64_t trainers = ruled_out > 0 ? std::max(ruled_out + 1, grown) : trainers_of(inputs, last);
    if (std::optional<NextSize> next = without_estimate(inputs, *gpu, trainers, max_trainers, why)) {
      return *std::move(next);
    }
  }
  return nothing_larger(spec);
}

// Whether the amount of memory that was missing is unknown: the out-of-memory message has no figures, or they
// are no larger than the step that is assumed without figures. The estimate's correction is then an
// assumption, and so is its conclusion that no size is large enough.
bool shortfall_is_assumed(const RemediationInputs& inputs) {
  const crds::Attempt& last = inputs.attempts->back();
  const std::optional<Bytes>& needed = last.out_of_memory.needed;
  const std::optional<Bytes> card = estimator::capacity_of(last, *inputs.gpus);
  const double ratio = inputs.job->spec.failure_policy.oom_bump_up_ratio;
  return last.outcome == crds::Outcome::kCudaOutOfMemory &&
         (!needed || (card && *needed <= Bytes::ceil(static_cast<double>(card->count) * ratio)));
}

std::string why_larger(const RemediationInputs& inputs) {
  const crds::Attempt& last = inputs.attempts->back();
  return size_text(trainers_of(inputs, last), last.gpu_model) +
         (last.outcome == crds::Outcome::kCudaOutOfMemory ? " ran out of memory" : " could not be sharded");
}

// A size whose GPUs hold the job.
Result<NextSize> larger_size_in_gpu_memory(const RemediationInputs& inputs) {
  const crds::Attempt& last = inputs.attempts->back();
  const std::vector<FailedSize> failed = estimator::failed_sizes(*inputs.job, *inputs.attempts, *inputs.gpus);
  const std::string why = why_larger(inputs);
  const std::int64_t max_trainers =
      (Bytes{trainers_of(inputs, last)} * inputs.job->spec.failure_policy.oom_max_growth).count;  // saturates

  Provision answer = with_estimate(inputs, *inputs.gpus, failed);
  if (answer.decided() && answer.decision->trainers > max_trainers) {
    Provision within = with_estimate(inputs, *inputs.gpus, failed, 0, max_trainers);
    if (!within.decided()) {
      return step_towards(inputs, failed, *answer.decision, max_trainers, why);
    }
    answer = std::move(within);
  }
  if (answer.decided()) {
    return chosen(inputs, std::move(answer), why);
  }
  if (answer.event_reason == "NoFittingGPU" || answer.event_reason == "NoGPUInCluster") {
    if (shortfall_is_assumed(inputs) && !last.ended_in_startup && !last.swap_plan) {
      Result<NextSize> next =
          step_up(inputs, failed, max_trainers, why + "; how much was missing is not known");
      if (next) {
        return next;
      }
    }
    return none(answer.reason);
  }
  return step_up(inputs, failed, max_trainers, why + "; the next size has no estimate: " + answer.reason);
}

}  // namespace

Result<NextSize> larger_size(const RemediationInputs& inputs) {
  crds::TrainingJob in_gpu_memory = *inputs.job;
  in_gpu_memory.spec.provisioning.placement = crds::Placement::kHBM;
  RemediationInputs without_swap = inputs;
  without_swap.job = &in_gpu_memory;
  Result<NextSize> next = larger_size_in_gpu_memory(without_swap);
  if (next || inputs.job->spec.provisioning.placement == crds::Placement::kHBM) {
    return next;
  }
  Provision through_host = with_estimate(
      inputs, *inputs.gpus, estimator::failed_sizes(*inputs.job, *inputs.attempts, *inputs.gpus));
  return through_host.decided() ? chosen(inputs, std::move(through_host), why_larger(inputs))
                                : std::move(next);
}

Result<NextSize> size_on_other_model(const RemediationInputs& inputs) {
  const crds::Attempt& last = inputs.attempts->back();
  const std::int64_t trainers = trainers_of(inputs, last);
  const AvailableGpu* present = estimator::find_gpu(*inputs.gpus, last.gpu_model);
  if (present != nullptr && can_start(*present, trainers, inputs.job->spec.trainers.per_node)) {
    return none("its own GPUs are free again");
  }
  std::vector<AvailableGpu> others;
  for (const AvailableGpu& gpu : *inputs.gpus) {
    if (&gpu != present && gpu.free_gpus >= trainers) {
      others.push_back(gpu);
    }
  }
  const std::string why = size_text(trainers, last.gpu_model) + " were preempted, and are in use";
  const std::vector<FailedSize> failed = estimator::failed_sizes(*inputs.job, *inputs.attempts, *inputs.gpus);
  while (!others.empty()) {
    Provision answer = with_estimate(inputs, others, failed, trainers);
    if (!answer.decided()) {
      break;
    }
    const AvailableGpu* selected = estimator::find_gpu(others, answer.decision->gpu_model);
    if (can_start(*selected, answer.decision->trainers, answer.decision->per_node)) {
      return chosen(inputs, std::move(answer), why);
    }
    others.erase(others.begin() + (selected - others.data()));
  }
  return none("no other allowed GPU model has enough free GPUs");
}

}  // namespace plimsoll::remediation
