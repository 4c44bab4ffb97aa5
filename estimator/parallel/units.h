// The FSDP units of a trace: which parameters they contain, and when an iteration enters and leaves them.
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
  std::int32_t time = 0;  // before the operator with this index
  Kind kind = Kind::kEnterForward;
  std::int32_t unit = kRootUnit;
  std::int32_t next = kRootUnit;  // for kEnterBackward
};

struct TraceUnits {
  std::vector<std::int32_t> of_parameter;  // indexed as Trace::parameters
  std::vector<UnitEvent> events;           // ordered by time
};

// A unit is the outermost numbered module with submodules ("layers.3", of nn.ModuleList and nn.Sequential).
// If the model has none, each child of the model is a unit. Everything else belongs to the root unit.
//
// `root_returns_loss`: the root's forward returns the loss, as that of transformers' models does, so that its backward begins
// before the loss's. Otherwise the loop computes the loss of what the root returns, and only the units have events of backward.
TraceUnits units_of(const Trace& trace, bool root_returns_loss = false);

// By module: the numbered module that contains it, as a prefix of its path; empty: none. If some numbered
// modules have submodules, only those count.
std::vector<std::string_view> numbered_blocks(const Trace& trace);

}  // namespace plimsoll::estimator::parallel
