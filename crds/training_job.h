// TrainingJob: the C++ mirror of crds/plimsoll.dev_trainingjobs.yaml (plimsoll.dev/v1alpha1, namespaced,
// `tj`).
//
//   Result<TrainingJob> job = decode_training_job(object);
//   if (!job) return job.error();                          // "spec.training.optimizer: must be one of ..."
//   std::vector<FieldError> wrong = validate(*job);
//
// Decoding is strict on the type of each field that is known, applies the schema's defaults, and keeps what
// is unknown: a writer patches `raw`, the object as it was received, and does not serialise these structs, so
// that nothing a newer client wrote is lost. `raw` lacks spec.model only: that may not change, so it is never
// patched, and thousands of tables would take more memory than all else. Decoding and validation together
// refuse everything that the schema and its CEL rules refuse, with the same messages for the rules;
// crds/training_job_fields.h lists the fields once for all of them. Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/json/view.h"
#include "base/result.h"
#include "crds/enums.h"

namespace plimsoll::crds {

inline constexpr const char* kGroup = "plimsoll.dev";
inline constexpr const char* kVersion = "v1alpha1";
inline constexpr const char* kApiVersion = "plimsoll.dev/v1alpha1";

// Annotations and labels that Plimsoll reads or writes. crds/README.md has what each means.
inline constexpr const char* kProvisioningAnnotation = "plimsoll.dev/provisioning";  // "disabled": opt out
inline constexpr const char* kRequestedAnnotation =
    "plimsoll.dev/requested-trainers";  // what the user requested, as JSON
inline constexpr const char* kDecisionAnnotation =
    "plimsoll.dev/provisioning-decision";  // what was decided, as JSON
inline constexpr const char* kReasonAnnotation =
    "plimsoll.dev/provisioning-reason";  // one sentence for people
inline constexpr const char* kRequestedReplicasAnnotation =
    "plimsoll.dev/requested-replicas";  // the count alone, for kubectl's column
inline constexpr const char* kGpuProductLabel = "nvidia.com/gpu.product";  // set by GPU feature discovery
inline constexpr const char* kGpuResource = "nvidia.com/gpu";

// A group of `count` identical embedding tables.
struct EmbeddingTable {
  std::string name;
  std::int64_t count = 1;
  std::int64_t rows = 0;
  std::int64_t dim = 0;  // columns
  DataType dtype = DataType::kFP32;
  double pooling_factor = 1;    // mean rows fetched per lookup of one sample
  double lookup_frequency = 1;  // share of samples that look the table up, 0..1
  // Above 0: rows reach the model as a sequence of at most so many, unpooled; pooling_factor is its mean
  // length.
  std::int64_t sequence_length = 0;
  // Features that look the table up, each with rows of its own in the result; pooling_factor is of each.
  std::int64_t features = 1;

  bool operator==(const EmbeddingTable&) const = default;
};

struct DhenStack {
  std::int64_t layers = 0;
  std::int64_t features = 0;  // embeddings that each module of a layer gives
  std::vector<DhenModule> modules;
  std::int64_t heads = 1;  // of kAttention

  bool operator==(const DhenStack&) const = default;
};

struct TablesFrom {
  std::string config_map_name;
  std::string key;

  bool operator==(const TablesFrom&) const = default;
};

// The embedding tables of a graph, whose operators look them up and hold none of them.
struct EmbeddingsModel {
  std::vector<EmbeddingTable> tables;
  std::optional<TablesFrom> tables_from;  // instead of, or in addition to, `tables`

  bool operator==(const EmbeddingsModel&) const = default;
};

struct DlrmModel {
  std::int64_t dense_features = 13;
  std::vector<std::int64_t> bottom_mlp;  // widths of the layers after the dense features
  std::vector<std::int64_t> top_mlp;     // widths of the layers after the interaction; the last is 1
  Interaction interaction = Interaction::kDot;
  std::int64_t cross_layers = 0;  // kDCN (DCN-v2), kDCNv1: number of cross layers
  std::int64_t cross_rank = 0;    // kDCN, and DHEN's: rank of each; 0 is full rank
  std::optional<DhenStack> dhen;  // of kDHEN
  std::vector<EmbeddingTable> tables;
  std::optional<TablesFrom> tables_from;  // instead of, or in addition to, `tables`

