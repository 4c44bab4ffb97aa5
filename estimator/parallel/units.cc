#include "estimator/parallel/units.h"

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "estimator/trace/module_pattern.h"

namespace plimsoll::estimator::inline parallel {
namespace {

class Units {
 public:
  explicit Units(const Trace& trace) {
    for (const TraceParameter& parameter : trace.parameters) {
      const std::string_view prefix = numbered_prefix(parameter.name);
      // "layers.3.linear.weight" belongs to a submodule of layers.3, "layers.3.weight" to layers.3 itself.
      numbered_ |= !prefix.empty() && parameter.name.find('.', prefix.size() + 1) != std::string::npos;
    }
  }

  std::int32_t of(std::string_view path) {
    const std::string_view unit = numbered_ ? numbered_prefix(path) : path.substr(0, path.find('.'));
    if (unit.empty()) {
      return kRootUnit;
    }
    return known_.emplace(std::string(unit), static_cast<std::int32_t>(known_.size())).first->second;
  }
  // A parameter without a module belongs to the root unit.
  std::int32_t of_parameter(const std::string& name) {
    return name.find('.') == std::string::npos ? kRootUnit
                                               : of(std::string_view(name).substr(0, name.rfind('.')));
  }

 private:
  bool numbered_ = false;
  std::map<std::string, std::int32_t> known_;
};

}  // namespace

std::vector<std::string_view> numbered_blocks(const Trace& trace) {
  std::set<std::string_view> of_modules;
  for (const std::string& module : trace.modules) {
    const std::string_view prefix = numbered_prefix(module);
    if (!prefix.empty() && module.size() > prefix.size()) {
      of_modules.insert(prefix);
    }
  }
  std::vector<std::string_view> blocks;
  for (const std::string& module : trace.modules) {
    const std::string_view prefix = numbered_prefix(module);
    blocks.push_back(of_modules.empty() || of_modules.contains(prefix) ? prefix : std::string_view());
  }
  return blocks;
}

TraceUnits units_of(const Trace& trace, bool root_returns_loss) {
  TraceUnits result;
  Units units(trace);
  const bool grouped = !trace.module_groups.empty();
  for (const TraceParameter& parameter : trace.parameters) {
    result.of_parameter.push_back(grouped ? parameter.unit : units.of_parameter(parameter.name));
  }
  std::vector<std::int32_t> of_module;
  for (std::size_t i = 0; i < trace.modules.size(); ++i) {
    of_module.push_back(grouped ? trace.module_groups[i].unit : units.of(trace.modules[i]));
  }
  using Kind = UnitEvent::Kind;
  std::int32_t current = kRootUnit;
  std::int32_t last_op = -1;  // of the current unit
  // A unit is left after its last operator; the root's operators in between belong to no unit.
  const auto walk = [&](std::int32_t begin, std::int32_t end, Kind leave, auto enter) {
    for (std::int32_t op = begin; op < end; ++op) {
      const std::int32_t module = trace.operators[static_cast<std::size_t>(op)].module;
      const std::int32_t unit = module < 0 ? kRootUnit : of_module[static_cast<std::size_t>(module)];
      if (unit != kRootUnit && unit != current) {
        if (current != kRootUnit) {
          result.events.push_back({last_op + 1, leave, current, kRootUnit});
        }
        enter(op, unit);
        current = unit;
      }
      last_op = unit == kRootUnit ? last_op : op;
    }
    if (current != kRootUnit) {
      result.events.push_back({last_op + 1, leave, current, kRootUnit});
    }
    current = kRootUnit;
  };
  result.events.push_back({0, Kind::kEnterForward, kRootUnit, kRootUnit});
  walk(0, trace.forward_end, Kind::kLeaveForward, [&](std::int32_t op, std::int32_t unit) {
    result.events.push_back({op, Kind::kEnterForward, unit, kRootUnit});
  });
  result.events.push_back({trace.forward_end, Kind::kEndForward, kRootUnit, kRootUnit});
  std::size_t last = result.events.size();
  const auto backward = static_cast<std::ptrdiff_t>(last);
  if (root_returns_loss) {
    result.events.push_back({trace.loss_end, Kind::kEnterBackward, kRootUnit, kRootUnit});
  }
  walk(trace.loss_end, static_cast<std::int32_t>(trace.operators.size()), Kind::kLeaveBackward,
       [&](std::int32_t op, std::int32_t unit) {
         for (std::size_t i = last; i < result.events.size(); ++i) {
           if (result.events[i].kind == Kind::kEnterBackward) {
             result.events[i].next = unit;
           }
         }
         last = result.events.size();
         result.events.push_back({op, Kind::kEnterBackward, unit, kRootUnit});
       });
  if (root_returns_loss && result.events.back().kind == Kind::kEnterBackward) {  // there is no unit
    result.events.erase(result.events.begin() + backward);
  }
  return result;
}

}  // namespace plimsoll::estimator::parallel
