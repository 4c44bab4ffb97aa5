#include "workloads/description.h"

#include <optional>
#include <utility>
#include <vector>

#include "base/json/edit.h"
#include "base/number.h"
#include "base/yaml.h"

namespace plimsoll::workloads {
namespace {

constexpr std::string_view kGzipMagic = "\x1f\x8b";
// Nothing stops yaml-cpp at a deadline.
constexpr std::size_t kMaxYaml = 64 << 10;

std::string annotation(const JsonView& object, const char* name) {
  return text_member(object, {"metadata", "annotations", name});
}

Result<Json> one_document(const std::string& text) {
  if (text.size() > kMaxYaml) {
    Result<Json> parsed = parse_json(text);
    return parsed && parsed->isObject()
               ? std::move(parsed)
               : Error(ErrorCode::kInvalid, "must be one JSON object, because it has more than " +
                                                std::to_string(kMaxYaml) + " bytes");
  }
  Result<std::vector<Json>> documents = parse_yaml_documents(text);
  if (!documents) {
    return documents.error();
  }
  if (documents->size() != 1 || !documents->front().isObject()) {
    return Error(ErrorCode::kInvalid, "must be one object");
  }
  return std::move(documents->front());
}

// What the annotation says of the training.
Result<Json> training_of(const JsonView& object) {
  const std::string text = annotation(object, kTrainingAnnotation);
  if (text.empty()) {
    return Error(ErrorCode::kInvalid,
                 std::string("annotation ") + kTrainingAnnotation +
                     " is missing: it has the fields of a TrainingJob's spec.training, as in "
                     "'{batchSizePerTrainer: 8, precision: BF16Mixed, optimizer: AdamW}'");
  }
  Result<Json> training = one_document(text);
  return training ? std::move(training)
                  : training.error().within(std::string("annotation ") + kTrainingAnnotation);
}

Result<Json> transformer_of(const std::string& config, const Json& parsed, const JsonView& object) {
  const std::string text = annotation(object, kSequenceAnnotation);
  std::optional<std::int64_t> length = parse_number<std::int64_t>(text);
  if (text.empty()) {
    length = JsonView(member(parsed, {"max_position_embeddings"})).integer();
  }
  if (!length) {
    return Error(ErrorCode::kInvalid, std::string("annotation ") + kSequenceAnnotation +
                                          " must be the number of tokens of a sample");
  }
  JsonObject model;
  model["transformer"]["config"] = config;
  model["transformer"]["seqLen"] = *length;
  return std::move(model).take();
}

Json graph_of(const ConfigMapKey& key) {
  JsonObject model;
  model["graph"]["configMapKeyRef"]["name"] = key.name;
  model["graph"]["configMapKeyRef"]["key"] = key.key;
  return std::move(model).take();
}

}  // namespace

Result<ConfigMapKey> parse_config_map_key(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash == 0 || slash == std::string_view::npos || slash + 1 == text.size() ||
      text.find('/', slash + 1) != std::string_view::npos) {
    return Error(ErrorCode::kInvalid, std::string("annotation ") + kModelAnnotation +
                                          " must be CONFIGMAP/KEY, of a ConfigMap in the same namespace");
  }
  return ConfigMapKey{std::string(text.substr(0, slash)), std::string(text.substr(slash + 1))};
}

Result<Description> read_description(const std::string& text, const ConfigMapKey& key,
                                     const JsonView& object) {
  const std::string where = "ConfigMap " + key.name + ", key " + key.key;
  if (text.starts_with(kGzipMagic)) {
    Result<Json> training = training_of(object);
    return training ? Result<Description>(Description{graph_of(key), *std::move(training)})
                    : training.error();
  }
  Result<Json> parsed = one_document(text);
  if (!parsed) {
    return parsed.error().within(where);
  }
  if (member(*parsed, {"model"}).isObject()) {
    Json training = member(*parsed, {"training"});
    return Description{member(*parsed, {"model"}), std::move(training)};
  }
  Result<Json> training = training_of(object);
  if (!training) {
    return training.error();
  }
  if (member(*parsed, {"model_type"}).isString()) {
    Result<Json> model = transformer_of(text, *parsed, object);
    return model ? Result<Description>(Description{*std::move(model), *std::move(training)}) : model.error();
  }
  if (text_member(*parsed, {"format"}).starts_with("plimsoll-graph")) {
    return Description{graph_of(key), *std::move(training)};
  }
  return Error(ErrorCode::kInvalid,
               where +
                   " must hold `model` and `training` as in a TrainingJob's spec, a Hugging Face "
                   "config.json (with model_type), or an exported graph");
}

Result<Description> find_description(const JsonView& object, const std::string& namespace_name,
                                     const crds::MemoryProfile* profile, estimator::ModelSource* source,
                                     Budget* budget) {
  const std::string named = annotation(object, kModelAnnotation);
  if (named.empty()) {
    if (profile == nullptr || profile->model.isNull()) {
      return Error(ErrorCode::kNotFound,
                   std::string("its model is not described; annotation ") + kModelAnnotation +
                       " names a ConfigMap's key that describes it, as CONFIGMAP/KEY, or spec.model and "
                       "spec.training of the MemoryProfile of its family do");
    }
    return Description{profile->model, profile->training};
  }
  const Result<ConfigMapKey> key = parse_config_map_key(named);
  if (!key) {
    return key.error();
  }
  if (source == nullptr) {
    return Error(ErrorCode::kUnavailable, "this process has no access to ConfigMaps");
  }
  const Result<estimator::SharedText> text = source->text(namespace_name, key->name, key->key, budget);
  return text ? read_description(**text, *key, object) : text.error();
}

}  // namespace plimsoll::workloads
