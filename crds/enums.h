// The enums of the API, each with its spellings in the order of the enumerators.
//
//   name_of(Precision::kTF32);                                    // "TF32"
//   const Result<Precision> precision = parse_enum<Precision>(text);
//
// Pure; any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace plimsoll::crds {

// The array of the spellings of each enum of the API.
template <class E>
inline constexpr std::nullptr_t kNames = nullptr;

template <class E>
concept NamedEnum = requires {
  kNames<E>.size();
};

enum class DataType { kFP32, kFP16, kBF16, kFP8, kInt8 };
template <>
inline constexpr auto kNames<DataType> = std::to_array({"FP32", "FP16", "BF16", "FP8", "Int8"});

constexpr std::int64_t width_bytes(DataType type) {
  constexpr std::array kWidths = {4, 2, 2, 1, 1};
  return kWidths[static_cast<std::size_t>(type)];
}

enum class Interaction { kDot, kCat, kDCN, kDCNv1, kDHEN };
template <>
inline constexpr auto kNames<Interaction> = std::to_array({"Dot", "Cat", "DCN", "DCNv1", "DHEN"});

// What a layer of DHEN (arXiv 2203.11014) is an ensemble of.
enum class DhenModule { kDot, kDCN, kLinear, kAttention };
template <>
inline constexpr auto kNames<DhenModule> = std::to_array({"Dot", "DCN", "Linear", "Attention"});

enum class TransformerArchitecture { kDecoder, kEncoder, kEncoderDecoder };
template <>
inline constexpr auto kNames<TransformerArchitecture> = std::to_array({"Decoder", "Encoder",
                                                                       "EncoderDecoder"});

enum class Normalization { kRMSNorm, kLayerNorm };
template <>
inline constexpr auto kNames<Normalization> = std::to_array({"RMSNorm", "LayerNorm"});

enum class FeedForward { kSwiGLU, kGEGLU, kGELU, kReLU };
template <>
inline constexpr auto kNames<FeedForward> = std::to_array({"SwiGLU", "GEGLU", "GELU", "ReLU"});

enum class PositionEncoding { kRotary, kLearned, kNone };
template <>
inline constexpr auto kNames<PositionEncoding> = std::to_array({"Rotary", "Learned", "None"});

enum class AttentionKind { kSDPA, kEager, kFlash };
template <>
inline constexpr auto kNames<AttentionKind> = std::to_array({"SDPA", "Eager", "Flash"});

enum class Precision { kFP32, kTF32, kBF16Mixed, kFP16Mixed, kBF16 };
template <>
inline constexpr auto kNames<Precision> = std::to_array({"FP32", "TF32", "BF16Mixed", "FP16Mixed", "BF16"});

enum class Optimizer {
  kSGD,
  kMomentum,
  kAdam,
  kAdamW,
  kAdagrad,
  kRowWiseAdagrad,
  kRMSprop,
  kLAMB,
  kAdafactor,
  kAdam8bit,
  kAdamW8bit,
  kPagedAdamW,
  kPagedAdamW8bit,
  kLion,
  kLion8bit,
  kPagedLion8bit,
  kMuon,
  kNAdam,
  kRAdam,
  kAdadelta,
  kAdamax
};
template <>
inline constexpr auto kNames<Optimizer> = std::to_array(
    {"SGD",      "Momentum",      "Adam",     "AdamW",     "Adagrad",    "RowWiseAdagrad", "RMSprop",
     "LAMB",     "Adafactor",     "Adam8bit", "AdamW8bit", "PagedAdamW", "PagedAdamW8bit", "Lion",
     "Lion8bit", "PagedLion8bit", "Muon",     "NAdam",     "RAdam",      "Adadelta",       "Adamax"});

// torchrec and FBGEMM have no version of these for sharded embedding tables.
inline constexpr std::initializer_list<Optimizer> kNotForTables = {
    Optimizer::kAdafactor,      Optimizer::kAdam8bit, Optimizer::kAdamW8bit, Optimizer::kPagedAdamW,
    Optimizer::kPagedAdamW8bit, Optimizer::kLion,     Optimizer::kLion8bit,  Optimizer::kPagedLion8bit,
    Optimizer::kMuon,           Optimizer::kNAdam,    Optimizer::kRAdam,     Optimizer::kAdadelta,
    Optimizer::kAdamax};
