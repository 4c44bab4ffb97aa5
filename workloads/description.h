// Description: what an annotation of a workload says about the model that it trains and how it trains it.
//
//   Result<Description> description = find_description(object, "team-a", profile, source, &budget);
//
// The annotation plimsoll.dev/model names a ConfigMap's key; without it, the MemoryProfile of the workload's family may have the
// description.
// The ConfigMap's key holds one of three things:
//   - `model` and `training` as in a TrainingJob's spec, as YAML or JSON;
//   - a Hugging Face config.json;
//   - an exported graph (docs/graph.md).
// For the latter two the annotation plimsoll.dev/training has the fields of spec.training. Texts are untrusted. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/budget.h"
#include "base/json/json.h"
#include "base/json/view.h"
#include "base/result.h"
#include "crds/memory_profile.h"
#include "estimator/provisioner/model_source.h"

namespace plimsoll::workloads {

inline constexpr const char* kFamilyLabel = "plimsoll.dev/family";                  // opts a workload in
inline constexpr const char* kModelAnnotation = "plimsoll.dev/model";               // CONFIGMAP/KEY
inline constexpr const char* kTrainingAnnotation = "plimsoll.dev/training";         // fields of spec.training
inline constexpr const char* kSequenceAnnotation = "plimsoll.dev/sequence-length";  // of a config.json
inline constexpr const char* kPolicyAnnotation = "plimsoll.dev/policy";  // AvoidOOM (default) or FewestGPUs
// Of a TrainJob, Trainer's: the plugin that configures its resources, and us.
inline constexpr const char* kPluginAnnotation = "trainer.kubeflow.org/autoconf-plugin";
inline constexpr const char* kPlugin = "plimsoll";

struct ConfigMapKey {
  std::string name;
  std::string key;
};

// Errors: kInvalid unless the text is CONFIGMAP/KEY.
Result<ConfigMapKey> parse_config_map_key(std::string_view text);

// As in a TrainingJob's spec; not yet checked.
struct Description {
  Json model;
  Json training;
};

// `text` is what the key holds, `object` the workload. Errors: kInvalid, saying which annotation or field is missing or wrong.
Result<Description> read_description(const std::string& text, const ConfigMapKey& key,
                                     const JsonView& object);

// What the object's annotations name, in `source` (null: there is none), or else what `profile` has, that of its family (null: there is
// none). Errors: those of both functions above and of the source; kNotFound where nothing describes the model, saying what would.
Result<Description> find_description(const JsonView& object, const std::string& namespace_name,
                                     const crds::MemoryProfile* profile, estimator::ModelSource* source,
                                     Budget* budget);

}  // namespace plimsoll::workloads
