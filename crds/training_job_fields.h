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
void check_rules(const EmbeddingsModel& model, const FieldPath& path, FieldErrors& errors);
void check_rules(const TransformerModel& model, const FieldPath& path, FieldErrors& errors);
void check_rules(const TrainingSpec& training, const FieldPath& path, FieldErrors& errors);
void check_rules(const FineTuning& tuning, const FieldPath& path, FieldErrors& errors);
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
inline constexpr Range kPercents = {1, 100};
inline constexpr Range kBucketElements = {1, std::int64_t{1} << 40};
inline constexpr Range kGlobalBatch = {0, 1 << 30};

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
  visit.integer("features", table.features, Presence::kOptional, Range{1, 64});
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

template <class Visitor, class Model>
void describe_tables(Visitor& visit, Model& model) {
  visit.objects("tables", model.tables, Presence::kOptional, Range{0, kMaxInlineTables});
  visit.optional_object("tablesFrom", model.tables_from);
}

template <class Visitor>
void describe(Visitor& visit, Of<DlrmModel> auto& model) {
  visit.integer("denseFeatures", model.dense_features, Presence::kDefaulted, kOptionalWidths);
  visit.integers("bottomMLP", model.bottom_mlp, Presence::kOptional, Range{0, 64}, kWidths);
  visit.integers("topMLP", model.top_mlp, Presence::kRequired, Range{1, 64}, kWidths);
  visit.choice("interaction", model.interaction, Presence::kDefaulted);
  visit.integer("crossLayers", model.cross_layers, Presence::kOptional, Range{0, 1024});
  visit.integer("crossRank", model.cross_rank, Presence::kOptional, kOptionalWidths);
  visit.optional_object("dhen", model.dhen);
  describe_tables(visit, model);
}

template <class Visitor>
void describe(Visitor& visit, Of<EmbeddingsModel> auto& model) {
  describe_tables(visit, model);
}

// 0 is not given: where `config` says the size, or where the type has another meaning for it.
template <class Visitor>
void describe(Visitor& visit, Of<TransformerModel> auto& model) {
  visit.text("config", model.config, Presence::kOptional, kModelConfig);
  visit.choice("architecture", model.architecture, Presence::kDefaulted);
  visit.integer("layers", model.layers, Presence::kOptional, Range{0, 65536});
  visit.integer("hidden", model.hidden, Presence::kOptional, kOptionalWidths);
  visit.integer("heads", model.heads, Presence::kOptional, Range{0, 65536});
  visit.integer("kvHeads", model.kv_heads, Presence::kOptional, Range{0, 65536});
  visit.integer("headDim", model.head_dim, Presence::kOptional, Range{0, 65536});
  visit.integer("ffn", model.ffn, Presence::kOptional, Range{0, 1 << 22});
  visit.integer("vocab", model.vocab, Presence::kOptional, Range{0, 1 << 24});
  visit.integer("seqLen", model.sequence_length, Presence::kRequired, Range{1, 1 << 24});
  visit.integer("encoderSeqLen", model.encoder_sequence_length, Presence::kOptional, Range{0, 1 << 24});
  visit.integer("experts", model.experts, Presence::kOptional, Range{0, 65536});
  visit.integer("expertsPerToken", model.experts_per_token, Presence::kOptional, Range{0, 65536});
  visit.boolean("splitExperts", model.split_experts, Presence::kDefaulted);
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
  visit.optional_object("embeddings", model.embeddings);
}

template <class Visitor>
void describe(Visitor& visit, Of<RankOfModules> auto& ranks) {
  visit.text("module", ranks.module, Presence::kRequired, kModuleName);
  visit.integer("rank", ranks.rank, Presence::kRequired, Range{1, 65536});
}

template <class Visitor>
void describe(Visitor& visit, Of<FineTuning> auto& tuning) {
  visit.choice("method", tuning.method, Presence::kDefaulted);
  visit.choice("quantization", tuning.quantization, Presence::kDefaulted);
  visit.boolean("doubleQuantization", tuning.double_quantization, Presence::kDefaulted);
  visit.boolean("preparedForKbitTraining", tuning.prepared_for_kbit_training, Presence::kDefaulted);
  visit.text("bitsandbytesVersion", tuning.bitsandbytes_version, Presence::kOptional, kBitsandbytesVersion);
  visit.integer("rank", tuning.rank, Presence::kOptional, Range{0, 65536});
  visit.percentage("dropout", tuning.dropout, Presence::kDefaulted, kPercentage);
  visit.texts("targetModules", tuning.target_modules, Range{0, 256}, kModuleName);
  visit.texts("excludeModules", tuning.exclude_modules, Range{0, 256}, kModuleName);
  visit.texts("modulesToSave", tuning.modules_to_save, Range{0, 256}, kModuleName);
  visit.integer_set("layersToTransform", tuning.layers_to_transform, Range{0, 4096}, Range{0, 65535});
  visit.objects("rankPattern", tuning.rank_pattern, Presence::kOptional, Range{0, 256});
  visit.choice("bias", tuning.bias, Presence::kDefaulted);
  visit.boolean("autocastAdapterDtype", tuning.autocast_adapter_dtype, Presence::kDefaulted);
  visit.texts("frozenModules", tuning.frozen_modules, Range{0, 256}, kModuleName);
  visit.integer("frozenLayers", tuning.frozen_layers, Presence::kOptional, Range{0, 65536});
}

