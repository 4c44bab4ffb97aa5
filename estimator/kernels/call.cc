#include "estimator/kernels/call.h"

#include <algorithm>
#include <array>

namespace plimsoll::estimator::inline kernels {

TensorView KernelCall::operand(Span span, std::size_t i) const {
  if (i >= static_cast<std::size_t>(span.size)) {
    return {};
  }
  const std::int32_t tensor = trace_.operands[static_cast<std::size_t>(span.begin) + i];
  return tensor < 0 ? TensorView() : shapes_.tensor(tensor);
}

const AttributeValue* KernelCall::find(std::string_view attribute) const {
  if (op_.attributes < 0) {
    return nullptr;
  }
  for (const Attribute& each : trace_.attributes[static_cast<std::size_t>(op_.attributes)]) {
    if (each.name == attribute) {
      return &each.value;
    }
  }
  return nullptr;
}

std::int64_t KernelCall::integer(std::string_view attribute, std::int64_t otherwise) const {
  return element(attribute, 0, otherwise);
}

std::int64_t KernelCall::element(std::string_view attribute, std::size_t i, std::int64_t otherwise) const {
  const AttributeValue* value = find(attribute);
  if (value == nullptr) {
    return otherwise;
  }
  if (const Count* one = std::get_if<Count>(value)) {
    return one->at(shapes_.batch());
  }
  const auto* list = std::get_if<std::vector<Count>>(value);
  if (list == nullptr || list->empty()) {
    return otherwise;
  }
  return (list->size() == 1 ? list->front() : i < list->size() ? (*list)[i] : Count{}).at(shapes_.batch());
}

std::size_t KernelCall::length(std::string_view attribute) const {
  const AttributeValue* value = find(attribute);
  const auto* list = value == nullptr ? nullptr : std::get_if<std::vector<Count>>(value);
  return list == nullptr ? 0 : list->size();
}

}  // namespace plimsoll::estimator::kernels
