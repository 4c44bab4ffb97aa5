#include "estimator/execute/trace_run.h"

#include <algorithm>

namespace plimsoll::estimator::inline execute {
namespace {

const char* kind_name(StorageRole role) {
  constexpr const char* kKinds[] = {"parameter", "buffer",     "input",    "output",
                                    "loss",      "activation", "gradient", "activation gradient"};
  return kKinds[static_cast<std::size_t>(role)];
}

const char* replicated_kind(Part part) {
  const bool gathered = part == Part::kInputs || part == Part::kActivations || part == Part::kTemporaries;
  return gathered ? "gathered or scattered" : estimator::kind_of(part);
}

}  // namespace

std::string TraceRun::name_of(BlockId block) const {
  const Origin& origin = origins_[index(block)];
  const Trace& trace = *traces_[index(origin.chunk)];
  const auto operator_name = [&](std::int32_t op) {
    const TraceOperator& called = trace.operators[index(op)];
    const std::string& module = called.module < 0 ? std::string() : trace.modules[index(called.module)];
    return (module.empty() ? "" : module + ": ") + trace.operator_names[index(called.name)];
  };
  if (origin.source == Source::kKernel) {
    return operator_name(origin.id);
  }
  if (origin.source == Source::kState || origin.source == Source::kStep ||
      origin.source == Source::kParameter) {
    return trace.parameters[index(origin.id)].name;
  }
  const TraceStorage& storage = trace.storages[index(origin.id)];
  for (const TraceParameter& parameter : trace.parameters) {
    const std::vector<std::int32_t>& gradient = parameter.gradient;
    if (parameter.storage == origin.id ||
        std::find(gradient.begin(), gradient.end(), origin.id) != gradient.end()) {
      return parameter.name;
    }
  }
  for (const TraceBuffer& buffer : trace.buffers) {
    if (buffer.storage == origin.id) {
      return buffer.name;
    }
  }
  return storage.allocated_at < 0 ? "input" : operator_name(storage.allocated_at);
}

const char* TraceRun::kind_of(BlockId block) const {
  const Origin& origin = origins_[index(block)];
  switch (origin.source) {
    case Source::kStorage: return kind_name(traces_[index(origin.chunk)]->storages[index(origin.id)].role);
    case Source::kRecomputed: return "recomputed activation";
    case Source::kKernel: return "kernel temporary";
    case Source::kState: return "optimizer state";
    case Source::kStep: return "optimizer temporary";
    case Source::kParameter: return replicated_kind(ledger.blocks()[index(block)].part);
  }
  return "";
}

}  // namespace plimsoll::estimator::execute
