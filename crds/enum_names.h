// The spellings of the API's enums, in the order of the enumerators. Inside crds/ only: others use name_of.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "crds/training_job.h"

namespace plimsoll::crds {

template <class E>
struct EnumNames;  // `kAll`: the names, that of enumerator 0 first

template <>
struct EnumNames<DataType> {
  static constexpr std::array kAll = {"FP32", "FP16", "BF16", "FP8", "Int8"};
};
template <>
struct EnumNames<Interaction> {
  static constexpr std::array kAll = {"Dot", "Cat", "DCN", "DCNv1", "DHEN"};
};
template <>
struct EnumNames<DhenModule> {
  static constexpr std::array kAll = {"Dot", "DCN", "Linear", "Attention"};
};
template <>
struct EnumNames<Precision> {
  static constexpr std::array kAll = {"FP32", "TF32", "BF16Mixed", "FP16Mixed", "BF16"};
};
template <>
struct EnumNames<Optimizer> {
  static constexpr std::array kAll = {"SGD",       "Momentum",       "Adam",    "AdamW",
                                      "Adagrad",   "RowWiseAdagrad", "RMSprop", "LAMB",
                                      "Adafactor", "Adam8bit"};
};
template <>
struct EnumNames<OptimizerImplementation> {
  static constexpr std::array kAll = {"Default", "SingleTensor", "ForEach", "Fused"};
};
template <>
struct EnumNames<ActivationCheckpointing> {
  static constexpr std::array kAll = {"None", "Selective", "SelectiveHalf", "Full", "PerModule"};
};
template <>
struct EnumNames<ParallelStrategy> {
  static constexpr std::array kAll = {"Auto", "DDP", "FSDP", "FSDP2", "ZeRO1", "ZeRO2", "ZeRO3"};
};
template <>
struct EnumNames<TransformerArchitecture> {
  static constexpr std::array kAll = {"Decoder", "Encoder", "EncoderDecoder"};
};
template <>
struct EnumNames<Normalization> {
  static constexpr std::array kAll = {"RMSNorm", "LayerNorm"};
};
template <>
struct EnumNames<FeedForward> {
  static constexpr std::array kAll = {"SwiGLU", "GEGLU", "GELU", "ReLU"};
};
template <>
struct EnumNames<PositionEncoding> {
  static constexpr std::array kAll = {"Rotary", "Learned", "None"};
};
template <>
struct EnumNames<AttentionKind> {
  static constexpr std::array kAll = {"SDPA", "Eager", "Flash"};
};
template <>
struct EnumNames<ProvisioningMode> {
  static constexpr std::array kAll = {"Off", "Initial", "Auto"};
};
template <>
struct EnumNames<Objective> {
  static constexpr std::array kAll = {"FewestGPUs", "LowestCost"};
};
template <>
struct EnumNames<Placement> {
  static constexpr std::array kAll = {"HBM", "HBMOrSwap"};
};
template <>
struct EnumNames<FailureAction> {
  static constexpr std::array kAll = {"FailJob", "RestartJob", "RestartJobAndIgnoreMaxRestarts"};
};
template <>
struct EnumNames<FailureCause> {
  static constexpr std::array kAll = {
      "CUDAOutOfMemory", "HostOutOfMemory", "Preempted", "InfrastructureFailure",
      "ShardingFailure", "UserError",       "Unknown"};
};

template <class E>
constexpr const char* enum_name(E value) {
  return EnumNames<E>::kAll[static_cast<std::size_t>(value)];
}

template <class E>
constexpr std::optional<E> enum_of(std::string_view name) {
  for (std::size_t i = 0; i < EnumNames<E>::kAll.size(); ++i) {
    if (name == EnumNames<E>::kAll[i]) {
      return static_cast<E>(i);
    }
  }
  return std::nullopt;
}

// "FP32, TF32 or BF16"
template <class E>
std::string enum_choices() {
  const auto& names = EnumNames<E>::kAll;
  std::string text = names[0];
  for (std::size_t i = 1; i < names.size(); ++i) {
    text += (i + 1 < names.size() ? ", " : " or ") + std::string(names[i]);
  }
  return text;
}

}  // namespace plimsoll::crds
