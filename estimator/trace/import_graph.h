// Reads an exported graph (format plimsoll-graph/1, docs/graph.md) into traces.
//
//   Result<TraceFile> graph = import_traces(content);          // JSON, gzipped or not
//   if (!graph) return graph.error();                          // "traces[0].operators[17]: ..."
//   Result<const Trace*> trace = choose_trace(*graph, Device::kCpu, "FP32");
//
// The file is untrusted: every index, time and size is checked before it is used, and the memory that the
// file takes is limited. Pure; any thread.
#pragma once

#include <string_view>

#include "base/budget.h"
#include "base/bytes.h"
#include "base/result.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline trace {

struct ImportLimits {
  Bytes text = 512_MiB;      // of uncompressed JSON; a graph of 10,000 operators has 2 MiB
  Budget* budget = nullptr;  // null: no limit
};

// Errors: kInvalid naming the place in the file, kTooLarge. Throws the budget's BudgetExceeded.
Result<TraceFile> import_traces(std::string_view content, const ImportLimits& limits = {});

// The trace of a device and precision. Errors: kUnsupported, with the command that exports one.
Result<const Trace*> choose_trace(const TraceFile& graph, Device device, std::string_view precision);

}  // namespace plimsoll::estimator::trace
