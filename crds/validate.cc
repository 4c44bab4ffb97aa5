// What the CEL rules of the CRD say, with the same messages, and what they cannot say (total sizes, names that collide).
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/number.h"
#include "crds/checker.h"
#include "crds/decoder.h"
#include "crds/embedding_tables_csv.h"
#include "crds/pod_template_rules.h"
#include "crds/training_job_fields.h"

namespace plimsoll::crds {
namespace {

using TablesByName = std::unordered_map<std::string_view, std::size_t>;

// "user.7" is the eighth table of a group "user" of at least eight.
void check_group_collision(const std::vector<EmbeddingTable>& groups, std::size_t index,
                           const TablesByName& by_name, const FieldPath& tables, FieldErrors& errors) {
  const std::string_view name = groups[index].name;
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || groups[index].count != 1) {
    return;
  }
  const std::string_view suffix = name.substr(dot + 1);
  const std::optional<std::uint64_t> member_index = parse_number<std::uint64_t>(suffix);
  const bool canonical = member_index && (suffix.size() == 1 || suffix.front() != '0');
  const auto group = by_name.find(name.substr(0, dot));
  if (canonical && group != by_name.end() && groups[group->second].count > 1 &&
      *member_index < static_cast<std::uint64_t>(groups[group->second].count)) {
    errors.add(FieldPath(FieldPath(tables, index), "name"),
               "is also the name of a table in the group tables[" + std::to_string(group->second) + "]");
  }
}

void check_table_names(const std::vector<EmbeddingTable>& groups, const FieldPath& tables,
                       FieldErrors& errors) {
  TablesByName by_name;
  by_name.reserve(groups.size());
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto [first, fresh] = by_name.emplace(groups[i].name, i);
    if (!fresh) {
      errors.add(FieldPath(FieldPath(tables, i), "name"),
                 "is also the name of tables[" + std::to_string(first->second) + "]");
    }
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    check_group_collision(groups, i, by_name, tables, errors);
  }
}

static_assert(kMaxEmbeddingTables == 100'000, "the rule's message and the CRD have this number");

void check_table_sums(const std::vector<EmbeddingTable>& groups, const FieldPath& tables,
                      FieldErrors& errors) {
  Bytes count;  // saturates, as the sizes do
  Bytes size;
  for (const EmbeddingTable& table : groups) {
    count += Bytes{table.count};
    size += Bytes{table.rows} * table.dim * width_bytes(table.dtype) * table.count;
  }
  if (count.count > kMaxEmbeddingTables) {
    errors.add(tables, "all counts of the tables together must not exceed 100000");
  }
  if (size == Bytes::max()) {
    errors.add(tables, "sizes add up to more than 2^63 bytes");
  }
}

// Of the tables of a model, wherever they are.
template <class Model>
void check_tables(const Model& model, const FieldPath& path, FieldErrors& errors) {
  const FieldPath tables(path, "tables");
  if (model.tables.empty() && !model.tables_from) {
    errors.add(tables, "tables or tablesFrom must be given");
  }
  check_table_names(model.tables, tables, errors);
  check_table_sums(model.tables, tables, errors);
}

void check_name(const TrainingJob& job, FieldErrors& errors) {
  const FieldPath metadata("metadata");
  const FieldPath name(metadata, "name");
  if (job.name.empty()) {
    // The API server completes a generateName after admission.
    if (member(job.raw, {"metadata", "generateName"}).empty()) {
      errors.add(name, "is required");
    }
  } else if (!obeys(kJobName, job.name)) {
    errors.add(name, std::string("must be ") + kJobName.form + ", is " + quoted(job.name));
  }
}

}  // namespace

void check_rules(const ModelSpec& model, const FieldPath& path, FieldErrors& errors) {
  if (int{model.dlrm.has_value()} + int{model.transformer.has_value()} + int{model.graph.has_value()} != 1) {
    errors.add(path, "model must have exactly one of dlrm, transformer and graph");
  }
  if (model.embeddings && !model.graph) {
    errors.add(FieldPath(path, "embeddings"),
               "embeddings are the tables of a graph; a dlrm has its own tables");
  }
}

void check_rules(const EmbeddingsModel& model, const FieldPath& path, FieldErrors& errors) {
  check_tables(model, path, errors);
}

