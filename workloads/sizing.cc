#include "workloads/sizing.h"

#include <algorithm>
#include <utility>

#include "base/json/edit.h"
#include "estimator/provisioner/original_request.h"
#include "estimator/provisioner/patch.h"

namespace plimsoll::workloads {
namespace {

constexpr std::string_view kTemplate = "/spec/template";

// The template as a TrainingJob has it: the container that requests GPUs is the one called "trainer".
Json template_of(const PodGroup& group) {
  Json copy = tree_of(group.pod_template);
  Json* spec = find_member(copy, "spec");
  Json* containers = spec == nullptr ? nullptr : find_member(*spec, "containers");
  for (std::size_t i = 0; containers != nullptr && i < containers->size(); ++i) {
    Json* container = find_element(*containers, i);
    if (i == group.container) {
      set_member(*container, "name", "trainer");
    } else if (text_member(*container, {"name"}) == "trainer") {
      set_member(*container, "name", "not-the-trainer");
    }
  }
  return copy;
}

Json metadata_of(const JsonView& object, const std::string& namespace_name) {
  JsonObject metadata;
  const std::string name = text_member(object, {"metadata", "name"});
  metadata["name"] = name.empty() ? text_member(object, {"metadata", "generateName"}) + "x" : name;
  metadata["namespace"] = namespace_name;
  if (const JsonView annotations = member(object, {"metadata", "annotations"}); annotations.is_object()) {
    metadata["annotations"] = tree_of(annotations);
  }
  return std::move(metadata).take();
}

Json job_text(const Workload& workload, const JsonView& object, const std::string& namespace_name,
              const Description& description, crds::ProvisioningMode mode) {
  JsonObject job;
  job["apiVersion"] = std::string(crds::kGroup) + "/" + crds::kVersion;
  job["kind"] = "TrainingJob";
  job["metadata"] = metadata_of(object, namespace_name);
  const JsonPlace spec = job["spec"];
  spec["model"] = description.model;
  if (const std::string family = text_member(object, {"metadata", "labels", kFamilyLabel}); !family.empty()) {
    spec["model"]["family"] = family;
  }
  spec["training"] = description.training;
  spec["provisioning"]["mode"] = mode == crds::ProvisioningMode::kOff ? "Off" : "Auto";
  spec["trainers"]["replicas"] = workload.gpus();
  spec["trainers"]["perNode"] = workload.gpus_per_pod();
  spec["template"] = template_of(workload.groups.front());
  return std::move(job).take();
}

void replace(Json& patch, const std::string& path, Json value) {
  JsonObject operation;
  operation["op"] = "replace";
  operation["path"] = path;
  operation["value"] = std::move(value);
  append_element(patch, std::move(operation).take());
}

}  // namespace

Result<WorkloadSizing> WorkloadSizing::of(const Kind& kind, const JsonView& object,
                                          const References& references, const std::string& namespace_name,
                                          const Description& description, crds::ProvisioningMode mode) {
  Result<Workload> workload = read_workload(kind, object, references);
  if (!workload) {
    return workload.error();
  }
  const std::string policy = text_member(object, {"metadata", "annotations", kPolicyAnnotation});
  if (!policy.empty() && policy != "AvoidOOM" && policy != "FewestGPUs") {
    return Error(ErrorCode::kInvalid, std::string("annotation ") + kPolicyAnnotation +
                                          " must be AvoidOOM or FewestGPUs, is " + policy);
  }
  Result<crds::TrainingJob> job =
      crds::decode_training_job(job_text(*workload, object, namespace_name, description, mode));
  if (!job) {
    return job.error();
  }
  if (const std::vector<crds::FieldError> wrong = crds::validate(*job); !wrong.empty()) {
    return Error(ErrorCode::kInvalid, crds::to_string(wrong));
  }
  if (job->spec.training.global_batch_size > 0) {
    return Error(
        ErrorCode::kUnsupported,
        "training.globalBatchSize: the share of a trainer cannot be told to a workload of this kind; give "
        "batchSizePerTrainer");
  }
  WorkloadSizing sizing(*std::move(workload), *std::move(job));
  const JobSize now{.pods = sizing.workload_.pods(), .gpus_per_pod = sizing.workload_.gpus_per_pod()};
  sizing.why_fixed_ = sizing.workload_.fixed;
  for (const PodGroup& group : sizing.workload_.groups) {
    const JsonView containers = member(group.pod_template, {"spec", "containers"});
    std::size_t index = 0;
    for (const JsonView& container : containers.elements()) {
      if (index++ == group.container) {
        sizing.mentions_.push_back(find_mentions(container, now));
      }
    }
    const std::string& uncertain = sizing.mentions_.back().uncertain;
    if (sizing.workload_.partial && !uncertain.empty()) {
      return Error(ErrorCode::kUnsupported, "it is a part of a job whose size is not known: " + uncertain);
    }
    if (sizing.why_fixed_.empty()) {
      sizing.why_fixed_ = uncertain;
    }
  }
  // What an earlier admission gave is no request.
  const crds::Trainers asked = estimator::original_request_of(sizing.job_).trainers;
  crds::ProvisioningSpec& provisioning = sizing.job_.spec.provisioning;
  if (!sizing.why_fixed_.empty()) {
    provisioning.min_trainers = provisioning.max_trainers = now.gpus();
  } else {
    const std::int64_t others = static_cast<std::int64_t>(sizing.workload_.groups.size()) - 1;
    provisioning.min_trainers =
        policy == "FewestGPUs" ? (others > 0 ? (others + 1) * now.gpus_per_pod : 1) : asked.replicas;
    provisioning.max_trainers = std::max(provisioning.max_trainers, asked.replicas);
    provisioning.resize_data_parallel = policy == "FewestGPUs";
  }
  return sizing;
}

Result<JobSize> WorkloadSizing::size_of(const estimator::Decision& decision) const {
  const JobSize next{.pods = std::max<std::int64_t>(1, decision.trainers / decision.per_node),
                     .gpus_per_pod = std::min(decision.per_node, decision.trainers)};
  std::int64_t others = 0;
  for (const PodGroup& group : workload_.groups) {
    others += group.counts.empty() ? group.pods : 0;
  }
  const bool same = next.pods == workload_.pods() && next.gpus_per_pod == workload_.gpus_per_pod();
  if (!same && !why_fixed_.empty()) {
    return Error(ErrorCode::kUnsupported, "the job would take " + std::to_string(next.pods) + " pods of " +
                                              std::to_string(next.gpus_per_pod) +
                                              " GPUs, but its number stays: " + why_fixed_);
  }
  if (next.pods != workload_.pods() && next.pods <= others) {
    return Error(ErrorCode::kUnsupported,
                 std::to_string(next.pods) + " pods would leave none for a group of it");
  }
  return next;
}

void WorkloadSizing::write_counts(const JobSize& next, Json& patch) const {
  const std::int64_t more = next.pods - workload_.pods();
  for (const PodGroup& group : workload_.groups) {
    for (const CountField& count : group.counts) {
      if (more != 0) {
        replace(patch, count.pointer, group.pods + count.others + more);
      }
    }
  }
  if (!workload_.processes_path.empty() && next.gpus_per_pod != workload_.gpus_per_pod()) {
    replace(patch, workload_.processes_path, std::to_string(next.gpus_per_pod));
  }
}

Json WorkloadSizing::template_patch(std::size_t index, const estimator::Provision& provision,
                                    const JobSize* next, Json& of_object) const {
  const PodGroup& group = workload_.groups[index];
  Json patch(::Json::arrayValue);
  crds::TrainingJob job = job_;
  set_member(*find_member(job.raw, "spec"), "template", template_of(group));
  for (Json& operation : estimator::patch_for(job, provision)) {
    const std::string path = text_member(operation, {"path"});
    if (path.starts_with(kTemplate)) {
      set_member(operation, "path", path.substr(kTemplate.size()));
      append_element(patch, std::move(operation));
    } else if (index == 0 && path.starts_with("/metadata/")) {
      append_element(of_object, std::move(operation));
    }
  }
  std::size_t at = 0;
  for (const JsonView& container : member(group.pod_template, {"spec", "containers"}).elements()) {
    if (at++ != group.container || next == nullptr) {
      continue;
    }
    const std::string place = "/spec/containers/" + std::to_string(group.container);
    for (const auto& [pointer, text] : rewritten(container, mentions_[index], *next)) {
      replace(patch, place + pointer, text);
    }
  }
  return patch;
}

Result<Json> WorkloadSizing::patch_for(const estimator::Provision& provision) const {
  Json patch(::Json::arrayValue);
  if (!provision.decided()) {
    return patch;
  }
  const bool applied = job_.spec.provisioning.mode != crds::ProvisioningMode::kOff;
  const Result<JobSize> next = size_of(*provision.decision);
  if (applied && !next) {
    return next.error();
  }
  for (std::size_t i = 0; i < workload_.groups.size(); ++i) {
    Json changes = template_patch(i, provision, applied ? &*next : nullptr, patch);
    if (workload_.write && applied) {
      Result<Json> written = workload_.write(changes, *next);
      if (!written) {
        return written.error();
      }
      for (Json& operation : *written) {
        append_element(patch, std::move(operation));
      }
      continue;
    }
    for (Json& operation : changes) {
      set_member(operation, "path", workload_.groups[i].template_path + text_member(operation, {"path"}));
      append_element(patch, std::move(operation));
    }
  }
  if (applied && !workload_.write) {
    write_counts(*next, patch);
  }
  return patch;
}

}  // namespace plimsoll::workloads