constexpr bool is_for_tables(Optimizer optimizer) {
  return std::find(kNotForTables.begin(), kNotForTables.end(), optimizer) == kNotForTables.end();
}

// kForEach and kFused are torch.optim's arguments of that name; kDefault is what torch.optim chooses.
enum class OptimizerImplementation { kDefault, kSingleTensor, kForEach, kFused };
template <>
inline constexpr auto kNames<OptimizerImplementation> = std::to_array({"Default", "SingleTensor", "ForEach",
                                                                       "Fused"});

// What torch.compile compiles: each layer by itself, or the whole model with its loss.
enum class Compilation { kNone, kLayers, kModel };
template <>
inline constexpr auto kNames<Compilation> = std::to_array({"None", "Layers", "Model"});

// What a checkpoint between iterations gathers: torch.distributed.checkpoint.state_dict's StateDictOptions
// full_state_dict, without and with cpu_offload; or each rank's own shards, as torch.distributed.checkpoint.save and
// async_save write them.
enum class CheckpointSaving { kNone, kFull, kFullOffloaded, kSharded, kShardedAsync };
template <>
inline constexpr auto kNames<CheckpointSaving> = std::to_array({"None", "Full", "FullOffloaded", "Sharded",
                                                                "ShardedAsync"});

// What each trainer reads of a checkpoint into its host's memory before it trains: nothing (weights are made on the card, or come by
// shards); all of it, and the first trainer alone sends it to the others; or all of it on each, as from_pretrained() does in a script that every rank
// runs.
enum class CheckpointLoading { kAuto, kNone, kFirstRank, kEveryRank };
template <>
inline constexpr auto kNames<CheckpointLoading> = std::to_array({"Auto", "None", "FirstRank", "EveryRank"});

// Where a model is made that trainers shard afterwards: on the meta device, so that only shards are ever allocated; in the host's
// memory; or whole on each GPU.
enum class Initialisation { kAuto, kMeta, kCPU, kGPU };
template <>
inline constexpr auto kNames<Initialisation> = std::to_array({"Auto", "Meta", "CPU", "GPU"});

// torch.nn.utils.clip_grad_norm_, which needs the gradients of all layers at once, or clip_grad_value_.
enum class GradientClipping { kNone, kNorm, kValue };
template <>
inline constexpr auto kNames<GradientClipping> = std::to_array({"None", "Norm", "Value"});

// torchao's float8 training; with kLinearAllGather, FSDP2 also gathers the weights in 8 bits.
enum class Float8 { kNone, kLinear, kLinearAllGather };
template <>
inline constexpr auto kNames<Float8> = std::to_array({"None", "Linear", "LinearAllGather"});

// Which parameters are trained: all; or peft's adapters beside frozen ones, LoRA (arXiv 2106.09685) or DoRA (arXiv
// 2402.09353).
enum class FineTuningMethod { kFull, kLoRA, kDoRA };
template <>
inline constexpr auto kNames<FineTuningMethod> = std::to_array({"Full", "LoRA", "DoRA"});

// bitsandbytes' types of frozen weights: 4 bits (arXiv 2305.14314), or 8 bits (arXiv 2208.07339).
enum class Quantization { kNone, kNF4, kFP4, kInt8 };
template <>
inline constexpr auto kNames<Quantization> = std::to_array({"None", "NF4", "FP4", "Int8"});

// The biases that peft trains beside its adapters: none, all, or those of the modules that have an adapter.
enum class TrainedBiases { kNone, kAll, kLoRAOnly };
template <>
inline constexpr auto kNames<TrainedBiases> = std::to_array({"None", "All", "LoRAOnly"});

enum class ActivationCheckpointing { kNone, kSelective, kSelectiveHalf, kFull, kPerModule };
template <>
inline constexpr auto kNames<ActivationCheckpointing> = std::to_array({"None", "Selective", "SelectiveHalf",
                                                                       "Full", "PerModule"});

