#include "remediation/remediation.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <random>

#include "base/backoff.h"
#include "base/json/edit.h"
#include "base/stable_hash.h"
#include "estimator/provisioner/provisioner.h"
#include "estimator/provisioner/size_exclusion.h"
#include "remediation/host_memory.h"
#include "remediation/next_size.h"
#include "remediation/shared_memory.h"

namespace plimsoll::remediation {
namespace {

using crds::Attempt;
using crds::FailureAction;
using crds::Outcome;

// batch/v1 Job's back-off: 10 s doubling to six minutes. With jitter, so that jobs that were preempted
// together do not come back together.
constexpr std::chrono::seconds kFirstDelay{10};
constexpr std::chrono::seconds kMaxDelay{360};
constexpr double kJitter = 0.5;

// This many failures of the infrastructure in the recorded attempts do not count: enough for a bad node and a
// bad rack. Later ones count, because a job that always breaks its nodes looks the same.
constexpr std::int64_t kUncountedInfrastructureFailures = 5;

// Restarts that rules may exempt from maxRestarts: as many as the largest maxRestarts, so that a loop ends.
constexpr std::int64_t kMaxExemptedRestarts = 100;

// As a share of the card; less is the allocator's ordinary rounding.
constexpr double kLargeFragmentation = 0.01;

bool matches(const crds::FailureRule& rule, const Attempt& attempt) {
  const auto& causes = rule.on_causes;
  const auto& codes = rule.on_exit_codes;
  const auto is_cause = [&](crds::FailureCause cause) {
    return std::string_view(name_of(cause)) == name_of(attempt.outcome);
  };
  return (causes.empty() || std::any_of(causes.begin(), causes.end(), is_cause)) &&
         (codes.empty() ||
          (attempt.exit_code && std::find(codes.begin(), codes.end(), *attempt.exit_code) != codes.end()));
}

// Whether the trainer container configures PyTorch's allocator itself.
bool configures_allocator(const crds::TrainingJob& job) {
  const Json& containers = member(job.raw, {"spec", "template", "spec", "containers"});
  const int trainer = crds::trainer_container(containers);
  const Json& environment = trainer < 0
                                ? Json::nullSingleton()
                                : member(element(containers, static_cast<std::size_t>(trainer)), {"env"});
  return environment.isArray() &&
         std::any_of(environment.begin(), environment.end(), [](const Json& variable) {
           const std::string name = text_member(variable, {"name"});
           return name == "PYTORCH_CUDA_ALLOC_CONF" || name == "PYTORCH_ALLOC_CONF";
         });
}

// Of a node's allocatable memory; the rest is for the pods that run on every node.
constexpr double kNodeShare = 0.9;

// One decision on one job.
class Policy {
 public:
  explicit Policy(const RemediationInputs& inputs)
      : inputs_(inputs),
        spec_(inputs.job->spec),
        last_(inputs.attempts->back()),
        capacity_(estimator::capacity_of(last_, *inputs.gpus)) {}

  Remediation decide() {
    if (last_.outcome == Outcome::kSuspended) {
      Remediation next = restarted("", std::chrono::seconds(0));
      next.message = "suspended; it continues when spec.suspend is false";
      next.counts = false;
      return next;
    }
    const auto& rules = spec_.failure_policy.rules;
    const auto rule = std::find_if(rules.begin(), rules.end(),
                                   [&](const crds::FailureRule& one) { return matches(one, last_); });
    rule_ = rule == rules.end() ? nullptr : &*rule;
    if (rule_ != nullptr && rule_->action == FailureAction::kFailJob) {
      return failed("FailurePolicyRule",
                    "rule " + std::to_string(rule - rules.begin()) + " of spec.failurePolicy fails the job");
    }
    if (rule_ == nullptr && last_.outcome == Outcome::kUserError) {
      return failed("CodeError", "it would fail again, so that it is not started again: " + last_.message);
    }
    const std::int64_t max_restarts = spec_.failure_policy.max_restarts;
    if (counts() && inputs_.restarts_counted >= max_restarts) {
      return failed("ReachedMaxRestarts",
                    "it has been restarted as often as spec.failurePolicy.maxRestarts " +
                        std::to_string(max_restarts) + " allows" +
                        (last_.message.empty() ? std::string() : ": " + last_.message));
    }
    Remediation next = by_cause();
    next.counts = counts();
    return next;
  }

