#include "controllers/remediation.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <random>

#include "base/json_edit.h"
#include "base/stable_hash.h"
#include "controllers/host_memory.h"
#include "controllers/next_size.h"
#include "estimator/provisioner/size_exclusion.h"

namespace plimsoll::controllers {
namespace {

using crds::Attempt;
using crds::FailureAction;
using crds::Outcome;

// batch/v1 Job's back-off: 10 s doubling to six minutes. Spread by up to half, so that jobs that were
// preempted together do not come back together.
constexpr std::chrono::seconds kFirstDelay{10};
constexpr std::chrono::seconds kLongestDelay{360};
constexpr double kSpread = 0.5;

// Failures of the infrastructure among the attempts on record that are not the job's: enough for a bad node
// and a bad rack. A job that always takes its nodes down looks the same, so that later ones count.
constexpr std::int64_t kForgivenInfrastructureFailures = 5;

// Restarts that a rule exempts from maxRestarts. As many as the largest maxRestarts: a loop must end.
constexpr std::int64_t kMostExempted = 100;

// Below this share of the card, what lies unallocated is the allocator's ordinary rounding.
constexpr double kLargeFragmentation = 0.01;

crds::FailureCause cause_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kCudaOutOfMemory: return crds::FailureCause::kCudaOutOfMemory;
    case Outcome::kHostOutOfMemory: return crds::FailureCause::kHostOutOfMemory;
    case Outcome::kPreempted: return crds::FailureCause::kPreempted;
    case Outcome::kInfrastructureFailure: return crds::FailureCause::kInfrastructureFailure;
    case Outcome::kShardingFailure: return crds::FailureCause::kShardingFailure;
    case Outcome::kUserError: return crds::FailureCause::kUserError;
    default: return crds::FailureCause::kUnknown;
  }
}

bool matches(const crds::FailureRule& rule, const Attempt& attempt) {
  const auto& causes = rule.on_causes;
  const auto& codes = rule.on_exit_codes;
  return (causes.empty() ||
          std::find(causes.begin(), causes.end(), cause_of(attempt.outcome)) != causes.end()) &&
         (codes.empty() ||
          (attempt.exit_code && std::find(codes.begin(), codes.end(), *attempt.exit_code) != codes.end()));
}

