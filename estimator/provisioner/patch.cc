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

Json integer(std::int64_t value) {
  return Json(static_cast<::Json::Int64>(value));
}

Json array_of(const std::vector<std::string>& texts) {
  JsonArray array;
  for (const std::string& text : texts) {
    array.append(text);
  }
  return array;
}

// GPUs asked for less GPUs given; nothing is saved where no number was asked for.
Json gpus_saved(const OriginalRequest& asked, const Decision& decision) {
  return integer(asked.trainers.asked ? asked.trainers.replicas - decision.trainers : 0);
}

// What the annotation keeps of a decision. No time and nothing that depends on the rest of the cluster, so
// that the same decision is always the same text; fractions as text, as everywhere in the API.
std::string decision_record(const OriginalRequest& asked, const Decision& decision,
                            const std::vector<std::string>& selected) {
  JsonObject record;
  record["gpuModel"] = decision.gpu_model;
  if (!selected.empty()) {
    record["gpuProducts"] = array_of(selected);
  }
  record["trainers"] = integer(decision.trainers);
  record["perNode"] = integer(decision.per_node);
  if (decision.estimate.peak.upper_bound > Bytes{}) {
    record["upperBoundBytes"] = integer(decision.estimate.peak.upper_bound.count);
  }
  if (decision.estimate.learned != Bytes{}) {
    record["learnedBytes"] = integer(decision.estimate.learned.count);
  }
  record["capacityBytes"] = integer(decision.capacity.count);
  record["gpusSaved"] = gpus_saved(asked, decision);
  if (decision.plan.mean_memory.count > 0) {
    char ratio[32];
    std::snprintf(ratio, sizeof ratio, "%.3f",
                  static_cast<double>(decision.plan.max_memory.count) /
                      static_cast<double>(decision.plan.mean_memory.count));
    record["imbalance"] = ratio;
  }
  return write_json(record.json());
}

// A count of GPUs as a template may spell it: 8 or "8"; -1 for anything else.
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

// Each alternative of the node affinity gets the requirement; one that an earlier admission wrote is
// replaced.
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

// Pods go to nodes of the chosen model only: a node selector when it has one spelling, else an affinity that
// names all. What an earlier admission wrote is changed in place; what the user wrote stays.
void select_products(JsonPatchBuilder& patch, const crds::TrainingJob& job, const OriginalRequest& asked,
                     const std::vector<std::string>& labels) {
  if (labels.empty()) {
    return;
  }
  const NodeLabel label = parse_product_label(labels.front());
  if (asked.node_selector.contains(label.key)) {
    return;  // the user's own selector, which the decision has obeyed
  }
  const std::vector<std::string> written =
      asked.recorded ? written_products(job) : std::vector<std::string>();
  const Json earlier = written.empty() ? Json() : product_expression(written);
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
    JsonObject without;  // `remove` is not for us: the map is replaced by one that lacks our own key
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

Json to_json(const Candidate& candidate) {
  JsonObject json;
  json["gpuModel"] = candidate.gpu_model;
  json["fits"] = candidate.fits;
  json["searched"] = candidate.searched;
  json["trainers"] = integer(candidate.trainers);
  json["perNode"] = integer(candidate.per_node);
  json["cost"] = candidate.cost;
  json["reason"] = candidate.reason;
  return json;
}

Json to_json(const OriginalRequest& asked, const Decision& decision) {
  JsonObject json;
  json["gpuModel"] = decision.gpu_model;
  json["trainers"] = integer(decision.trainers);
  json["perNode"] = integer(decision.per_node);
  json["reason"] = decision.reason;
  json["gpusSaved"] = gpus_saved(asked, decision);
  json["capacityBytes"] = integer(decision.capacity.count);
  json["productLabels"] = array_of(decision.product_labels);
  json["peak"] = to_json(decision.estimate.peak);
  json["breakdown"] = to_json(decision.estimate.breakdown);
  json["peakPhase"] = decision.estimate.peak_phase;
  if (!decision.plan.placements.empty()) {
    const Plan& plan = decision.plan;
    const JsonPlace sharding = json["sharding"];
    sharding["tables"] = integer(static_cast<std::int64_t>(plan.placements.size()));
    sharding["perf"]["maxMs"] = plan.max_milliseconds;
    sharding["perf"]["meanMs"] = plan.mean_milliseconds;
    sharding["perf"]["lowerBoundMs"] = plan.lower_bound_milliseconds;
    sharding["memory"]["maxBytes"] = integer(plan.max_memory.count);
    sharding["memory"]["meanBytes"] = integer(plan.mean_memory.count);
    sharding["memory"]["nodeMaxBytes"] = integer(plan.node_max_memory.count);
    sharding["memory"]["nodeMeanBytes"] = integer(plan.node_mean_memory.count);
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
  const OriginalRequest asked = original_request_of(job);
  JsonPatchBuilder patch(job.raw, {{"metadata", "annotations"}, {"spec", "trainers"}, {"spec", "template"}});
  if (job.spec.provisioning.mode != crds::ProvisioningMode::kOff) {
    patch.set({"spec", "trainers", "replicas"}, integer(decision.trainers));
    patch.set({"spec", "trainers", "perNode"}, integer(decision.per_node));
    if (!same_name(job.spec.trainers.gpu_model, decision.gpu_model)) {
      patch.set({"spec", "trainers", "gpuModel"}, decision.gpu_model);
    }
    if (member(job.raw, {"spec", "template", "spec"}).isObject()) {
      select_products(patch, job, asked, decision.product_labels);
      set_gpu_resources(patch, std::min(decision.per_node, decision.trainers));
    }
    if (!asked.recorded) {
      annotate(patch, crds::kRequestedAnnotation, write_json(to_json(asked)));
      if (asked.trainers.asked) {
        annotate(patch, crds::kRequestedReplicasAnnotation, std::to_string(asked.trainers.replicas));
      }
    }
  }
  // What the selectors say stays on record when a recommendation leaves them as they are.
  const bool applied = job.spec.provisioning.mode != crds::ProvisioningMode::kOff;
  annotate(patch, crds::kDecisionAnnotation,
           decision_record(asked, decision,
                           applied          ? decision.product_labels
                           : asked.recorded ? written_products(job)
                                            : std::vector<std::string>()));
  annotate(patch, crds::kReasonAnnotation, decision.reason);
  return std::move(patch).take();
}

Json to_json(const crds::TrainingJob& job, const Provision& provision) {
  const OriginalRequest asked = original_request_of(job);
  JsonObject json;
  json["decision"] = provision.decided() ? to_json(asked, *provision.decision) : Json();
  json["requested"] = to_json(asked);
  json["alternatives"] = Json(::Json::arrayValue);
  for (const Candidate& candidate : provision.alternatives) {
    json["alternatives"].append(to_json(candidate));
  }
  json["patch"] = patch_for(job, provision);
  json["eventReason"] = provision.event_reason;
  json["reason"] = provision.reason;
  json["warnings"] = array_of(provision.warnings);
  return json;
}

}  // namespace plimsoll::estimator::provisioner