 private:
  // "CUDA out of memory on 16 x A100-40GB: a trainer needed at least 43.1 GiB"
  std::string what_happened() const {
    const std::string on = " on " + std::to_string(last_.trainers) +
                           (last_.gpu_model.empty() ? " GPUs" : " x " + last_.gpu_model);
    const crds::OutOfMemoryFigures& figures = last_.out_of_memory;
    switch (last_.outcome) {
      case Outcome::kCudaOutOfMemory:
        if (figures.others_filled_card()) {
          return "CUDA out of memory" + on + ": others held " + to_string(*figures.held_by_others) +
                 " of a card of " + to_string(*figures.capacity) + " on " + avoided_node() +
                 ", where a trainer needed " + to_string(*figures.needed);
        }
        return "CUDA out of memory" + on +
               (figures.needed ? ": a trainer needed at least " + to_string(*figures.needed) : std::string());
      case Outcome::kHostOutOfMemory:
        return (last_.shared_memory_full ? "/dev/shm was full" : "the host's memory ran out") + on;
      case Outcome::kPreempted: return "preempted" + on;
      case Outcome::kInfrastructureFailure: return "the infrastructure failed" + on;
      case Outcome::kShardingFailure: return "the embedding tables could not be sharded" + on;
      case Outcome::kUserError: return "the training code failed" + on;
      default: return "ended" + on + " for an unknown cause";
    }
  }

  // The one of the last attempt.
  std::string avoided_node() const {
    return last_.avoid_nodes.empty() ? "its node" : "node " + last_.avoid_nodes.back();
  }

  Remediation restarted(const std::string& change, std::chrono::seconds delay,
                        Json patch = Json(::Json::arrayValue)) {
    Remediation next;
    next.restart = true;
    next.reason = name_of(last_.outcome);
    next.message = what_happened() + "; " + change;
    next.delay = delay;
    next.patch = std::move(patch);
    // Kept for all later attempts: without them the failure would come back.
    next.expandable_segments = last_.expandable_segments;
    next.shared_memory = last_.shared_memory;
    return next;
  }

  Remediation failed(const char* reason, const std::string& why) const {
    Remediation end;
    end.reason = reason;
    end.message = what_happened() + "; " + why;
    return end;
  }

  // On a larger size; where there is none, the job fails with the advice.
  Remediation resized(const std::string& advice) {
    Result<NextSize> next = larger_size(inputs_);
    if (!next) {
      return failed("MaxResourcesReached", next.error().message + ". " + advice);
    }
    return restarted("the next attempt has " + next->text, std::chrono::seconds(0), std::move(next->patch));
  }

  bool resizable() const {
    return spec_.provisioning.mode == crds::ProvisioningMode::kAuto &&
           text_member(inputs_.job->raw, {"metadata", "annotations", crds::kProvisioningAnnotation}) !=
               "disabled";
  }

  bool counts() const {
    if (rule_ != nullptr) {
      return rule_->action != FailureAction::kRestartJobAndIgnoreMaxRestarts ||
             (last_.outcome != Outcome::kPreempted && inputs_.restarts_uncounted >= kMaxExemptedRestarts);
    }
    if (last_.outcome == Outcome::kInfrastructureFailure) {
      return std::count_if(inputs_.attempts->begin(), inputs_.attempts->end(), [](const Attempt& attempt) {
               return attempt.outcome == Outcome::kInfrastructureFailure;
             }) > kUncountedInfrastructureFailures;
    }
    return last_.outcome != Outcome::kPreempted;
  }

