#include "estimator/provisioner/original_request.h"

#include <algorithm>
#include <optional>

#include "base/json/edit.h"
#include "base/json/view.h"

namespace plimsoll::estimator::inline provisioner {
namespace {

constexpr const char* kGpuFamilyLabel = "nvidia.com/gpu.family";  // GPU feature discovery's: "ampere"

// An annotation's JSON, or null when it is missing or not ours.
Json annotation(const crds::TrainingJob& job, const char* name) {
  const std::string text = text_member(job.raw, {"metadata", "annotations", name});
  if (text.empty()) {
    return Json();
  }
  Result<Json> value = parse_json(text);
  return value && value->isObject() ? *std::move(value) : Json();
}

std::vector<std::string> strings_of(const Json& array) {
  std::vector<std::string> texts;
  if (array.isArray()) {
    for (const Json& element : array) {
      if (element.isString()) {
        texts.push_back(text_member(element, {}));
      }
    }
  }
  return texts;
}

bool contains(const std::vector<std::string>& values, const std::string& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

std::vector<LabelRequirement> requirements_of(const Json& term, const Json& ours) {
  std::vector<LabelRequirement> requirements;
  const Json& expressions = member(term, {"matchExpressions"});
  if (!expressions.isArray()) {
    return requirements;
  }
  for (const Json& expression : expressions) {
    if (expression == ours) {
      continue;
    }
    const std::string key = text_member(expression, {"key"});
    const std::string comparison = text_member(expression, {"operator"});
    if (comparison == "In" || comparison == "NotIn") {
      requirements.push_back({key, comparison == "In", strings_of(member(expression, {"values"}))});
    } else if (comparison == "DoesNotExist") {
      requirements.push_back({key, true, {}});
    }
  }
  return requirements;
}

std::map<std::string, std::string> selector_of(const Json& object) {
  std::map<std::string, std::string> selector;
  for (const auto& [key, value] : JsonView(object).members()) {
    if (const std::optional<std::string_view> text = value.text()) {
      selector[std::string(key)] = *text;
    }
  }
  return selector;
}

// The values that a node of the model may have under `key`; nothing when they are not known.
std::optional<std::vector<std::string>> values_under(const std::string& key, const AvailableGpu& gpu,
                                                     const NodeLabel& product,
                                                     const std::vector<std::string>& requested,
                                                     const std::set<std::string>& cloud_values) {
  if (key == product.key) {
    return std::vector{product.value};
  }
  if (key == crds::kGpuProductLabel) {
    return std::vector<std::string>{};  // these nodes have only a cloud's label
  }
  if (key == kGpuFamilyLabel && !gpu.model.family.empty()) {
    return std::vector{gpu.model.family};
  }
  if (key == kCpuArchitectureLabel && !gpu.cpu_architectures.empty()) {
    return gpu.cpu_architectures;
  }
  // A cloud's label is recognized by its values, which are GPU names.
  const bool names_gpus = std::any_of(requested.begin(), requested.end(),
                                      [&](const std::string& value) { return cloud_values.contains(value); });
  return names_gpus ? std::optional(gpu.model.cloud_labels) : std::nullopt;
}

}  // namespace

bool OriginalRequest::allows(const AvailableGpu& gpu, const std::string& product_label,
                             const std::set<std::string>& cloud_values) const {
  const NodeLabel product = parse_product_label(product_label);
  const auto holds = [&](const LabelRequirement& requirement) {
    const auto present = values_under(requirement.key, gpu, product, requirement.values, cloud_values);
    if (!present) {
      return true;
    }
    const bool meets = std::any_of(present->begin(), present->end(), [&](const std::string& value) {
      return contains(requirement.values, value);
    });
    return meets == requirement.in;
  };
  for (const auto& [key, value] : node_selector) {
    if (!holds({key, true, {value}})) {
      return false;
    }
  }
  return terms.empty() || std::any_of(terms.begin(), terms.end(), [&](const auto& term) {
           return std::all_of(term.begin(), term.end(), holds);
         });
}

bool OriginalRequest::selects_label(const std::string& key) const {
  return node_selector.contains(key) || std::any_of(terms.begin(), terms.end(), [&](const auto& term) {
           return std::any_of(term.begin(), term.end(),
                              [&](const LabelRequirement& requirement) { return requirement.key == key; });
         });
}

OriginalRequest original_request_of(const crds::TrainingJob& job) {
  OriginalRequest original;
  original.trainers = job.spec.trainers;
  original.node_selector = selector_of(member(job.raw, {"spec", "template", "spec", "nodeSelector"}));
  const Json record = annotation(job, crds::kRequestedAnnotation);
  const std::int64_t per_node = JsonView(member(record, {"perNode"})).integer().value_or(0);
  if (per_node > 0) {
    original.recorded = true;
    const std::optional<std::int64_t> replicas = JsonView(member(record, {"replicas"})).integer();
    original.trainers.replicas_given = replicas.has_value();
    original.trainers.replicas = replicas.value_or(job.spec.provisioning.min_trainers);
    original.trainers.per_node = per_node;
    original.trainers.gpu_model = text_member(record, {"gpuModel"});
    original.written_products =
        strings_of(member(annotation(job, crds::kDecisionAnnotation), {"gpuProducts"}));
    // Only a value that we wrote and the user did not request is ours; any other is the user's later change.
    const std::map<std::string, std::string> theirs = selector_of(member(record, {"nodeSelector"}));
    for (const std::string& spelling : original.written_products) {
      const NodeLabel label = parse_product_label(spelling);
      const auto now = original.node_selector.find(label.key);
      const auto then = theirs.find(label.key);
      if (now != original.node_selector.end() && now->second == label.value &&
          (then == theirs.end() || then->second != label.value)) {
        original.node_selector.erase(now);
      }
    }
  }
  const Json ours =
      original.written_products.empty() ? Json() : product_expression(original.written_products);
  const Json& terms = required_terms(job);
  if (terms.isArray()) {
    for (const Json& term : terms) {
      original.terms.push_back(requirements_of(term, ours));
    }
  }
  return original;
}

Json to_json(const OriginalRequest& original) {
  JsonObject record;
  if (original.trainers.replicas_given) {
    record["replicas"] = original.trainers.replicas;
  }
  record["perNode"] = original.trainers.per_node;
  record["gpuModel"] = original.trainers.gpu_model;
  for (const auto& [key, value] : original.node_selector) {
    record["nodeSelector"][key] = value;
  }
  return record;
}

Json product_expression(const std::vector<std::string>& labels) {
  JsonObject expression;
  expression["operator"] = "In";
  expression["values"] = Json(::Json::arrayValue);
  for (const std::string& spelling : labels) {
    const NodeLabel label = parse_product_label(spelling);  // all have one key
    expression["key"] = label.key;
    expression["values"].append(label.value);
  }
  return expression;
}

const Json& required_terms(const crds::TrainingJob& job) {
  return member(job.raw, {"spec", "template", "spec", "affinity", "nodeAffinity",
                          "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"});
}

}  // namespace plimsoll::estimator::provisioner
