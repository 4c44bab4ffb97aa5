#include "crds/enum_names.h"

namespace plimsoll::crds {
namespace {

template <class E>
Result<E> parse_enum(const char* what, const std::string& name) {
  if (const std::optional<E> value = enum_of<E>(name)) {
    return *value;
  }
  return invalid(std::string("unknown ") + what + "; choose " + enum_choices<E>(), name.substr(0, 64));
}

}  // namespace

std::int64_t width_bytes(DataType type) {
  switch (type) {
    case DataType::kFP32: return 4;
    case DataType::kFP16:
    case DataType::kBF16: return 2;
    case DataType::kFP8:
    case DataType::kInt8: return 1;
  }
  return 4;
}

const char* name_of(DataType value) {
  return enum_name(value);
}
const char* name_of(Interaction value) {
  return enum_name(value);
}
const char* name_of(DhenModule value) {
  return enum_name(value);
}
const char* name_of(Precision value) {
  return enum_name(value);
}
const char* name_of(Optimizer value) {
  return enum_name(value);
}
const char* name_of(OptimizerImplementation value) {
  return enum_name(value);
}
const char* name_of(ActivationCheckpointing value) {
  return enum_name(value);
}
const char* name_of(ParallelStrategy value) {
  return enum_name(value);
}
const char* name_of(ProvisioningMode value) {
  return enum_name(value);
}
const char* name_of(Objective value) {
  return enum_name(value);
}
const char* name_of(Placement value) {
  return enum_name(value);
}
const char* name_of(FailureAction value) {
  return enum_name(value);
}
const char* name_of(FailureCause value) {
  return enum_name(value);
}

Result<Optimizer> parse_optimizer(const std::string& name) {
  return parse_enum<Optimizer>("optimizer", name);
}

Result<Precision> parse_precision(const std::string& name) {
  return parse_enum<Precision>("precision", name);
}

Result<OptimizerImplementation> parse_optimizer_implementation(const std::string& name) {
  return parse_enum<OptimizerImplementation>("optimizer implementation", name);
}

Result<ActivationCheckpointing> parse_activation_checkpointing(const std::string& name) {
  return parse_enum<ActivationCheckpointing>("activation checkpointing", name);
}

Result<ParallelStrategy> parse_parallel_strategy(const std::string& name) {
  return parse_enum<ParallelStrategy>("parallel strategy", name);
}

Result<AttentionKind> parse_attention_kind(const std::string& name) {
  return parse_enum<AttentionKind>("attention", name);
}

}  // namespace plimsoll::crds