void check_rules(const DlrmModel& model, const FieldPath& path, FieldErrors& errors) {
  if (!model.top_mlp.empty() && model.top_mlp.back() != 1) {
    errors.add(FieldPath(path, "topMLP"), "the last width of topMLP must be 1, the prediction");
  }
  if (model.dense_features == 0 && !model.bottom_mlp.empty()) {
    errors.add(FieldPath(path, "bottomMLP"), "bottomMLP needs denseFeatures of at least 1");
  }
  const bool stacked = model.interaction == Interaction::kDHEN;
  const bool crosses = model.interaction == Interaction::kDCN || model.interaction == Interaction::kDCNv1;
  if (crosses && model.cross_layers == 0) {
    errors.add(FieldPath(path, "crossLayers"),
               "crossLayers must be at least 1 when interaction is DCN or DCNv1");
  }
  if (!crosses && model.cross_layers != 0) {
    errors.add(FieldPath(path, "crossLayers"), "crossLayers is only for interactions DCN and DCNv1");
  }
  if (model.interaction != Interaction::kDCN && !stacked && model.cross_rank != 0) {
    errors.add(FieldPath(path, "crossRank"), "crossRank is only for interactions DCN and DHEN");
  }
  if (stacked != model.dhen.has_value()) {
    errors.add(FieldPath(path, "interaction"), "dhen must be given for interaction DHEN, and for no other");
  }
  // Ranges are checked elsewhere, some of them later, so heads may be 0 or negative here.
  if (model.dhen && model.dhen->heads > 0 &&
      (model.bottom_mlp.empty() || model.bottom_mlp.back() % model.dhen->heads != 0)) {
    errors.add(FieldPath(path, "bottomMLP"),
               "DHEN needs a bottomMLP whose last width is a multiple of dhen.heads");
  }
  if (model.dhen && model.dhen->modules.empty()) {
    errors.add(FieldPath(path, "dhen"), "dhen.modules must name what a layer is made of");
  }
  check_tables(model, path, errors);
}

void check_rules(const TransformerModel& model, const FieldPath& path, FieldErrors& errors) {
  const std::pair<const char*, std::int64_t> sizes[] = {{"layers", model.layers},
                                                        {"hidden", model.hidden},
                                                        {"heads", model.heads},
                                                        {"ffn", model.ffn},
                                                        {"vocab", model.vocab}};
  for (const auto& [name, size] : sizes) {
    if ((size > 0) == !model.config.empty()) {
      errors.add(FieldPath(path, name), std::string(name) + " must be given, or config instead of it");
    }
  }
  if (model.heads > 0 && model.head_dim == 0 && model.hidden % model.heads != 0) {
    errors.add(FieldPath(path, "hidden"), "hidden must be a multiple of heads, or headDim given");
  }
  if (model.kv_heads > 0 && model.heads % model.kv_heads != 0) {
    errors.add(FieldPath(path, "kvHeads"), "heads must be a multiple of kvHeads");
  }
  const bool well_routed = model.experts == 0
                               ? model.experts_per_token == 0
                               : model.experts_per_token >= 1 && model.experts_per_token <= model.experts;
  if (!well_routed) {
    errors.add(FieldPath(path, "expertsPerToken"),
               "expertsPerToken must be between 1 and experts, and 0 when experts is 0");
  }
}