  // Doubles with each attempt in a row that ended in the same way.
  std::chrono::seconds back_off() const {
    const auto other = std::find_if(inputs_.attempts->rbegin(), inputs_.attempts->rend(),
                                    [&](const Attempt& attempt) { return attempt.outcome != last_.outcome; });
    const auto delay = std::chrono::duration_cast<std::chrono::seconds>(
        exponential_delay(kFirstDelay, kMaxDelay, other - inputs_.attempts->rbegin() - 1));
    const std::string key =
        text_member(inputs_.job->raw, {"metadata", "uid"}) + "/" + std::to_string(last_.number);
    const double share = static_cast<double>(std::mt19937_64(stable_hash(key))() >> 11U) * 0x1p-53;  // 0 to 1
    return with_jitter(delay, kJitter, share);
  }

  // Whether the same size may suffice with an allocator that leaves fewer fragments. Tried once, and not for
  // a job that configures the allocator itself.
  bool fragmented() const {
    const bool tried = std::any_of(inputs_.attempts->begin(), inputs_.attempts->end(),
                                   [](const Attempt& attempt) { return attempt.expandable_segments; });
    const std::optional<Bytes> card = last_.out_of_memory.capacity ? last_.out_of_memory.capacity : capacity_;
    if (tried || !last_.out_of_memory.needed || !last_.out_of_memory.fragmentation || !card ||
        configures_allocator(*inputs_.job)) {
      return false;
    }
    const Bytes large = Bytes::ceil(static_cast<double>(card->count) * kLargeFragmentation);
    return *last_.out_of_memory.fragmentation >= large &&
           *last_.out_of_memory.needed - *last_.out_of_memory.fragmentation <= *card;
  }

  Remediation after_cuda_out_of_memory() {
    if (last_.out_of_memory.others_filled_card()) {
      return restarted("the next attempt keeps its size, and avoids " + avoided_node(),
                       std::chrono::seconds(0));
    }
    if (fragmented()) {
      Remediation next = restarted("of that " + to_string(*last_.out_of_memory.fragmentation) +
                                       " lay in fragments, so that the same size is tried once more with "
                                       "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
                                   std::chrono::seconds(0));
      next.expandable_segments = true;
      return next;
    }
    if (!resizable()) {
      if (rule_ != nullptr) {
        return restarted("started again on the same size by a rule of spec.failurePolicy", back_off());
      }
      return failed("ResizingNotAllowed",
                    std::string("provisioning mode ") + name_of(spec_.provisioning.mode) +
                        " leaves the size of the job to you: raise spec.trainers.replicas or choose a larger "
                        "spec.trainers.gpuModel, or set spec.provisioning.mode to Auto");
    }
    return resized(
        estimator::more_trainers_take_less(spec_)
            ? "Raise spec.provisioning.maxTrainers or allow larger GPUs in spec.provisioning.gpuModels; "
              "or lower spec.training.batchSizePerTrainer, or use activation checkpointing"
            : "Each trainer holds the whole model, so that more of them do not help: allow larger GPUs in "
              "spec.provisioning.gpuModels, train with FSDP or ZeRO (spec.training.parallelism.strategy), "
              "use activation checkpointing, or lower spec.training.batchSizePerTrainer");
  }

  std::string container() const {
    return "the container " + (last_.container.empty() ? "that trains" : last_.container);
  }

  // 0: unknown.
  Bytes most_host_memory() const {
    const estimator::AvailableGpu* gpu = estimator::find_gpu(*inputs_.gpus, last_.gpu_model);
    const Bytes node = gpu == nullptr ? Bytes{} : gpu->host_memory;
    return Bytes::ceil(static_cast<double>(node.count) * kNodeShare);
  }

  Remediation after_full_shared_memory() {
    using Change = SharedMemoryGrowth::Change;
    const SharedMemoryGrowth more = enlarge_shared_memory(*inputs_.job, last_, most_host_memory());
    const std::string what = "/dev/shm of " + container();
    if (more.change == Change::kIsAllMemory) {
      return after_host_out_of_memory();
    }
    if (more.change == Change::kNotPlimsolls) {
      return restarted("started again as it is, because /dev/shm is not Plimsoll's to enlarge: " +
                           to_string(more.given) + ". Mount an emptyDir of medium Memory there instead",
                       back_off());
    }
    if (more.change == Change::kOtherContainer || !resizable()) {
      return restarted(
          "started again as it is; mount an emptyDir of medium Memory, with a larger sizeLimit, at " + what,
          back_off());
    }
    if (more.change == Change::kAtLimit) {
      return failed(
          "MaxResourcesReached",
          what + " has " + to_string(more.before) +
              ", and more than half of the memory that a container can have on nodes of this GPU model would leave its "
              "processes too little. Lower what the job keeps there: workers of the data loader, prefetched batches");
    }
    Remediation next = restarted(what + " gets " + to_string(more.now) + " instead of " +
                                     to_string(more.before) + memory_for(more.memory),
                                 std::chrono::seconds(0), more.memory.patch);
    next.shared_memory = more.now;
    return next;
  }

