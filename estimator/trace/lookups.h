// The operators of an exported graph that look embeddings up in tables outside of it (docs/graph.md):
// `plimsoll::lookup` makes their results, `plimsoll::lookup_backward` takes the gradient of these.
//
//   if (const std::optional<Lookup> lookup = lookup_of(trace, op)) lookup->columns;
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline trace {

struct Lookup {
  bool backward = false;
  bool pooled = false;       // a row of the result a sample, and not a row a lookup
  std::int64_t columns = 0;  // of all tables and features together
  bool has_indices = false;  // a graph of the dense part alone lacks them
  // Of a backward one: the exporter has made its gradient contiguous, which was a part of another tensor.
  bool gradient_is_copy = false;
};

// Nothing for other operators.
std::optional<Lookup> lookup_of(const Trace& trace, const TraceOperator& op);

// All of a trace, by operator.
std::map<std::int32_t, Lookup> lookups_of(const Trace& trace, Budget* budget = nullptr);

// What is live in the dense part when it looks embeddings up, before their results exist; and when the gradients
// of these are ready. The most, where it does so several times; 0 where it does not.
struct LookupLevels {
  Bytes pooled_forward;
  Bytes pooled_backward;
  Bytes sequences_forward;
  Bytes sequences_backward;
  bool pooled_gradient_is_copy = false;  // at pooled_backward

  // The lookup runs, with so much live.
  void note(const Lookup& lookup, Bytes live);
};

}  // namespace plimsoll::estimator::trace