void check_rules(const TrainingSpec& training, const FieldPath& path, FieldErrors& errors) {
  if ((training.batch_size_per_trainer == 0) == (training.global_batch_size == 0)) {
    errors.add(FieldPath(path, "batchSizePerTrainer"),
               "exactly one of batchSizePerTrainer and globalBatchSize must be given");
  }
  if (training.gradient_accumulation > 0 &&
      (training.batch_size_per_trainer % training.gradient_accumulation != 0 ||
       training.global_batch_size % training.gradient_accumulation != 0)) {
    errors.add(FieldPath(path, "gradientAccumulation"),
               "batchSizePerTrainer or globalBatchSize must be a multiple of gradientAccumulation");
  }
  if (training.max_gradient_accumulation != 0 &&
      (training.global_batch_size == 0 ||
       training.max_gradient_accumulation < training.gradient_accumulation)) {
    errors.add(FieldPath(path, "maxGradientAccumulation"),
               "maxGradientAccumulation needs globalBatchSize, and is at least gradientAccumulation");
  }
  const bool per_module = training.activation_checkpointing == ActivationCheckpointing::kPerModule;
  if (per_module == training.checkpoint_modules.empty()) {
    errors.add(FieldPath(path, "checkpointModules"),
               "checkpointModules go with activationCheckpointing PerModule");
  }
  if (training.grad_scaler && training.precision != Precision::kFP16Mixed) {
    errors.add(FieldPath(path, "gradScaler"), "gradScaler needs precision FP16Mixed");
  }
  if (training.optimizer_in_backward && training.gradient_clipping == GradientClipping::kNorm) {
    errors.add(FieldPath(path, "optimizerInBackward"),
               "optimizerInBackward leaves no gradients for gradientClipping Norm");
  }
  const bool mixed =
      training.precision == Precision::kBF16Mixed || training.precision == Precision::kFP16Mixed;
  if (training.parallelism.reduce_dtype != ReduceDtype::kAuto && !mixed) {
    errors.add(FieldPath(path, "parallelism"), "reduceDtype needs precision BF16Mixed or FP16Mixed");
  }
  if (training.initialisation != Initialisation::kAuto &&
      (!shards_model(training.parallelism.strategy) || training.fine_tuning)) {
    errors.add(FieldPath(path, "initialisation"),
               "initialisation needs strategy FSDP, FSDP2, ZeRO1, ZeRO2 or ZeRO3, and no fineTuning");
  }
  if ((training.initialisation == Initialisation::kCPU || training.initialisation == Initialisation::kGPU) &&
      is_split(training.parallelism)) {
    errors.add(FieldPath(path, "initialisation"),
               "initialisation CPU and GPU need tensor, pipeline and expert of 1");
  }
  if (training.last_batch_size != 0 && (training.last_batch_size > training.batch_size_per_trainer ||
                                        (training.gradient_accumulation > 0 &&
                                         training.last_batch_size % training.gradient_accumulation != 0))) {
    errors.add(FieldPath(path, "lastBatchSize"),
               "lastBatchSize must be at most batchSizePerTrainer and a multiple of gradientAccumulation");
  }
}

void check_rules(const FineTuning& tuning, const FieldPath& path, FieldErrors& errors) {
  const bool adapters = tuning.method != FineTuningMethod::kFull;
  const bool of_adapters = tuning.rank != 0 || tuning.dropout != 0 || !tuning.target_modules.empty() ||
                           !tuning.exclude_modules.empty() || !tuning.modules_to_save.empty() ||
                           !tuning.layers_to_transform.empty() || !tuning.rank_pattern.empty() ||
                           tuning.bias != TrainedBiases::kNone || !tuning.autocast_adapter_dtype;
  if (!adapters && of_adapters) {
    errors.add(
        FieldPath(path, "method"),
        "rank, dropout, targetModules, excludeModules, modulesToSave, layersToTransform, rankPattern, bias "
        "and autocastAdapterDtype need method LoRA or DoRA");
  }
  if (!adapters && (tuning.quantization != Quantization::kNone || tuning.prepared_for_kbit_training)) {
    errors.add(FieldPath(path, "method"),
               "quantization and preparedForKbitTraining need method LoRA or DoRA: such weights are frozen");
  }
  if (tuning.double_quantization && tuning.quantization != Quantization::kNF4 &&
      tuning.quantization != Quantization::kFP4) {
    errors.add(FieldPath(path, "doubleQuantization"), "doubleQuantization needs quantization NF4 or FP4");
  }
  if (adapters && (tuning.frozen_layers > 0 || !tuning.frozen_modules.empty())) {
    errors.add(FieldPath(path, "frozenModules"),
               "frozenModules and frozenLayers need method Full: adapters freeze all other parameters");
  }
}

