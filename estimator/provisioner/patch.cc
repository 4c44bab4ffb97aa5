#include "estimator/provisioner/patch.h"

#include <algorithm>
#include <cstdio>

#include "base/json/edit.h"
#include "base/json/view.h"
#include "estimator/provisioner/json_patch.h"
#include "estimator/provisioner/original_request.h"
#include "estimator/provisioner/trainer_loads.h"

namespace plimsoll::estimator::inline provisioner {
namespace {

Json array_of(const std::vector<std::string>& texts) {
  JsonArray array;
  for (const std::string& text : texts) {
    array.append(text);
  }
  return array;
}

// GPUs requested minus GPUs given; 0 when no number was requested.
std::int64_t gpus_saved(const OriginalRequest& original, const Decision& decision) {
  return original.trainers.replicas_given ? original.trainers.replicas - decision.trainers : 0;
}

// The content of the decision's annotation. It has no time and nothing that depends on the rest of the cluster,
// so that equal decisions have equal texts. Fractions are text, as everywhere in the API.
std::string decision_record(const OriginalRequest& original, const Decision& decision,
                            const std::vector<std::string>& selected) {
  JsonObject record;
  record["gpuModel"] = decision.gpu_model;
  if (!selected.empty()) {
    record["gpuProducts"] = array_of(selected);
  }
  record["trainers"] = decision.trainers;
  record["perNode"] = decision.per_node;
  if (decision.batch.batch_size > 0) {
    record["batchSizePerTrainer"] = decision.batch.batch_size;
    record["gradientAccumulation"] = decision.batch.accumulation;
  }
  if (decision.estimate.peak.upper_bound > Bytes{}) {
    record["upperBoundBytes"] = decision.estimate.peak.upper_bound.count;
  }
  if (decision.estimate.learned != Bytes{}) {
    record["learnedBytes"] = decision.estimate.learned.count;
  }
  record["capacityBytes"] = decision.capacity.count;
  if (decision.swap) {
    record["swapPlan"] = name_of(decision.swap->planned.plan.mode);
  }
  if (decision.host_memory > Bytes{}) {
    record["hostMemoryBytes"] = decision.host_memory.count;
  }
  record["gpusSaved"] = gpus_saved(original, decision);
  if (decision.plan.mean_memory.count > 0) {
    char ratio[32];
    std::snprintf(ratio, sizeof ratio, "%.3f",
                  static_cast<double>(decision.plan.max_memory.count) /
                      static_cast<double>(decision.plan.mean_memory.count));
    record["imbalance"] = ratio;
  }
  return write_json(record.json());
}

// A number of GPUs as a template may spell it, 8 or "8"; -1 for anything else.
std::int64_t gpu_count(const Json& quantity) {
  if (const std::optional<std::int64_t> count = JsonView(quantity).integer()) {
    return *count;
  }
  if (quantity.isString()) {
    const std::string text = text_member(quantity, {});
    if (!text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string::npos) {
      return std::stoll(text);
    }
  }
  return -1;
}

void set_gpu_resources(JsonPatchBuilder& patch, std::int64_t gpus) {
  const int index =
      crds::trainer_container(member(patch.document(), {"spec", "template", "spec", "containers"}));
  if (index < 0) {
    return;
  }
  const auto container = static_cast<Json::ArrayIndex>(index);
  const auto current = [&](const char* kind) -> const Json& {
    const Json& containers = member(patch.document(), {"spec", "template", "spec", "containers"});
    return member(element(containers, container), {"resources", kind, crds::kGpuResource});
  };
  const auto set = [&](const char* kind) {
    if (gpu_count(current(kind)) != gpus) {
      patch.set({"spec", "template", "spec", "containers", container, "resources", kind, crds::kGpuResource},
                std::to_string(gpus));
    }
  };
  set("limits");
  if (!current("requests").isNull()) {
    set("requests");
  }
}

// The position of an expression in a term's matchExpressions, or -1.
int position_of(const Json& term, const Json& expression) {
  int position = 0;
  for (const Json& each : member(term, {"matchExpressions"})) {
    if (each == expression) {
      return position;
    }
    ++position;
  }
  return -1;
}

const PatchPath kTermsPath = {"spec",
                              "template",
                              "spec",
                              "affinity",
                              "nodeAffinity",
                              "requiredDuringSchedulingIgnoredDuringExecution",
                              "nodeSelectorTerms"};

// Adds the requirement to each term of the node affinity; replaces one that an earlier admission wrote.
void require_products(JsonPatchBuilder& patch, const crds::TrainingJob& job, const Json& expression,
                      const Json& earlier) {
  const Json& terms = required_terms(job);
  if (!terms.isArray() || terms.empty()) {
    JsonObject term;
    term["matchExpressions"].append(expression);
    JsonArray list;
    list.append(std::move(term));
    patch.set(kTermsPath, list);
    return;
  }
  for (Json::ArrayIndex i = 0; i < terms.size(); ++i) {
    if (position_of(element(terms, i), expression) >= 0) {
      continue;
    }
    PatchPath path = kTermsPath;
    path.emplace_back(i);
    path.emplace_back("matchExpressions");
    const int written = earlier.isNull() ? -1 : position_of(element(terms, i), earlier);
    if (written >= 0) {
      path.emplace_back(static_cast<Json::ArrayIndex>(written));
      patch.set(path, expression);
    } else if (!patch.append(path, expression)) {
      JsonArray list;
      list.append(expression);
      patch.set(path, list);
    }
  }
}

// Restricts pods to nodes of the chosen model: by a node selector when its label has one spelling, else by an
// affinity that names all. Changes in place what an earlier admission wrote; keeps what the user wrote.
void select_products(JsonPatchBuilder& patch, const crds::TrainingJob& job, const OriginalRequest& original,
                     const std::vector<std::string>& labels) {
  if (labels.empty()) {
    return;
  }
  const NodeLabel label = parse_product_label(labels.front());
  if (original.node_selector.contains(label.key)) {
    return;  // the user's own selector, which the decision obeys
  }
  const Json earlier =
      original.written_products.empty() ? Json() : product_expression(original.written_products);
  const Json& terms = required_terms(job);
  const bool has_expression = terms.isArray() && !earlier.isNull() &&
                              std::any_of(terms.begin(), terms.end(),
                                          [&](const Json& term) { return position_of(term, earlier) >= 0; });
  const PatchPath selector = {"spec", "template", "spec", "nodeSelector"};
  const Json& selectors = member(job.raw, {"spec", "template", "spec", "nodeSelector"});
  if (labels.size() == 1 && !has_expression) {
    PatchPath path = selector;
    path.emplace_back(label.key);
    patch.set(path, label.value);
    return;
  }
  if (!member(selectors, {label.key}).isNull()) {
    JsonObject without;  // the patch has no `remove` (ADR 0010): replace the map by one without our own key
    for (const auto& [key, value] : JsonView(selectors).members()) {
      if (key != label.key) {
        without[key] = tree_of(value);
      }
    }
    patch.set(selector, without);
  }
  require_products(patch, job, product_expression(labels), earlier);
}

void annotate(JsonPatchBuilder& patch, const char* name, const std::string& text) {
  patch.set({"metadata", "annotations", name}, text);
}

Json to_json(const Alternative& alternative) {
  JsonObject json;
  json["gpuModel"] = alternative.gpu_model;
  json["fits"] = alternative.fits;
  json["searched"] = alternative.searched;
  json["trainers"] = alternative.trainers;
  json["perNode"] = alternative.per_node;
  json["cost"] = alternative.cost;
  if (alternative.samples_per_second > 0) {
    json["iterationSeconds"] = rounded_text(alternative.iteration_seconds);
    json["samplesPerSecond"] = rounded_text(alternative.samples_per_second);
  }
  json["reason"] = alternative.reason;
  return json;
}

Json to_json(const Change& change) {
  JsonObject json;
  json["changes"] = array_of(change.changes);
  json["gpuModel"] = change.gpu_model;
  json["trainers"] = change.trainers;
  return json;
}

Json to_json(const OriginalRequest& original, const Decision& decision) {
  JsonObject json;
  json["gpuModel"] = decision.gpu_model;
  json["trainers"] = decision.trainers;
  json["perNode"] = decision.per_node;
  json["batchSizePerTrainer"] = decision.batch.batch_size;
  json["gradientAccumulation"] = decision.batch.accumulation;
  json["reason"] = decision.reason;
  json["gpusSaved"] = gpus_saved(original, decision);
  json["capacityBytes"] = decision.capacity.count;
  json["productLabels"] = array_of(decision.product_labels);
  json["peak"] = to_json(decision.estimate.peak);
  json["breakdown"] = to_json(decision.estimate.breakdown);
  json["peakPhase"] = decision.estimate.peak_phase;
  if (decision.host_memory > Bytes{}) {
    json["hostMemoryBytes"] = decision.host_memory.count;
  }
  if (decision.swap) {
    json["swapPlan"] = to_json(*decision.swap);
  }
  if (decision.throughput) {
    json["throughput"] = to_json(*decision.throughput, decision.requested);
  }
  if (!decision.plan.placements.empty()) {
    const Plan& plan = decision.plan;
    const JsonPlace sharding = json["sharding"];
    sharding["tables"] = Json::Int64(plan.placements.size());
    write_summary(plan, sharding);
    json["ranks"] = to_json(trainer_loads(decision.estimate, plan));
  }
  return json;
}

}  // namespace

Json patch_for(const crds::TrainingJob& job, const Provision& provision) {
  if (!provision.decided()) {
    return Json(::Json::arrayValue);
  }
  const Decision& decision = *provision.decision;
  const OriginalRequest original = original_request_of(job);
  JsonPatchBuilder patch(
      job.raw,
      {{"metadata", "annotations"}, {"spec", "trainers"}, {"spec", "provisioning"}, {"spec", "template"}});
  if (!job.spec.provisioning.mode_given) {
    patch.set({"spec", "provisioning", "mode"}, name_of(job.spec.provisioning.mode));
  }
  const bool applied = job.spec.provisioning.mode != crds::ProvisioningMode::kOff;
  if (applied) {
    patch.set({"spec", "trainers", "replicas"}, decision.trainers);
    patch.set({"spec", "trainers", "perNode"}, decision.per_node);
    if (!same_name(job.spec.trainers.gpu_model, decision.gpu_model)) {
      patch.set({"spec", "trainers", "gpuModel"}, decision.gpu_model);
    }
    if (member(job.raw, {"spec", "template", "spec"}).isObject()) {
      select_products(patch, job, original, decision.product_labels);
      set_gpu_resources(patch, std::min(decision.per_node, decision.trainers));
    }
    if (!original.recorded) {
      annotate(patch, crds::kRequestedAnnotation, write_json(to_json(original)));
      if (original.trainers.replicas_given) {
        annotate(patch, crds::kRequestedReplicasAnnotation, std::to_string(original.trainers.replicas));
      }
    }
  }
  // A recommendation leaves the selectors as they are, and so their record.
  annotate(
      patch, crds::kDecisionAnnotation,
      decision_record(original, decision, applied ? decision.product_labels : original.written_products));
  annotate(patch, crds::kReasonAnnotation, decision.reason);
  return std::move(patch).take();
}

Json to_json(const crds::TrainingJob& job, const Provision& provision) {
  const OriginalRequest original = original_request_of(job);
  JsonObject json;
  json["decision"] = provision.decided() ? to_json(original, *provision.decision) : Json();
  json["requested"] = to_json(original);
  json["alternatives"] = Json(::Json::arrayValue);
  for (const Alternative& alternative : provision.alternatives) {
    json["alternatives"].append(to_json(alternative));
  }
  json["changes"] = Json(::Json::arrayValue);
  for (const Change& change : provision.changes) {
    json["changes"].append(to_json(change));
  }
  json["patch"] = patch_for(job, provision);
  json["rejected"] = rejects(job.spec.provisioning, provision);
  json["eventReason"] = provision.event_reason;
  json["reason"] = provision.reason;
  json["warnings"] = array_of(provision.warnings);
  return json;
}

}  // namespace plimsoll::estimator::provisioner
