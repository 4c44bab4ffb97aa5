// Which part of a recorded model FSDP wraps as one: its units, and when an iteration enters and leaves them.
// Pure.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "estimator/parallel/life_cycle.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline parallel {

struct UnitEvent {
  enum class Kind : std::uint8_t {
    kEnterForward,
    kLeaveForward,
    kEndForward,
    kEnterBackward,
    kLeaveBackward
  };
  std::int32_t time = 0;  // before the operator of that index
  Kind kind = Kind::kEnterForward;
  std::int32_t unit = kRootUnit;
  std::int32_t next = kRootUnit;  // of kEnterBackward
};

struct TraceUnits {
  std::vector<std::int32_t> of_parameter;  // by Trace::parameters
  std::vector<UnitEvent> events;           // by time
};

// A unit is a numbered module that holds modules of its own ("layers.3", of nn.ModuleList and nn.Sequential),
// the outermost such one; in a model without, each child of the model. The rest is the root's.
TraceUnits units_of(const Trace& trace);

// By Trace::modules, the numbered module that it lies in, as a prefix of its path; empty: in none. Where some
// hold modules of their own, only those count.
std::vector<std::string_view> numbered_blocks(const Trace& trace);

}  // namespace plimsoll::estimator::parallel