  bool operator==(const DlrmModel&) const = default;
};

// A transformer, by its sizes or by a Hugging Face config.json.
struct TransformerModel {
  std::string config;  // the text of a config.json; the sizes below are then its own
  TransformerArchitecture architecture = TransformerArchitecture::kDecoder;
  std::int64_t layers = 0;  // of kEncoderDecoder: of each half
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // 0: as heads
  std::int64_t head_dim = 0;  // 0: hidden / heads
  std::int64_t ffn = 0;       // width of an expert where there are experts
  std::int64_t vocab = 0;
  std::int64_t sequence_length = 0;
  std::int64_t encoder_sequence_length = 0;  // of an encoder beside a decoder; 0: as sequence_length
  std::int64_t experts = 0;                  // 0: dense
  std::int64_t experts_per_token = 0;
  bool split_experts =
      false;  // each expert has parameters of its own; false: a layer's experts share one tensor
  Normalization norm = Normalization::kRMSNorm;
  FeedForward activation = FeedForward::kSwiGLU;
  PositionEncoding positions = PositionEncoding::kRotary;
  AttentionKind attention = AttentionKind::kSDPA;
  bool biases = false;           // of the linear layers
  bool tied_embeddings = false;  // the output layer is the token embedding
  double dropout = 0;            // of embeddings, residuals and attention

  bool operator==(const TransformerModel&) const = default;
};

struct GraphReference {
  std::string config_map_name;
  std::string key;

  bool operator==(const GraphReference&) const = default;
};

struct ModelSpec {
  std::string family;             // jobs of a family share a MemoryProfile; may be empty
  std::optional<DlrmModel> dlrm;  // exactly one of the three
  std::optional<TransformerModel> transformer;
  std::optional<GraphReference> graph;
  std::optional<EmbeddingsModel> embeddings;  // of a graph; absent: those that its file describes

  // Of `dlrm` or `embeddings`; empty without either. `tables_field` is their path in the API.
  const std::vector<EmbeddingTable>& tables() const;
  const std::optional<TablesFrom>& tables_from() const;
  const char* tables_field() const;
  // Whether there are any, read or not.
  bool has_tables() const;
  // To add what tables_from() names. The model must have `dlrm` or `embeddings`.
  std::vector<EmbeddingTable>& own_tables();

  bool operator==(const ModelSpec&) const = default;
};

// DeepSpeed's default, in elements (deepspeed/runtime/zero/config.py: reduce_bucket_size).
inline constexpr std::int64_t kReduceBucketSize = 500'000'000;

// How the dense part is spread over the trainers. tensor x pipeline x context trainers hold one replica of
// the model; `strategy` says how replicas share what they all hold.
struct Parallelism {
  ParallelStrategy strategy = ParallelStrategy::kAuto;
  bool gradient_as_bucket_view = false;           // DDP's option
  bool reshard_after_forward = true;              // FSDP's
  ReduceDtype reduce_dtype = ReduceDtype::kAuto;  // FSDP's, in mixed precision
  std::int64_t replicate = 1;                     // FSDP's: groups that each hold all parameters (HSDP)
  Offload offload = Offload::kNone;
  std::int64_t offload_percent = 100;  // Megatron-LM's --optimizer-offload-fraction, in percent
  bool overlap_offload = false;        // Megatron-LM's --overlap-cpu-optimizer-d2h-h2d
  std::int64_t reduce_bucket_size = kReduceBucketSize;  // DeepSpeed's, in elements
  std::int64_t tensor = 1;
  bool sequence = false;  // with tensor: activations between the parallel regions are split by tokens
  std::int64_t pipeline = 1;
  std::int64_t pipeline_chunks = 1;  // stages of each trainer: more than 1 interleaves
  // Of graphs, modules by the end of their path, `*` is any one name: the layers that `tensor` splits by
  // output columns and by input rows (none: by the usual names), and the blocks `pipeline` makes stages of.
  std::vector<std::string> split_columns{};
  std::vector<std::string> split_rows{};
  std::vector<std::string> stage_blocks{};
  std::int64_t context = 1;
  std::int64_t expert = 1;  // trainers that share the experts of a layer

  bool operator==(const Parallelism&) const = default;
};

// Whether the strategy can keep in host memory what parallelism.offload says.
bool can_offload(const Parallelism& parallelism);
// Whether it can keep a part of the optimizer's state there: else offloadPercent and overlapOffload have no meaning.
bool can_offload_in_part(const Parallelism& parallelism);
// ZeRO1 to ZeRO3: parallelism.reduceBucketSize goes with no other.
bool is_zero(ParallelStrategy strategy);
// FSDP, FSDP2 and ZeRO: before the first iteration a trainer may hold more of the model than it trains.
bool shards_model(ParallelStrategy strategy);
// Whether trainers hold different parts of the model before a strategy shards it.
bool is_split(const Parallelism& parallelism);

struct RankOfModules {
  std::string module;
  std::int64_t rank = 0;

