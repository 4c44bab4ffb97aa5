// Reads an exported graph (format plimsoll-graph/1, docs/graph.md) into traces.
//
//   Result<TraceFile> graph = import_traces(content);          // JSON, gzipped or not
//   if (!graph) return graph.error();                          // "traces[0].operators[17]: ..."
//   Result<const Trace*> trace = choose_trace(*graph, Device::kCpu, "FP32");
//
// The file may come from anybody: every index, time and size is checked before it is used, and sizes of the
// file are bounded. Pure; any thread.
#pragma once

#include <string_view>

#include "base/budget.h"
#include "base/bytes.h"
#include "base/result.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline trace {

struct ImportLimits {
  Bytes text = 512_MiB;      // of JSON, unpacked: a graph of 10,000 operators has 2 MiB
  Budget* budget = nullptr;  // null: no limit
};

// Errors: kInvalid naming the place, kTooLarge. Throws the budget's BudgetExceeded.
Result<TraceFile> import_traces(std::string_view content, const ImportLimits& limits = {});

// The trace of that device and precision. Errors: kUnsupported, telling how to export one.
Result<const Trace*> choose_trace(const TraceFile& graph, Device device, std::string_view precision);

}  // namespace plimsoll::estimator::trace