// Whether the trainer container says itself how PyTorch's allocator is to work.
bool sets_the_allocator(const crds::TrainingJob& job) {
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
constexpr double kShareOfANode = 0.9;

// One decision on one job.
class Policy {
 public:
  explicit Policy(const RemediationInputs& inputs)
      : inputs_(inputs),
        spec_(inputs.job->spec),
        last_(inputs.attempts->back()),
        capacity_(estimator::capacity_of(last_, *inputs.gpus)) {}

  Remediation decide();

 private:
  Remediation by_cause();
  Remediation after_cuda_out_of_memory();
  Remediation after_host_out_of_memory();
  Remediation after_sharding_failure();
  Remediation after_preemption();

  Remediation restarted(const std::string& change, std::chrono::seconds delay,
                        Json patch = Json(::Json::arrayValue));
  Remediation failed(const char* reason, const std::string& why) const;
  bool counts() const;
  bool resizable() const;
  bool fragmented() const;
  std::chrono::seconds back_off() const;
  std::string what_happened() const;

  const RemediationInputs& inputs_;
  const crds::TrainingJobSpec& spec_;
  const Attempt& last_;
  const std::optional<Bytes> capacity_;      // of a card of the last attempt
  const crds::FailureRule* rule_ = nullptr;  // the one that matched
};

// "CUDA out of memory on 16 x A100-40GB: a trainer needed at least 43.1 GiB"
std::string Policy::what_happened() const {
  const std::string on =
      " on " + std::to_string(last_.trainers) + (last_.gpu_model.empty() ? " GPUs" : " x " + last_.gpu_model);
  switch (last_.outcome) {
    case Outcome::kCudaOutOfMemory:
      return "CUDA out of memory" + on +
             (last_.needed ? ": a trainer needed at least " + to_string(*last_.needed) : std::string());
    case Outcome::kHostOutOfMemory: return "the host's memory ran out" + on;
    case Outcome::kPreempted: return "preempted" + on;
    case Outcome::kInfrastructureFailure: return "the infrastructure failed" + on;
    case Outcome::kShardingFailure: return "the embedding tables could not be sharded" + on;
    case Outcome::kUserError: return "the training code failed" + on;
    default: return "ended" + on + " for a cause that is not known";
  }
}

Remediation Policy::restarted(const std::string& change, std::chrono::seconds delay, Json patch) {
  Remediation next;
  next.restart = true;
  next.reason = name_of(last_.outcome);
  next.message = what_happened() + "; " + change;
  next.delay = delay;
  next.patch = std::move(patch);
  // Once set it stays: going back would bring the fragments back.
  next.expandable_segments = last_.expandable_segments;
  return next;
}

Remediation Policy::failed(const char* reason, const std::string& why) const {
  Remediation end;
  end.reason = reason;
  end.message = what_happened() + "; " + why;
  return end;
}

bool Policy::resizable() const {
  return spec_.provisioning.mode == crds::ProvisioningMode::kAuto &&
         text_member(inputs_.job->raw, {"metadata", "annotations", crds::kProvisioningAnnotation}) !=
             "disabled";
}

bool Policy::counts() const {
  if (rule_ != nullptr) {
    return rule_->action != FailureAction::kRestartJobAndIgnoreMaxRestarts ||
           (last_.outcome != Outcome::kPreempted && inputs_.restarts_uncounted >= kMostExempted);
  }
  if (last_.outcome == Outcome::kInfrastructureFailure) {
    return std::count_if(inputs_.attempts->begin(), inputs_.attempts->end(), [](const Attempt& attempt) {
             return attempt.outcome == Outcome::kInfrastructureFailure;
           }) > kForgivenInfrastructureFailures;
  }
  return last_.outcome != Outcome::kPreempted;
}

// Doubles with each attempt in a row that ended in the same way.
std::chrono::seconds Policy::back_off() const {
  std::chrono::seconds delay = kFirstDelay;
  for (auto attempt = inputs_.attempts->rbegin() + 1;
       attempt != inputs_.attempts->rend() && attempt->outcome == last_.outcome && delay < kLongestDelay;
       ++attempt) {
    delay *= 2;
  }
  delay = std::min(delay, kLongestDelay);
  const std::string key =
      text_member(inputs_.job->raw, {"metadata", "uid"}) + "/" + std::to_string(last_.number);
  const double share = static_cast<double>(std::mt19937_64(stable_hash(key))() >> 11U) * 0x1p-53;  // 0 to 1
  return delay + std::chrono::seconds(
                     static_cast<std::int64_t>(static_cast<double>(delay.count()) * kSpread * share));
}

// Whether the same size may do with an allocator that leaves fewer fragments. Tried once, and not where the
// job says itself how its allocator is to work.
bool Policy::fragmented() const {
  const bool tried = std::any_of(inputs_.attempts->begin(), inputs_.attempts->end(),
                                 [](const Attempt& attempt) { return attempt.expandable_segments; });
  const std::optional<Bytes> card = last_.capacity ? last_.capacity : capacity_;
  if (tried || !last_.needed || !last_.fragmentation || !card || sets_the_allocator(*inputs_.job)) {
    return false;
  }
  const Bytes large = Bytes::ceil(static_cast<double>(card->count) * kLargeFragmentation);
  return *last_.fragmentation >= large && *last_.needed - *last_.fragmentation <= *card;
}

Remediation Policy::after_cuda_out_of_memory() {
  if (fragmented()) {
    Remediation next = restarted("of that " + to_string(*last_.fragmentation) +
                                     " lay in fragments, so that the same size is tried once more with "
                                     "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
                                 std::chrono::seconds(0));
    next.expandable_segments = true;
    return next;
  }
  if (!resizable()) {
    if (rule_ != nullptr) {
      return restarted("started again on the same size, as a rule of spec.failurePolicy wants", back_off());
    }
    return failed("ResizingNotAllowed",
                  std::string("provisioning mode ") + name_of(spec_.provisioning.mode) +
                      " leaves the size of the job to you: raise spec.trainers.replicas or choose a larger "
                      "spec.trainers.gpuModel, or set spec.provisioning.mode to Auto");
  }
  NextSize next = larger_size(inputs_);
  if (next.found) {
    return restarted("the next attempt has " + next.words, std::chrono::seconds(0), std::move(next.patch));
  }
  return failed(
      "MaxResourcesReached",
      next.words + ". " +
          (more_trainers_take_less(spec_)
               ? "Raise spec.provisioning.maxTrainers or allow larger GPUs in spec.provisioning.gpuModels; "
                 "or lower spec.training.batchSizePerTrainer, or use activation checkpointing"
               : "Each trainer holds the whole model, so that more of them do not help: allow larger GPUs in "
                 "spec.provisioning.gpuModels, train with FSDP or ZeRO (spec.training.parallelism.strategy), "
                 "use "
                 "activation checkpointing, or lower spec.training.batchSizePerTrainer"));
}

Remediation Policy::after_host_out_of_memory() {
  const std::string what = "the container " + (last_.container.empty() ? "that trains" : last_.container);
  if (!resizable()) {
    return restarted("started again as it is; give " + what + " more memory", back_off());
  }
  const auto gpu =
      std::find_if(inputs_.gpus->begin(), inputs_.gpus->end(),
                   [&](const estimator::AvailableGpu& one) { return one.model.name == last_.gpu_model; });
  const Bytes node = gpu == inputs_.gpus->end() ? Bytes{} : gpu->host_memory;
  HostMemory more = raise_host_memory(
      *inputs_.job, Bytes::ceil(static_cast<double>(node.count) * kShareOfANode), last_.container);
  switch (more.change) {
    case HostMemory::Change::kRaised:
      return restarted(what + " gets " + to_string(more.now) + " instead of " + to_string(more.before),
                       std::chrono::seconds(0), std::move(more.patch));
    case HostMemory::Change::kUnlimited:
      return restarted(what +
                           " has no memory limit or request in the template that could be raised: set "
                           "resources.requests.memory, so that it is scheduled where there is enough",
                       back_off());
    case HostMemory::Change::kAtMost: break;
  }
  return failed(
      "MaxResourcesReached",
      what + " has " + to_string(more.before) +
          ", which is all that the nodes of this GPU model can give. Lower what the job keeps on the "
          "host: workers of the data loader, prefetched batches, pinned memory");
}

Remediation Policy::after_sharding_failure() {
  if (!resizable() || !more_trainers_take_less(spec_)) {
    return restarted("started again on the same size with a plan computed anew", back_off());
  }
  NextSize next = larger_size(inputs_);
  if (next.found) {
    return restarted("the next attempt has " + next.words, std::chrono::seconds(0), std::move(next.patch));
  }
  return failed("MaxResourcesReached", next.words +
                                           ". Raise spec.provisioning.maxTrainers or allow larger GPUs in "
                                           "spec.provisioning.gpuModels");
}

Remediation Policy::after_preemption() {
  if (resizable()) {
    NextSize next = room_elsewhere(inputs_);
    if (next.found) {
      return restarted("the next attempt has " + next.words, back_off(), std::move(next.patch));
    }
  }
  return restarted("it waits for GPUs of the same size", back_off());
}

Remediation Policy::by_cause() {
  switch (last_.outcome) {
    case Outcome::kCudaOutOfMemory: return after_cuda_out_of_memory();
    case Outcome::kHostOutOfMemory: return after_host_out_of_memory();
    case Outcome::kShardingFailure: return after_sharding_failure();
    case Outcome::kPreempted: return after_preemption();
    default: return restarted("started again", back_off());
  }
}

Remediation Policy::decide() {
  if (last_.outcome == Outcome::kSuspended) {
    Remediation next = restarted("", std::chrono::seconds(0));
    next.message = "suspended; it goes on when spec.suspend is false";
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
  const std::int64_t most = spec_.failure_policy.max_restarts;
  if (counts() && inputs_.restarts_counted >= most) {
    return failed("ReachedMaxRestarts", "it has been restarted as often as spec.failurePolicy.maxRestarts " +
                                            std::to_string(most) + " allows" +
                                            (last_.message.empty() ? std::string() : ": " + last_.message));
  }
  Remediation next = by_cause();
  next.counts = counts();
  return next;
}

}  // namespace

Remediation remediate(const RemediationInputs& inputs) {
  assert(inputs.job != nullptr && inputs.gpus != nullptr && inputs.attempts != nullptr);
  assert(!inputs.attempts->empty());
  assert(inputs.attempts->back().outcome != Outcome::kRunning &&
         inputs.attempts->back().outcome != Outcome::kSucceeded);
  return Policy(inputs).decide();
}

}  // namespace plimsoll::controllers