  bool operator==(const RankOfModules&) const = default;
};

// Which parameters of a transformer are trained, and how the frozen ones are stored. The names are those of peft's
// LoraConfig, and modules are matched as peft matches them.
struct FineTuning {
  FineTuningMethod method = FineTuningMethod::kFull;
  Quantization quantization = Quantization::kNone;  // of the frozen linear layers
  TrainedBiases bias = TrainedBiases::kNone;
  std::string bitsandbytes_version{};  // as "0.42"; empty: the newest that is known
  std::int64_t rank = 0;               // of the adapters; 0: peft's default
  double dropout = 0;
  std::vector<std::string> target_modules{};  // empty: peft's for the family; "all-linear"
  std::vector<std::string> exclude_modules{};
  std::vector<std::string> modules_to_save{};  // trained as a copy
  std::vector<std::int64_t> layers_to_transform{};
  std::vector<RankOfModules> rank_pattern{};
  std::vector<std::string> frozen_modules{};  // of kFull
  std::int64_t frozen_layers = 0;             // the first ones, of kFull
  bool double_quantization = false;
  bool prepared_for_kbit_training = false;  // peft's prepare_model_for_kbit_training()
  bool autocast_adapter_dtype = true;       // adapters are FP32

  bool operator==(const FineTuning&) const = default;
};

// The most parts that a replica's share of a global batch is taken in, unless gradientAccumulation says more.
inline constexpr std::int64_t kMaxGradientAccumulation = 1024;

struct TrainingSpec {
  // One of the two is given: samples that a replica takes in an iteration, which is never changed, or those of all
  // replicas, of which each takes its share (global_batch.h).
  std::int64_t batch_size_per_trainer = 0;
  std::int64_t global_batch_size = 0;
  Precision precision = Precision::kFP32;
  Optimizer optimizer = Optimizer::kAdam;  // of the dense parameters
  Optimizer embedding_optimizer = Optimizer::kRowWiseAdagrad;
  OptimizerImplementation optimizer_implementation = OptimizerImplementation::kDefault;
  std::int64_t gradient_accumulation = 1;  // equal parts the batch is taken in; a pipeline's micro-batches
  std::int64_t max_gradient_accumulation = 0;  // of a global batch, where its share needs it; 0: no more
  ActivationCheckpointing activation_checkpointing = ActivationCheckpointing::kNone;
  std::vector<std::string> checkpoint_modules{};  // of kPerModule
  Compilation compile = Compilation::kNone;
  Float8 float8 = Float8::kNone;
  std::int64_t loss_chunks = 1;        // parts of the tokens whose logits and loss are computed one by one
  bool optimizer_in_backward = false;  // each parameter is updated once its gradient is complete
  // Of the loop's zero_grad(); nothing: as PyTorch's default, which is false before 2.0 (keeps_gradients).
  std::optional<bool> set_to_none{};
  bool averaged_model = false;  // a second copy of the weights on the GPU, as for EMA
  bool grad_scaler = false;     // the loss is scaled by torch.amp.GradScaler
  GradientClipping gradient_clipping = GradientClipping::kNone;
  bool cudnn_benchmark = false;  // torch.backends.cudnn.benchmark: cuDNN times all plans of a convolution
  Initialisation initialisation = Initialisation::kAuto;
  CheckpointSaving checkpoint_saving = CheckpointSaving::kNone;
  CheckpointLoading checkpoint_loading = CheckpointLoading::kAuto;
  std::int64_t data_loader_workers = 0;    // of each trainer
  std::int64_t last_batch_size = 0;        // of an epoch's last iteration (drop_last=False); 0: as the others
  std::int64_t validation_batch_size = 0;  // of validation passes between iterations; 0: none
  std::vector<std::int64_t> sequence_lengths{};  // of padded batches, besides the model's, the longest
  std::string torch_version{};  // that trains a spec, as "2.6"; empty: the newest that is known
  std::optional<FineTuning> fine_tuning{};
  Parallelism parallelism{};

