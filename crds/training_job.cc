#include "crds/training_job.h"

#include "base/json/edit.h"
#include "crds/decoder.h"
#include "crds/object_header.h"
#include "crds/training_job_fields.h"

namespace plimsoll::crds {
namespace {

Json without_model(const JsonView& object) {
  JsonObject raw;
  for (const auto& [key, value] : object.members()) {
    const JsonPlace kept = raw[key];
    if (key != "spec") {
      kept = tree_of(value);
      continue;
    }
    kept = Json(::Json::objectValue);
    for (const auto& [part, inner] : value.members()) {
      if (part != "model") {
        kept[part] = tree_of(inner);
      }
    }
  }
  return raw;
}

}  // namespace

const std::vector<EmbeddingTable>& ModelSpec::tables() const {
  static const std::vector<EmbeddingTable> none;
  return dlrm ? dlrm->tables : embeddings ? embeddings->tables : none;
}

const std::optional<TablesFrom>& ModelSpec::tables_from() const {
  static const std::optional<TablesFrom> none;
  return dlrm ? dlrm->tables_from : embeddings ? embeddings->tables_from : none;
}

bool ModelSpec::has_tables() const {
  return !tables().empty() || tables_from();
}

const char* ModelSpec::tables_field() const {
  return dlrm ? "spec.model.dlrm.tables" : "spec.model.embeddings.tables";
}

std::vector<EmbeddingTable>& ModelSpec::own_tables() {
  return dlrm ? dlrm->tables : embeddings->tables;
}

Result<TrainingJob> decode_training_job(const JsonView& object) {
  FieldErrors errors;
  TrainingJob job;
  ObjectHeader header = decode_header(object, "TrainingJob", errors);
  job.name = std::move(header.name);
  job.namespace_name = std::move(header.namespace_name);
  const JsonView spec = member(object, {"spec"});
  const FieldPath path("spec");
  if (spec.is_object()) {
    Decoder decoder(spec, path, errors);
    describe(decoder, job.spec);
  } else {
    errors.add(path, spec.is_null() ? "is required" : std::string("must be an object, is ") + kind_of(spec));
  }
  if (!errors.empty()) {
    return to_error(errors);
  }
  job.spec.trainers.replicas_given = !member(spec, {"trainers", "replicas"}).is_null();
  if (!job.spec.trainers.replicas_given) {
    job.spec.trainers.replicas = job.spec.provisioning.min_trainers;
  }
  job.spec.provisioning.mode_given = !member(spec, {"provisioning", "mode"}).is_null();
  job.raw = without_model(object);
  return job;
}

FailurePolicy decode_failure_policy(const JsonView& object) {
  FailurePolicy policy;
  FieldErrors errors;
  const JsonView found = member(object, {"spec", "failurePolicy"});
  const FieldPath path("spec");
  if (found.is_object()) {
    Decoder decoder(found, path, errors);
    describe(decoder, policy);
  }
  return policy;
}

bool is_managed_elsewhere(const TrainingJob& job) {
  return !job.spec.managed_by.empty() && job.spec.managed_by != kTrainingJobController;
}

int trainer_container(const Json& containers) {
  if (!containers.isArray() || containers.empty()) {
    return -1;
  }
  int index = 0;
  for (const Json& container : containers) {
    if (text_member(container, {"name"}) == "trainer") {
      return index;
    }
    ++index;
  }
  return 0;
}

std::string to_string(const std::vector<FieldError>& errors, std::size_t most) {
  std::string text;
  for (std::size_t i = 0; i < errors.size() && i < most; ++i) {
    text += (text.empty() ? "" : "; ") + errors[i].field + ": " + errors[i].message;
  }
  if (errors.size() > most) {
    text += (text.empty() ? "" : "; and ") + std::to_string(errors.size() - most) + " more";
  }
  return text;
}

bool shards_model(ParallelStrategy strategy) {
  return strategy == ParallelStrategy::kFSDP || strategy == ParallelStrategy::kFSDP2 || is_zero(strategy);
}

bool is_split(const Parallelism& parallelism) {
  return parallelism.tensor > 1 || parallelism.pipeline > 1 || parallelism.expert > 1;
}

bool is_zero(ParallelStrategy strategy) {
  using enum ParallelStrategy;
  return strategy == kZeRO1 || strategy == kZeRO2 || strategy == kZeRO3;
}

bool can_offload(const Parallelism& parallelism) {
  using enum ParallelStrategy;
  const ParallelStrategy strategy = parallelism.strategy;
  return parallelism.offload == Offload::kOptimizer
             ? is_zero(strategy) || strategy == kMegatron
             : strategy == kFSDP || strategy == kFSDP2 || strategy == kZeRO3;
}

bool can_offload_in_part(const Parallelism& parallelism) {
  return parallelism.offload == Offload::kOptimizer && parallelism.strategy == ParallelStrategy::kMegatron;
}

}  // namespace plimsoll::crds