void check_rules(const Parallelism& parallelism, const FieldPath& path, FieldErrors& errors) {
  if (parallelism.replicate > 1 && parallelism.strategy != ParallelStrategy::kFSDP &&
      parallelism.strategy != ParallelStrategy::kFSDP2) {
    errors.add(FieldPath(path, "replicate"), "replicate needs strategy FSDP or FSDP2");
  }
  if (parallelism.reduce_dtype != ReduceDtype::kAuto && parallelism.strategy != ParallelStrategy::kFSDP &&
      parallelism.strategy != ParallelStrategy::kFSDP2) {
    errors.add(FieldPath(path, "reduceDtype"), "reduceDtype needs strategy FSDP or FSDP2");
  }
  if (parallelism.offload != Offload::kNone && !can_offload(parallelism)) {
    const bool optimizer = parallelism.offload == Offload::kOptimizer;
    errors.add(FieldPath(path, "offload"),
               optimizer ? "offload Optimizer needs strategy ZeRO1, ZeRO2, ZeRO3 or Megatron"
                         : "offload Parameters needs strategy FSDP, FSDP2 or ZeRO3");
  }
  if ((parallelism.offload_percent != 100 || parallelism.overlap_offload) &&
      !can_offload_in_part(parallelism)) {
    errors.add(FieldPath(path, "offloadPercent"),
               "offloadPercent and overlapOffload need offload Optimizer and strategy Megatron");
  }
  if (parallelism.reduce_bucket_size != kReduceBucketSize && !is_zero(parallelism.strategy)) {
    errors.add(FieldPath(path, "reduceBucketSize"), "reduceBucketSize needs strategy ZeRO1, ZeRO2 or ZeRO3");
  }
  if (parallelism.sequence && parallelism.tensor == 1) {
    errors.add(FieldPath(path, "sequence"), "sequence needs tensor of at least 2");
  }
  if (parallelism.pipeline_chunks > 1 && parallelism.pipeline == 1) {
    errors.add(FieldPath(path, "pipelineChunks"), "pipelineChunks needs pipeline of at least 2");
  }
  if (parallelism.tensor == 1 && !(parallelism.split_columns.empty() && parallelism.split_rows.empty())) {
    errors.add(FieldPath(path, "tensor"), "splitColumns and splitRows need tensor of at least 2");
  }
  if (parallelism.pipeline == 1 && !parallelism.stage_blocks.empty()) {
    errors.add(FieldPath(path, "pipeline"), "stageBlocks needs pipeline of at least 2");
  }
}

void check_rules(const ProvisioningSpec& provisioning, const FieldPath& path, FieldErrors& errors) {
  if (provisioning.min_trainers > provisioning.max_trainers) {
    errors.add(FieldPath(path, "minTrainers"), "minTrainers must not exceed maxTrainers");
  }
}

void check_rules(const Trainers& trainers, const FieldPath& path, FieldErrors& errors) {
  if (trainers.replicas_given && trainers.per_node > 0 && trainers.replicas > trainers.per_node &&
      trainers.replicas % trainers.per_node != 0) {
    errors.add(FieldPath(path, "replicas"),
               "replicas must be at most perNode, or a multiple of it, for each node runs as many trainers");
  }
}

void check_rules(const FailureRule& rule, const FieldPath& path, FieldErrors& errors) {
  if (rule.on_causes.empty() && rule.on_exit_codes.empty()) {
    errors.add(path, "rules need onCauses or onExitCodes");
  }
}

Result<void> check_tables(const std::vector<EmbeddingTable>& tables, std::string_view name) {
  FieldErrors errors;
  const FieldPath path(name);
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const FieldPath place(path, i);
    Checker checker(place, errors);
    describe(checker, tables[i]);
  }
  check_table_names(tables, path, errors);
  check_table_sums(tables, path, errors);
  return errors.empty() ? Result<void>() : invalid(to_string(errors.list()));
}

std::vector<FieldError> validate(const TrainingJob& job) {
  FieldErrors errors;
  check_name(job, errors);
  const FieldPath path("spec");
  Checker checker(path, errors);
  describe(checker, job.spec);
  check_pod_template(JsonView(member(job.raw, {"spec", "template"})), FieldPath(path, "template"), errors);
  return std::move(errors).take();
}

std::vector<FieldError> validate_update(const TrainingJob& before, const TrainingJob& now) {
  FieldErrors errors;
  const FieldPath spec("spec");
  if (before.spec.model != now.spec.model) {
    errors.add(FieldPath(spec, "model"), "model cannot be changed; create another job for another model");
  }
  if (!before.spec.suspend && before.spec.training != now.spec.training) {
    errors.add(FieldPath(spec, "training"), "training may only change while the job is suspended");
  }
  if (before.spec.managed_by != now.spec.managed_by) {
    errors.add(FieldPath(spec, "managedBy"), "managedBy cannot be changed");
  }
  return std::move(errors).take();
}

}  // namespace plimsoll::crds