  static std::string memory_for(const HostMemory& memory) {
    switch (memory.change) {
      case HostMemory::Change::kRaised:
        return ", which counts against the container's memory: that becomes " + to_string(memory.now) +
               " instead of " + to_string(memory.before);
      case HostMemory::Change::kAtLimit:
        return ", which counts against the container's memory: that stays " + to_string(memory.before) +
               ", because the nodes of this GPU model can give no more";
      case HostMemory::Change::kUnlimited: break;
    }
    return "";
  }

  Remediation after_host_out_of_memory() {
    const std::string what = container();
    if (!resizable()) {
      return restarted("started again as it is; give " + what + " more memory", back_off());
    }
    HostMemory more =
        raise_host_memory(*inputs_.job, most_host_memory(), last_.container,
                          last_.host_memory.value_or(Bytes{}), last_.predicted_host_memory.value_or(Bytes{}));
    switch (more.change) {
      case HostMemory::Change::kRaised:
        return restarted(what + " gets " + to_string(more.now) + " instead of " + to_string(more.before) +
                             (more.now == last_.predicted_host_memory
                                  ? ", which is what its trainers are predicted to take"
                                  : ""),
                         std::chrono::seconds(0), std::move(more.patch));
      case HostMemory::Change::kUnlimited:
        return restarted(what +
                             " has no memory limit or request in the template that could be raised: set "
                             "resources.requests.memory, so that it is scheduled where there is enough",
                         back_off());
      case HostMemory::Change::kAtLimit: break;
    }
    return failed(
        "MaxResourcesReached",
        what + " has " + to_string(more.before) +
            ", which is all that the nodes of this GPU model can give. Lower what the job keeps on the "
            "host: workers of the data loader, prefetched batches, pinned memory");
  }

  Remediation after_sharding_failure() {
    if (!resizable() || !estimator::more_trainers_take_less(spec_)) {
      return restarted("started again on the same size with a new plan", back_off());
    }
    return resized("Raise spec.provisioning.maxTrainers or allow larger GPUs in spec.provisioning.gpuModels");
  }

  Remediation after_preemption() {
    if (resizable()) {
      if (Result<NextSize> next = size_on_other_model(inputs_)) {
        return restarted("the next attempt has " + next->text, back_off(), std::move(next->patch));
      }
    }
    return restarted("it waits for GPUs of the same size", back_off());
  }

  Remediation by_cause() {
    switch (last_.outcome) {
      case Outcome::kCudaOutOfMemory: return after_cuda_out_of_memory();
      case Outcome::kHostOutOfMemory:
        return last_.shared_memory_full ? after_full_shared_memory() : after_host_out_of_memory();
      case Outcome::kShardingFailure: return after_sharding_failure();
      case Outcome::kPreempted: return after_preemption();
      default: return restarted("started again", back_off());
    }
  }

  const RemediationInputs& inputs_;
  const crds::TrainingJobSpec& spec_;
  const Attempt& last_;
  const std::optional<Bytes> capacity_;      // of a card of the last attempt
  const crds::FailureRule* rule_ = nullptr;  // the one that matched
};

}  // namespace

Remediation remediate(const RemediationInputs& inputs) {
  assert(inputs.job != nullptr && inputs.gpus != nullptr && inputs.attempts != nullptr);
  assert(!inputs.attempts->empty());
  assert(inputs.attempts->back().outcome != Outcome::kRunning &&
         inputs.attempts->back().outcome != Outcome::kSucceeded);
  return Policy(inputs).decide();
}

}  // namespace plimsoll::remediation