template <class Visitor>
void describe(Visitor& visit, Of<TrainingSpec> auto& training) {
  visit.integer("batchSizePerTrainer", training.batch_size_per_trainer, Presence::kOptional,
                Range{0, 1 << 24});
  visit.integer("globalBatchSize", training.global_batch_size, Presence::kOptional, kGlobalBatch);
  visit.choice("precision", training.precision, Presence::kDefaulted);
  // Row-wise state is for embedding tables; no framework offers it for dense parameters.
  visit.choice_but("optimizer", training.optimizer, Presence::kDefaulted, {Optimizer::kRowWiseAdagrad});
  visit.choice_but("embeddingOptimizer", training.embedding_optimizer, Presence::kDefaulted, kNotForTables);
  visit.choice("optimizerImplementation", training.optimizer_implementation, Presence::kDefaulted);
  visit.integer("gradientAccumulation", training.gradient_accumulation, Presence::kDefaulted,
                Range{1, 1 << 20});
  visit.integer("maxGradientAccumulation", training.max_gradient_accumulation, Presence::kOptional,
                Range{0, kMaxGradientAccumulation});
  visit.choice("activationCheckpointing", training.activation_checkpointing, Presence::kDefaulted);
  visit.texts("checkpointModules", training.checkpoint_modules, Range{0, 256}, kModuleName);
  visit.choice("compile", training.compile, Presence::kDefaulted);
  visit.choice("float8", training.float8, Presence::kDefaulted);
  visit.integer("lossChunks", training.loss_chunks, Presence::kDefaulted, Range{1, 1 << 20});
  visit.boolean("optimizerInBackward", training.optimizer_in_backward, Presence::kDefaulted);
  visit.optional_boolean("setToNone", training.set_to_none);
  visit.boolean("averagedModel", training.averaged_model, Presence::kDefaulted);
  visit.boolean("gradScaler", training.grad_scaler, Presence::kDefaulted);
  visit.choice("gradientClipping", training.gradient_clipping, Presence::kDefaulted);
  visit.boolean("cudnnBenchmark", training.cudnn_benchmark, Presence::kDefaulted);
  visit.choice("initialisation", training.initialisation, Presence::kDefaulted);
  visit.choice("checkpointSaving", training.checkpoint_saving, Presence::kDefaulted);
  visit.choice("checkpointLoading", training.checkpoint_loading, Presence::kDefaulted);
  visit.integer("dataLoaderWorkers", training.data_loader_workers, Presence::kOptional, Range{0, 1024});
  visit.integer("lastBatchSize", training.last_batch_size, Presence::kOptional, Range{0, 1 << 24});
  visit.integer("validationBatchSize", training.validation_batch_size, Presence::kOptional,
                Range{0, 1 << 24});
  visit.integer_set("sequenceLengths", training.sequence_lengths, Range{0, 32}, Range{1, 1 << 24});
  visit.text("torchVersion", training.torch_version, Presence::kOptional, kTorchVersion);
  visit.optional_object("fineTuning", training.fine_tuning);
  visit.object("parallelism", training.parallelism, Presence::kDefaulted);
}

template <class Visitor>
void describe(Visitor& visit, Of<Parallelism> auto& parallelism) {
  visit.choice("strategy", parallelism.strategy, Presence::kDefaulted);
  visit.boolean("gradientAsBucketView", parallelism.gradient_as_bucket_view, Presence::kDefaulted);
  visit.boolean("reshardAfterForward", parallelism.reshard_after_forward, Presence::kDefaulted);
  visit.choice("reduceDtype", parallelism.reduce_dtype, Presence::kDefaulted);
  visit.integer("replicate", parallelism.replicate, Presence::kDefaulted, kSplits);
  visit.choice("offload", parallelism.offload, Presence::kDefaulted);
  visit.integer("offloadPercent", parallelism.offload_percent, Presence::kDefaulted, kPercents);
  visit.boolean("overlapOffload", parallelism.overlap_offload, Presence::kDefaulted);
  visit.integer("reduceBucketSize", parallelism.reduce_bucket_size, Presence::kDefaulted, kBucketElements);
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
  visit.choice("mode", provisioning.mode, Presence::kOptional);
  visit.texts("gpuModels", provisioning.gpu_models, Range{0, 64}, kRequiredGpuModelName);
  visit.integer("minTrainers", provisioning.min_trainers, Presence::kDefaulted, kTrainerCounts);
  visit.integer("maxTrainers", provisioning.max_trainers, Presence::kDefaulted, kTrainerCounts);
  visit.choice("objective", provisioning.objective, Presence::kDefaulted);
  visit.text("minThroughput", provisioning.min_throughput, Presence::kOptional, kThroughput);
  visit.percentage("headroom", provisioning.headroom, Presence::kDefaulted, kPercentage);
  visit.choice("placement", provisioning.placement, Presence::kDefaulted);
  visit.boolean("allowEmulation", provisioning.allow_emulation, Presence::kDefaulted);
  visit.boolean("resizeDataParallel", provisioning.resize_data_parallel, Presence::kDefaulted);
  visit.choice("onUnfit", provisioning.on_unfit, Presence::kDefaulted);
  visit.optional_bytes("hostMemoryPerTrainer", provisioning.host_memory, kPositiveBytes);
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
  visit.integer("activeDeadlineSeconds", spec.active_deadline_seconds, Presence::kOptional, kSeconds);
  visit.optional_integer("ttlSecondsAfterFinished", spec.ttl_seconds_after_finished, kSeconds);
  visit.object("failurePolicy", spec.failure_policy, Presence::kDefaulted);
}

}  // namespace plimsoll::crds
