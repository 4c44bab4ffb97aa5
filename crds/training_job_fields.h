// The fields of a TrainingJob's spec, each once: its name in the API, its member, and what the schema demands
// of it. `describe(visitor, object)` passes them to a visitor: the decoder reads them, the checker checks the
// values, and a test compares them with the CRD's YAML. Inside crds/ only.
//
//   Decoder decoder(json, path, errors);
//   describe(decoder, job.spec);
#pragma once

#include <concepts>
#include <type_traits>

#include "crds/embedding_tables_csv.h"
#include "crds/field_path.h"
#include "crds/field_rules.h"
#include "crds/training_job.h"

namespace plimsoll::crds {

// The rules of objects beyond their fields, which the Checker finds by their arguments (crds/validate.cc).
void check_rules(const ModelSpec& model, const FieldPath& path, FieldErrors& errors);
void check_rules(const DlrmModel& model, const FieldPath& path, FieldErrors& errors);
void check_rules(const TransformerModel& model, const FieldPath& path, FieldErrors& errors);
void check_rules(const TrainingSpec& training, const FieldPath& path, FieldErrors& errors);
void check_rules(const Parallelism& parallelism, const FieldPath& path, FieldErrors& errors);
void check_rules(const ProvisioningSpec& provisioning, const FieldPath& path, FieldErrors& errors);
void check_rules(const Trainers& trainers, const FieldPath& path, FieldErrors& errors);
void check_rules(const FailureRule& rule, const FieldPath& path, FieldErrors& errors);

template <class T, class Described>
concept Of = std::same_as<std::remove_const_t<T>, Described>;

inline constexpr std::int64_t kMaxInlineTables =
    20'000;  // entries; more would exceed etcd's limit on an object
inline constexpr Range kWidths = {1, 1 << 20};
inline constexpr Range kOptionalWidths = {0, 1 << 20};
inline constexpr Range kTrainerCounts = {1, 65536};
inline constexpr Range kSeconds = {0, 315'360'000};  // ten years
inline constexpr Range kSplits = {1, 4096};

template <class Visitor>
void describe(Visitor& visit, Of<EmbeddingTable> auto& table) {
  visit.text("name", table.name, Presence::kRequired, kTableName);
  visit.integer("count", table.count, Presence::kOptional, Range{1, kMaxEmbeddingTables});
  visit.integer("rows", table.rows, Presence::kRequired, Range{1, std::int64_t{1} << 40});
  visit.integer("dim", table.dim, Presence::kRequired, Range{1, 65536});
  visit.choice("dtype", table.dtype, Presence::kOptional);
  visit.decimal("poolingFactor", table.pooling_factor, Presence::kOptional, kPoolingFactor);
  visit.decimal("lookupFrequency", table.lookup_frequency, Presence::kOptional, kLookupFrequency);
  visit.integer("sequenceLength", table.sequence_length, Presence::kOptional, Range{0, 65536});
}

template <class Visitor, class Reference>
requires Of<Reference, TablesFrom> || Of<Reference, GraphReference>
void describe(Visitor& visit, Reference& reference) {
  visit.group("configMapKeyRef", Presence::kRequired, [&](auto& inner) {
    inner.text("name", reference.config_map_name, Presence::kRequired, kConfigMapName);
    inner.text("key", reference.key, Presence::kRequired, kConfigMapKey);
  });
}

template <class Visitor>
void describe(Visitor& visit, Of<DhenStack> auto& dhen) {
  visit.integer("layers", dhen.layers, Presence::kRequired, Range{1, 64});
  visit.integer("features", dhen.features, Presence::kRequired, Range{1, 4096});
  visit.choices("modules", dhen.modules, Range{1, 4});
  visit.integer("heads", dhen.heads, Presence::kDefaulted, Range{1, 256});
}

template <class Visitor>
void describe(Visitor& visit, Of<DlrmModel> auto& model) {
  visit.integer("denseFeatures", model.dense_features, Presence::kDefaulted, kOptionalWidths);
  visit.integers("bottomMLP", model.bottom_mlp, Presence::kOptional, Range{0, 64}, kWidths);
  visit.integers("topMLP", model.top_mlp, Presence::kRequired, Range{1, 64}, kWidths);
  visit.choice("interaction", model.interaction, Presence::kDefaulted);
  visit.integer("crossLayers", model.cross_layers, Presence::kDefaulted, Range{0, 1024});
  visit.integer("crossRank", model.cross_rank, Presence::kDefaulted, kOptionalWidths);
  visit.optional_object("dhen", model.dhen);
  visit.objects("tables", model.tables, Presence::kOptional, Range{0, kMaxInlineTables});
  visit.optional_object("tablesFrom", model.tables_from);
}

// 0 where `config` says the size.
template <class Visitor>
void describe(Visitor& visit, Of<TransformerModel> auto& model) {
  visit.text("config", model.config, Presence::kOptional, kModelConfig);
  visit.choice("architecture", model.architecture, Presence::kDefaulted);
  visit.integer("layers", model.layers, Presence::kDefaulted, Range{0, 65536});
  visit.integer("hidden", model.hidden, Presence::kDefaulted, kOptionalWidths);
  visit.integer("heads", model.heads, Presence::kDefaulted, Range{0, 65536});
  visit.integer("kvHeads", model.kv_heads, Presence::kDefaulted, Range{0, 65536});
  visit.integer("headDim", model.head_dim, Presence::kDefaulted, Range{0, 65536});
  visit.integer("ffn", model.ffn, Presence::kDefaulted, Range{0, 1 << 22});
  visit.integer("vocab", model.vocab, Presence::kDefaulted, Range{0, 1 << 24});
  visit.integer("seqLen", model.sequence_length, Presence::kRequired, Range{1, 1 << 24});
  visit.integer("experts", model.experts, Presence::kDefaulted, Range{0, 65536});
  visit.integer("expertsPerToken", model.experts_per_token, Presence::kDefaulted, Range{0, 65536});
  visit.choice("norm", model.norm, Presence::kDefaulted);
  visit.choice("activation", model.activation, Presence::kDefaulted);
  visit.choice("positions", model.positions, Presence::kDefaulted);
  visit.choice("attention", model.attention, Presence::kDefaulted);
  visit.boolean("biases", model.biases, Presence::kDefaulted);
  visit.boolean("tiedEmbeddings", model.tied_embeddings, Presence::kDefaulted);
  visit.percentage("dropout", model.dropout, Presence::kDefaulted, kPercentage);
}

template <class Visitor>
void describe(Visitor& visit, Of<ModelSpec> auto& model) {
  visit.text("family", model.family, Presence::kOptional, kFamilyName);
  visit.optional_object("dlrm", model.dlrm);
  visit.optional_object("transformer", model.transformer);
  visit.optional_object("graph", model.graph);
}

template <class Visitor>
void describe(Visitor& visit, Of<TrainingSpec> auto& training) {
  visit.integer("batchSizePerTrainer", training.batch_size_per_trainer, Presence::kRequired,
                Range{1, 1 << 24});
  visit.choice("precision", training.precision, Presence::kDefaulted);
  // Row-wise state is for embedding tables; no framework offers it for dense parameters.
  visit.choice_but("optimizer", training.optimizer, Presence::kDefaulted, {Optimizer::kRowWiseAdagrad});
  // No framework offers the other two for sharded tables.
  visit.choice_but("embeddingOptimizer", training.embedding_optimizer, Presence::kDefaulted,
                   {Optimizer::kAdafactor, Optimizer::kAdam8bit});
  visit.choice("optimizerImplementation", training.optimizer_implementation, Presence::kDefaulted);
  visit.integer("gradientAccumulation", training.gradient_accumulation, Presence::kDefaulted,
                Range{1, 1 << 20});
  visit.choice("activationCheckpointing", training.activation_checkpointing, Presence::kDefaulted);
  visit.texts("checkpointModules", training.checkpoint_modules, Range{0, 256}, kModuleName);
  visit.object("parallelism", training.parallelism, Presence::kDefaulted);
}

template <class Visitor>
void describe(Visitor& visit, Of<Parallelism> auto& parallelism) {
  visit.choice("strategy", parallelism.strategy, Presence::kDefaulted);
  visit.boolean("gradientAsBucketView", parallelism.gradient_as_bucket_view, Presence::kDefaulted);
  visit.boolean("reshardAfterForward", parallelism.reshard_after_forward, Presence::kDefaulted);
  visit.integer("tensor", parallelism.tensor, Presence::kDefaulted, kSplits);
  visit.boolean("sequence", parallelism.sequence, Presence::kDefaulted);
  visit.integer("pipeline", parallelism.pipeline, Presence::kDefaulted, kSplits);
  visit.integer("pipelineChunks", parallelism.pipeline_chunks, Presence::kDefaulted, kSplits);
  visit.texts("splitColumns", parallelism.split_columns, Range{0, 256}, kModuleName);
  visit.texts("splitRows", parallelism.split_rows, Range{0, 256}, kModuleName);
  visit.texts("stageBlocks", parallelism.stage_blocks, Range{0, 256}, kModuleName);
  visit.integer("context", parallelism.context, Presence::kDefaulted, kSplits);
  visit.integer("expert", parallelism.expert, Presence::kDefaulted, kSplits);
}

template <class Visitor>
void describe(Visitor& visit, Of<ProvisioningSpec> auto& provisioning) {
  visit.choice("mode", provisioning.mode, Presence::kDefaulted);
  visit.texts("gpuModels", provisioning.gpu_models, Range{0, 64}, kRequiredGpuModelName);
  visit.integer("minTrainers", provisioning.min_trainers, Presence::kDefaulted, kTrainerCounts);
  visit.integer("maxTrainers", provisioning.max_trainers, Presence::kDefaulted, kTrainerCounts);
  visit.choice("objective", provisioning.objective, Presence::kDefaulted);
  visit.percentage("headroom", provisioning.headroom, Presence::kDefaulted, kPercentage);
  visit.choice("placement", provisioning.placement, Presence::kDefaulted);
}

template <class Visitor>
void describe(Visitor& visit, Of<Trainers> auto& trainers) {
  visit.integer("replicas", trainers.replicas, Presence::kOptional, kTrainerCounts);
  visit.integer("perNode", trainers.per_node, Presence::kDefaulted, Range{1, 128});
  visit.text("gpuModel", trainers.gpu_model, Presence::kOptional, kGpuModelName);
}

template <class Visitor>
void describe(Visitor& visit, Of<FailureRule> auto& rule) {
  visit.choice("action", rule.action, Presence::kRequired);
  visit.choices("onCauses", rule.on_causes, Range{1, 7});
  visit.integer_set("onExitCodes", rule.on_exit_codes, Range{1, 255}, Range{1, 255});
}

template <class Visitor>
void describe(Visitor& visit, Of<FailurePolicy> auto& policy) {
  visit.integer("maxRestarts", policy.max_restarts, Presence::kDefaulted, Range{0, 100});
  visit.decimal("oomBumpUpRatio", policy.oom_bump_up_ratio, Presence::kDefaulted, kBumpUpRatio);
  visit.optional_bytes("oomMinBumpUp", policy.oom_min_bump_up, kPositiveBytes);
  visit.integer("oomMaxGrowth", policy.oom_max_growth, Presence::kDefaulted, Range{2, 64});
  visit.objects("rules", policy.rules, Presence::kOptional, Range{0, 20});
}

template <class Visitor>
void describe(Visitor& visit, Of<TrainingJobSpec> auto& spec) {
  visit.boolean("suspend", spec.suspend, Presence::kDefaulted);
  visit.text("managedBy", spec.managed_by, Presence::kOptional, kControllerName);
  visit.object("model", spec.model, Presence::kRequired);
  visit.object("training", spec.training, Presence::kRequired);
  visit.object("provisioning", spec.provisioning, Presence::kDefaulted);
  visit.object("trainers", spec.trainers, Presence::kDefaulted);
  visit.integer("activeDeadlineSeconds", spec.active_deadline_seconds, Presence::kDefaulted, kSeconds);
  visit.optional_integer("ttlSecondsAfterFinished", spec.ttl_seconds_after_finished, kSeconds);
  visit.object("failurePolicy", spec.failure_policy, Presence::kDefaulted);
}

}  // namespace plimsoll::crds