  bool operator==(const TrainingSpec&) const = default;
};

struct ProvisioningSpec {
  ProvisioningMode mode = ProvisioningMode::kAuto;
  bool mode_given = false;              // otherwise the namespace or the cluster says (crds/cluster_policy.h)
  std::vector<std::string> gpu_models;  // allowed, by GPUModel name; empty: any in the cluster
  std::int64_t min_trainers = 1;
  std::int64_t max_trainers = 512;
  Objective objective = Objective::kFewestGPUs;
  std::string min_throughput{};  // samples a second, or a share of the requested trainers', "90%"; empty: any
  double headroom = 0.05;        // share of the card kept free, from "5%"
  Placement placement = Placement::kHBM;
  bool allow_emulation = false;  // cards that compute the precision in software, too
  // Fewer data-parallel replicas than requested, which changes the global batch. Of models without sharded tables.
  bool resize_data_parallel = false;
  OnUnfit on_unfit = OnUnfit::kAdmit;
  std::optional<Bytes> host_memory{};  // of each trainer, for tables that are seldom looked up
};

struct Trainers {
  std::int64_t replicas = 1;  // GPUs of the job: one trainer a GPU
  std::int64_t per_node = 8;
  std::string gpu_model;        // GPUModel name; empty: not chosen
  bool replicas_given = false;  // replicas was given; otherwise it is provisioning.minTrainers
};

// An exception to the restart policy. Both lists given: both must match.
struct FailureRule {
  FailureAction action = FailureAction::kFailJob;
  std::vector<FailureCause> on_causes;
  std::vector<std::int64_t> on_exit_codes;
};

struct FailurePolicy {
  std::int64_t max_restarts = 3;  // preemptions do not count
  // What is added after memory ran out and nothing says how much was missing: the larger of the two.
  double oom_bump_up_ratio = 1.2;
  std::optional<Bytes> oom_min_bump_up;  // absent: kOomMinBumpUp
  std::int64_t oom_max_growth = 4;       // times the trainers of the attempt that ran out, at most
  std::vector<FailureRule> rules;        // the first that matches decides
};

// The default of the vertical pod autoscaler's --oom-min-bump-up-bytes (100 MiB), as is the ratio's 1.2.
inline constexpr Bytes kOomMinBumpUp = 100_MiB;

// spec.managedBy of a job that Plimsoll runs, when it is given.
inline constexpr const char* kTrainingJobController = "plimsoll.dev/training-job-controller";

struct TrainingJobSpec {
  bool suspend = false;
  std::string managed_by;  // empty: by Plimsoll
  ModelSpec model;
  TrainingSpec training;
  ProvisioningSpec provisioning;
  Trainers trainers;
  std::int64_t active_deadline_seconds = 0;  // after the first attempt began; 0: none
  std::optional<std::int64_t> ttl_seconds_after_finished;
  FailurePolicy failure_policy;
};

struct TrainingJob {
  std::string name;
  std::string namespace_name;
  TrainingJobSpec spec;
  Json raw;  // the object without spec.model, unknown fields included
};

// One thing wrong with one field: {"spec.training.batchSizePerTrainer", "must be at least 1, is -4"}.
struct FieldError {
  std::string field;
  std::string message;
};

// The most that are reported of one object, such as one with ten thousand wrong tables.
inline constexpr std::size_t kMaxFieldErrors = 256;

// "spec.a: message; spec.b: message", at most `most` of them and then how many more.
std::string to_string(const std::vector<FieldError>& errors, std::size_t most = 5);

// Errors: kInvalid naming the fields, for a wrong apiVersion or kind, a required field that is missing, a
// known field of the wrong type, an unknown enum value, a number that the type cannot hold, or a list of a
// wrong length. `validate` checks how fields fit together.
Result<TrainingJob> decode_training_job(const JsonView& object);

// What the schema and its CEL rules say, and what they cannot (total sizes, names that collide, ratios):
// every field that is wrong, in the order of training_job_fields.h. Empty: the job is well-formed. To be
// called again once tablesFrom is resolved into the tables.
std::vector<FieldError> validate(const TrainingJob& job);

// spec.failurePolicy alone, with the defaults for what is missing or wrong.
FailurePolicy decode_failure_policy(const JsonView& object);

// The index of the template's container that trains: the one called "trainer", else the first; -1 without
// any.
int trainer_container(const Json& containers);

// Whether another controller runs the job, so that Plimsoll neither runs nor sizes it.
bool is_managed_elsewhere(const TrainingJob& job);

// What may not change once the job exists: spec.model, spec.managedBy, and spec.training while the job is not
// suspended.
std::vector<FieldError> validate_update(const TrainingJob& before, const TrainingJob& now);

}  // namespace plimsoll::crds
