#include "crds/training_job_status.h"

#include <algorithm>
#include <array>

#include "crds/status_fields.h"

namespace plimsoll::crds {

namespace {

// The most important first; types that are not listed come last.
constexpr std::array kOrder = {"Succeeded",   "Failed",      "Suspended", "Restarting", "Running",
                               "Provisioned", "OOMDetected", "Preempted", "Estimated"};

std::size_t rank_of(const std::string& type) {
  return static_cast<std::size_t>(std::find(kOrder.begin(), kOrder.end(), type) - kOrder.begin());
}

std::vector<std::string> decode_avoided(const Json& json) {
  std::vector<std::string> nodes;
  for (const Json& node : list_of(json, "avoidNodes")) {
    if (std::string name = text_member(node, {}); !name.empty() && nodes.size() < kMaxAvoidedNodes) {
      nodes.push_back(std::move(name));
    }
  }
  return nodes;
}

Attempt decode_attempt(const Json& json) {
  Attempt attempt;
  attempt.number = integer_of(json, "number").value_or(0);
  attempt.gpu_model = text_member(json, {"gpuModel"});
  attempt.trainers = integer_of(json, "trainers").value_or(0);
  attempt.per_node = integer_of(json, "perNode").value_or(0);
  attempt.batch_size = natural_of(json, "batchSizePerTrainer").value_or(0);
  attempt.accumulation = std::max<std::int64_t>(1, natural_of(json, "gradientAccumulation").value_or(1));
  attempt.estimated = bytes_of(json, "estimatedBytes");
  attempt.learned = Bytes{integer_of(json, "learnedBytes").value_or(0)};
  attempt.observed_startup = bytes_of(json, "observedStartupBytes");
  attempt.ended_in_startup = member(json, {"endedInStartup"}) == Json(true);
  attempt.observed_peak = bytes_of(json, "observedPeakBytes");
  attempt.observed_allocated = bytes_of(json, "observedAllocatedBytes");
  attempt.observed_reserved = bytes_of(json, "observedReservedBytes");
  attempt.observed_context = bytes_of(json, "observedContextBytes");
  attempt.observed_communication = bytes_of(json, "observedCommunicationBytes");
  attempt.observed_host_bandwidth = bytes_of(json, "observedHostBytesPerSecond");
  attempt.observed_host_update_bandwidth = bytes_of(json, "observedHostUpdateBytesPerSecond");
  attempt.out_of_memory.needed = bytes_of(json, "neededBytes");
  attempt.out_of_memory.capacity = bytes_of(json, "capacityBytes");
  attempt.out_of_memory.fragmentation = bytes_of(json, "fragmentationBytes");
  attempt.out_of_memory.held_by_others = bytes_of(json, "heldByOthersBytes");
  attempt.avoid_nodes = decode_avoided(json);
  attempt.exit_code = integer_of(json, "exitCode");
  attempt.container = text_member(json, {"container"});
  attempt.expandable_segments = member(json, {"expandableSegments"}) == Json(true);
  attempt.swap_plan = member(json, {"swapPlan"}) == Json(true);
  attempt.host_memory = bytes_of(json, "hostMemoryBytes");
  attempt.predicted_host_memory = bytes_of(json, "predictedHostMemoryBytes");
  attempt.shared_memory = bytes_of(json, "sharedMemoryBytes");
  attempt.shared_memory_full = member(json, {"sharedMemoryFull"}) == Json(true);
  attempt.start_time = text_member(json, {"startTime"});
  attempt.completion_time = text_member(json, {"completionTime"});
  attempt.outcome = enum_of<Outcome>(text_member(json, {"outcome"})).value_or(Outcome::kUnknown);
  attempt.message = text_member(json, {"message"});
  return attempt;
}

Json encode(const Attempt& attempt) {
  JsonObject json;
  put(json, "number", attempt.number);
  put(json, "gpuModel", attempt.gpu_model);
  put(json, "trainers", attempt.trainers);
  put(json, "perNode", attempt.per_node);
  if (attempt.batch_size > 0) {
    put(json, "batchSizePerTrainer", attempt.batch_size);
    put(json, "gradientAccumulation", attempt.accumulation);
  }
  put(json, "estimatedBytes", attempt.estimated);
  if (attempt.learned != Bytes{}) {
    put(json, "learnedBytes", attempt.learned.count);
  }
  put(json, "observedStartupBytes", attempt.observed_startup);
  if (attempt.ended_in_startup) {
    json["endedInStartup"] = true;
  }
  put(json, "observedPeakBytes", attempt.observed_peak);
  put(json, "observedAllocatedBytes", attempt.observed_allocated);
  put(json, "observedReservedBytes", attempt.observed_reserved);
  put(json, "observedContextBytes", attempt.observed_context);
  put(json, "observedCommunicationBytes", attempt.observed_communication);
  put(json, "observedHostBytesPerSecond", attempt.observed_host_bandwidth);
  put(json, "observedHostUpdateBytesPerSecond", attempt.observed_host_update_bandwidth);
  put(json, "neededBytes", attempt.out_of_memory.needed);
  put(json, "capacityBytes", attempt.out_of_memory.capacity);
  put(json, "fragmentationBytes", attempt.out_of_memory.fragmentation);
  put(json, "heldByOthersBytes", attempt.out_of_memory.held_by_others);
  for (const std::string& node : attempt.avoid_nodes) {
    json["avoidNodes"].append(node);
  }
  put(json, "exitCode", attempt.exit_code);
  put(json, "container", attempt.container);
  if (attempt.expandable_segments) {
    json["expandableSegments"] = true;
  }
  if (attempt.swap_plan) {
    json["swapPlan"] = true;
  }
  put(json, "hostMemoryBytes", attempt.host_memory);
  put(json, "predictedHostMemoryBytes", attempt.predicted_host_memory);
  put(json, "sharedMemoryBytes", attempt.shared_memory);
  if (attempt.shared_memory_full) {
    json["sharedMemoryFull"] = true;
  }
  put(json, "startTime", attempt.start_time);
  put(json, "completionTime", attempt.completion_time);
  json["outcome"] = name_of(attempt.outcome);
  put(json, "message", attempt.message);
  return json;
}

Condition decode_condition(const Json& json) {
  return {.type = text_member(json, {"type"}),
          .status = text_member(json, {"status"}, "Unknown"),
          .observed_generation = integer_of(json, "observedGeneration").value_or(0),
          .last_transition_time = text_member(json, {"lastTransitionTime"}),
          .reason = text_member(json, {"reason"}),
          .message = text_member(json, {"message"})};
}

Json encode(const Condition& condition) {
  JsonObject json;
  json["type"] = condition.type;
  json["status"] = condition.status;
  put(json, "observedGeneration", condition.observed_generation);
  json["lastTransitionTime"] = condition.last_transition_time;
  json["reason"] = condition.reason;
  json["message"] = condition.message;
  return json;
}

}  // namespace

const Condition* JobStatus::find(const std::string& type) const {
  const auto found = std::find_if(conditions.begin(), conditions.end(),
                                  [&](const Condition& condition) { return condition.type == type; });
  return found == conditions.end() ? nullptr : &*found;
}

bool JobStatus::is_true(const std::string& type) const {
  const Condition* condition = find(type);
  return condition != nullptr && condition->status == "True";
}

void JobStatus::set(Condition condition, const std::string& now) {
  const Condition* old = find(condition.type);
  const bool same_status = old != nullptr && old->status == condition.status;
  condition.last_transition_time = same_status ? old->last_transition_time : now;
  std::erase_if(conditions, [&](const Condition& other) { return other.type == condition.type; });
  const auto after = std::find_if(conditions.begin(), conditions.end(), [&](const Condition& other) {
    return rank_of(other.type) > rank_of(condition.type);
  });
  conditions.insert(after, std::move(condition));
}

JobStatus decode_status(const Json& object) {
  const Json& json = member(object, {"status"});
  JobStatus status;
  status.observed_generation = integer_of(json, "observedGeneration").value_or(0);
  for (const Json& condition : list_of(json, "conditions")) {
    status.conditions.push_back(decode_condition(condition));
  }
  status.start_time = text_member(json, {"startTime"});
  status.completion_time = text_member(json, {"completionTime"});
  status.requested_trainers = integer_of(member(json, {"requested"}), "trainers");
  status.requested_gpu_model = text_member(json, {"requested", "gpuModel"});
  status.requested_global_batch = integer_of(member(json, {"requested"}), "globalBatchSize");
  status.gpus_saved = integer_of(json, "gpusSaved");
  status.global_batch = integer_of(json, "globalBatchSize");
  status.throughput = member(json, {"throughput"});
  status.swap_plan = member(json, {"swapPlan"});
  status.gpu_hours = text_member(json, {"gpuHours"});
  status.gpu_hours_saved = text_member(json, {"gpuHoursSaved"});
  status.estimate = member(json, {"estimate"});
  status.plan_name = text_member(json, {"planRef", "name"});
  status.restarts = integer_of(json, "restarts").value_or(0);
  status.restarts_counted = integer_of(json, "restartsCountTowardsMax").value_or(0);
  status.next_attempt_time = text_member(json, {"nextAttemptTime"});
  for (const Json& attempt : list_of(json, "attempts")) {
    status.attempts.push_back(decode_attempt(attempt));
  }
  return status;
}

Json encode(const JobStatus& status) {
  JsonObject json;
  put(json, "observedGeneration", status.observed_generation);
  for (const Condition& condition : status.conditions) {
    json["conditions"].append(encode(condition));
  }
  put(json, "startTime", status.start_time);
  put(json, "completionTime", status.completion_time);
  if (status.requested_trainers) {
    put(json["requested"], "trainers", *status.requested_trainers);
  }
  if (!status.requested_gpu_model.empty()) {
    json["requested"]["gpuModel"] = status.requested_gpu_model;
  }
  if (status.requested_global_batch) {
    put(json["requested"], "globalBatchSize", *status.requested_global_batch);
  }
  put(json, "gpusSaved", status.gpus_saved);
  put(json, "globalBatchSize", status.global_batch);
  if (!status.throughput.isNull()) {
    json["throughput"] = status.throughput;
  }
  if (!status.swap_plan.isNull()) {
    json["swapPlan"] = status.swap_plan;
  }
  put(json, "gpuHours", status.gpu_hours);
  put(json, "gpuHoursSaved", status.gpu_hours_saved);
  if (!status.estimate.isNull()) {
    json["estimate"] = status.estimate;
  }
  if (!status.plan_name.empty()) {
    json["planRef"]["name"] = status.plan_name;
  }
  put(json, "restarts", status.restarts);
  put(json, "restartsCountTowardsMax", status.restarts_counted);
  put(json, "nextAttemptTime", status.next_attempt_time);
  const std::size_t first = status.attempts.size() > kMaxAttempts ? status.attempts.size() - kMaxAttempts : 0;
  for (std::size_t i = first; i < status.attempts.size(); ++i) {
    json["attempts"].append(encode(status.attempts[i]));
  }
  return json;
}

}  // namespace plimsoll::crds
