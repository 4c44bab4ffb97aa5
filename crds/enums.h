// The enums of the API, each with its spellings in the order of the enumerators.
//
//   name_of(Precision::kTF32);                                    // "TF32"
//   const Result<Precision> precision = parse_enum<Precision>(text);
//
// Pure; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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
  kAdam8bit
};
template <>
inline constexpr auto kNames<Optimizer> = std::to_array({"SGD", "Momentum", "Adam", "AdamW", "Adagrad",
                                                         "RowWiseAdagrad", "RMSprop", "LAMB", "Adafactor",
                                                         "Adam8bit"});

// kForEach and kFused are torch.optim's arguments of that name; kDefault is what torch.optim chooses.
enum class OptimizerImplementation { kDefault, kSingleTensor, kForEach, kFused };
template <>
inline constexpr auto kNames<OptimizerImplementation> = std::to_array({"Default", "SingleTensor", "ForEach",
                                                                       "Fused"});

enum class ActivationCheckpointing { kNone, kSelective, kSelectiveHalf, kFull, kPerModule };
template <>
inline constexpr auto kNames<ActivationCheckpointing> = std::to_array({"None", "Selective", "SelectiveHalf",
                                                                       "Full", "PerModule"});

enum class ParallelStrategy { kAuto, kDDP, kFSDP, kFSDP2, kZeRO1, kZeRO2, kZeRO3 };
template <>
inline constexpr auto kNames<ParallelStrategy> = std::to_array({"Auto", "DDP", "FSDP", "FSDP2", "ZeRO1",
                                                                "ZeRO2", "ZeRO3"});

enum class ProvisioningMode { kOff, kInitial, kAuto };
template <>
inline constexpr auto kNames<ProvisioningMode> = std::to_array({"Off", "Initial", "Auto"});

enum class Objective { kFewestGPUs, kLowestCost };
template <>
inline constexpr auto kNames<Objective> = std::to_array({"FewestGPUs", "LowestCost"});

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
