#include "estimator/trace/lookups.h"

#include <algorithm>

namespace plimsoll::estimator::inline trace {
namespace {

constexpr const char* kForward = "plimsoll::lookup";
constexpr const char* kBackward = "plimsoll::lookup_backward";

// A whole number among an operator's attributes; 0 when it has none of this name.
std::int64_t attribute(const Trace& trace, const TraceOperator& op, const char* name) {
  if (op.attributes < 0) {
    return 0;
  }
  const Attributes& attributes = trace.attributes[index(op.attributes)];
  const auto found = std::find_if(attributes.begin(), attributes.end(),
                                  [&](const Attribute& each) { return each.name == name; });
  const Count* const value = found == attributes.end() ? nullptr : std::get_if<Count>(&found->value);
  return value == nullptr ? 0 : value->at(0);
}

// The operator before makes what this one takes, and is a copy.
bool takes_a_copy(const Trace& trace, std::size_t op) {
  if (op == 0 || trace.operator_names[index(trace.operators[op - 1].name)] != "aten::clone") {
    return false;
  }
  const Span made = trace.operators[op - 1].outputs;
  const Span taken = trace.operators[op].inputs;
  return made.size == 1 && taken.size > 0 &&
         trace.operands[index(made.begin)] == trace.operands[index(taken.begin)];
}

}  // namespace

std::optional<Lookup> lookup_of(const Trace& trace, const TraceOperator& op) {
  const std::string& name = trace.operator_names[index(op.name)];
  const bool backward = name == kBackward;
  if (!backward && name != kForward) {
    return std::nullopt;
  }
  return Lookup{.backward = backward,
                .pooled = attribute(trace, op, "pooled") != 0,
                .columns = attribute(trace, op, "columns"),
                .has_indices = op.inputs.size > 1};  // the first input only tells the device
}

std::map<std::int32_t, Lookup> lookups_of(const Trace& trace, Budget* budget) {
  std::map<std::int32_t, Lookup> lookups;
  const std::vector<std::string>& names = trace.operator_names;
  if (std::none_of(names.begin(), names.end(),
                   [](const std::string& name) { return name == kForward || name == kBackward; })) {
    return lookups;  // as in all specs
  }
  charge(budget, trace.operators.size());
  for (std::size_t op = 0; op < trace.operators.size(); ++op) {
    if (const std::optional<Lookup> lookup = lookup_of(trace, trace.operators[op])) {
      Lookup& added = lookups.emplace(static_cast<std::int32_t>(op), *lookup).first->second;
      added.gradient_is_copy = lookup->backward && takes_a_copy(trace, op);
    }
  }
  return lookups;
}

void LookupLevels::note(const Lookup& lookup, Bytes live) {
  Bytes& level = lookup.pooled ? (lookup.backward ? pooled_backward : pooled_forward)
                               : (lookup.backward ? sequences_backward : sequences_forward);
  if (lookup.pooled && lookup.backward && live >= level) {
    pooled_gradient_is_copy = lookup.gradient_is_copy;
  }
  level = std::max(level, live);
}

}  // namespace plimsoll::estimator::trace