// What is kept in the host's memory: the optimizer's state and fp32 copy (DeepSpeed's offload_optimizer), or the
// parameters' shards too (FSDP's CPU offload, DeepSpeed's offload_param).
enum class Offload { kNone, kOptimizer, kParameters };
template <>
inline constexpr auto kNames<Offload> = std::to_array({"None", "Optimizer", "Parameters"});

// In which precision FSDP averages gradients: kHalf is the computation's, in mixed precision.
enum class ReduceDtype { kAuto, kFP32, kHalf };
template <>
inline constexpr auto kNames<ReduceDtype> = std::to_array({"Auto", "FP32", "Half"});

// kMegatron: Megatron-LM's DistributedDataParallel with --use-distributed-optimizer.
enum class ParallelStrategy { kAuto, kDDP, kFSDP, kFSDP2, kZeRO1, kZeRO2, kZeRO3, kMegatron };
template <>
inline constexpr auto kNames<ParallelStrategy> = std::to_array({"Auto", "DDP", "FSDP", "FSDP2", "ZeRO1",
                                                                "ZeRO2", "ZeRO3", "Megatron"});

enum class ProvisioningMode { kOff, kInitial, kAuto };
template <>
inline constexpr auto kNames<ProvisioningMode> = std::to_array({"Off", "Initial", "Auto"});

// The last two by GPU-hours a sample, and by how many of the GPUs are free now.
enum class Objective { kFewestGPUs, kLowestCost, kLowestCostPerSample, kSoonestStart };
template <>
inline constexpr auto kNames<Objective> = std::to_array({"FewestGPUs", "LowestCost", "LowestCostPerSample",
                                                         "SoonestStart"});

// What happens to a job that fits no allowed GPU.
enum class OnUnfit { kAdmit, kDeny };
template <>
inline constexpr auto kNames<OnUnfit> = std::to_array({"Admit", "Deny"});

// Whether GPUs of a node copy to each other without the host (cudaDeviceCanAccessPeer). kAuto: as the catalogue knows.
enum class PeerToPeer { kAuto, kSupported, kUnsupported };
template <>
inline constexpr auto kNames<PeerToPeer> = std::to_array({"Auto", "Supported", "Unsupported"});

enum class Placement { kHBM, kHBMOrSwap };
template <>
inline constexpr auto kNames<Placement> = std::to_array({"HBM", "HBMOrSwap"});

enum class FailureAction { kFailJob, kRestartJob, kRestartJobAndIgnoreMaxRestarts };
template <>
inline constexpr auto kNames<FailureAction> = std::to_array({"FailJob", "RestartJob",
                                                             "RestartJobAndIgnoreMaxRestarts"});

enum class FailureCause {
  kCudaOutOfMemory,
  kHostOutOfMemory,
  kPreempted,
  kInfrastructureFailure,
  kShardingFailure,
  kUserError,
  kUnknown
};
template <>
inline constexpr auto kNames<FailureCause> = std::to_array({"CUDAOutOfMemory", "HostOutOfMemory", "Preempted",
                                                            "InfrastructureFailure", "ShardingFailure",
                                                            "UserError", "Unknown"});

template <NamedEnum E>
constexpr const char* name_of(E value) {
  return kNames<E>[static_cast<std::size_t>(value)];
}

template <NamedEnum E>
constexpr std::optional<E> enum_of(std::string_view name) {
  for (std::size_t i = 0; i < kNames<E>.size(); ++i) {
    if (name == kNames<E>[i]) {
      return static_cast<E>(i);
    }
  }
  return std::nullopt;
}

// "FP32, TF32 or BF16"
template <NamedEnum E>
std::string enum_choices() {
  std::string text = kNames<E>[0];
  for (std::size_t i = 1; i < kNames<E>.size(); ++i) {
    text += (i + 1 < kNames<E>.size() ? ", " : " or ") + std::string(kNames<E>[i]);
  }
  return text;
}

// Errors: kInvalid with the names that are known.
template <NamedEnum E>
Result<E> parse_enum(const std::string& name) {
  const std::optional<E> value = enum_of<E>(name);
  return value ? Result<E>(*value) : invalid("unknown name; choose " + enum_choices<E>(), name.substr(0, 64));
}

}  // namespace plimsoll::crds
