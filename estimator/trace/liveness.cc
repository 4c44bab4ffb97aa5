#include "estimator/trace/liveness.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "estimator/trace/module_pattern.h"

namespace plimsoll::estimator::inline trace {
namespace {

using crds::ActivationCheckpointing;

std::vector<std::string_view> parts_of(std::string_view path) {
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    const std::size_t dot = std::min(path.find('.'), path.size());
    parts.push_back(path.substr(0, dot));
    path.remove_prefix(std::min(dot + 1, path.size()));
  }
  return parts;
}

// The block that contains a module, as a prefix of the module's path; empty: none.
std::string_view named_block(std::string_view path,
                             const std::vector<std::vector<std::string_view>>& patterns,
                             std::vector<bool>& matched) {
  const std::vector<std::string_view> parts = parts_of(path);
  for (std::size_t p = 0; p < patterns.size(); ++p) {
    const std::vector<std::string_view>& pattern = patterns[p];
    const bool matches =
        parts.size() >= pattern.size() &&
        std::equal(pattern.begin(), pattern.end(), parts.begin(),
                   [](std::string_view want, std::string_view is) { return want == "*" || want == is; });
    if (matches) {
      matched[p] = true;
      std::size_t length = pattern.size() - 1;
      for (std::size_t i = 0; i < pattern.size(); ++i) {
        length += parts[i].size();
      }
      return path.substr(0, length);
    }
  }
  return {};
}

// Operators whose results selective checkpointing keeps: matrix products and convolutions, as in PyTorch's
// selective policies (torch.utils.checkpoint; torchtitan's list of operators).
bool is_expensive(std::string_view name) {
  constexpr std::string_view kNames[] = {
      "aten::mm",
      "aten::addmm",
      "aten::bmm",
      "aten::baddbmm",
      "aten::matmul",
      "aten::linear",
      "aten::convolution",
      "aten::_scaled_dot_product_flash_attention",
      "aten::_scaled_dot_product_efficient_attention",
      "aten::_scaled_dot_product_cudnn_attention",
      "aten::_scaled_dot_product_flash_attention_for_cpu",
      "aten::_scaled_mm",
  };
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

constexpr TorchVersion kStopsEarly = 201;

std::int32_t later(std::int32_t a, std::int32_t b) {
  return a < 0 || b < 0 ? -1 : std::max(a, b);
}

class Planner {
 public:
  Planner(const Trace& trace, ActivationCheckpointing checkpointing, bool stops_early, bool compiled,
          Budget* budget)
      : trace_(trace),
        checkpointing_(checkpointing),
        stops_early_(stops_early),
        compiled_(compiled),
        budget_(budget) {
    charge(budget_, trace.storages.size() + trace.operators.size());
    python_.reserve(trace.storages.size());
    for (const TraceStorage& storage : trace.storages) {
      python_.push_back(storage.released_at);
    }
    plan_.death = python_;
    std::vector<std::int32_t> births;
    births.reserve(trace.storages.size());
    for (const TraceStorage& storage : trace.storages) {
      births.push_back(storage.allocated_at);
    }
    plan_.births = TimeTable(births, trace.operators.size());
  }

  // `blocks`: the block of each module, -1 for none.
  TracePlan plan(const std::vector<std::int32_t>& blocks) {
    find_passes(blocks);
    find_kept();
    for (const TraceSaved& saved : trace_.saved) {
      charge(budget_, 1);
      const std::int32_t storage = storage_of(saved.tensor);
      if (storage < 0) {
        continue;
      }
      Recomputation* pass = pass_that_saves(saved);
      if (pass == nullptr) {
        extend(plan_.death[index(storage)], saved.released_at);
      } else {
        extend_pass(*pass, saved);
        recompute(*pass, saved, storage);
      }
    }
    for (Recomputation& pass : plan_.recomputations) {
      finish(pass);
    }
    std::sort(plan_.recomputations.begin(), plan_.recomputations.end(),
              [](const Recomputation& a, const Recomputation& b) { return a.at < b.at; });
    plan_.deaths = TimeTable(plan_.death, trace_.operators.size() + 1);
    return std::move(plan_);
  }

  TracePlan plan_forward_only() {
    plan_.deaths = TimeTable(plan_.death, trace_.operators.size() + 1);
    return std::move(plan_);
  }

 private:
  std::int32_t storage_of(std::int32_t tensor) const { return trace_.tensors[index(tensor)].storage; }
  static void extend(std::int32_t& death, std::int32_t until) { death = later(death, until); }

  bool is_operand(Span span, std::int32_t tensor) const {
    charge(budget_, index(span.size) / kScannedPerUnit);
    const auto begin = trace_.operands.begin() + span.begin;
    return std::find(begin, begin + span.size, tensor) != begin + span.size;
  }

  // Consecutive operators of a forward in the same block form one pass.
  void find_passes(const std::vector<std::int32_t>& blocks) {
    pass_of_.assign(trace_.operators.size(), -1);
    if (trace_.passes.empty()) {
      find_passes(blocks, 0, trace_.forward_end);
    }
    for (const Span& forward : trace_.passes) {
      find_passes(blocks, forward.begin, forward.begin + forward.size);
    }
    until_.assign(plan_.recomputations.size(), 0);
    stop_.assign(plan_.recomputations.size(), 0);
  }

  void find_passes(const std::vector<std::int32_t>& blocks, std::int32_t begin, std::int32_t end) {
    std::int32_t last = -1;
    for (std::int32_t i = begin; i < end; ++i) {
      const std::int32_t module = trace_.operators[index(i)].module;
      const std::int32_t block = module < 0 || blocks.empty() ? -1 : blocks[index(module)];
      if (block >= 0 && block != last) {
        plan_.recomputations.push_back(
            {.begin = i, .end = i, .at = -1, .storages = {}, .releases = {}, .skipped = {}});
      }
      if (block >= 0) {
        plan_.recomputations.back().end = i + 1;
        pass_of_[index(i)] = static_cast<std::int32_t>(plan_.recomputations.size()) - 1;
      }
      last = block;
    }
  }

  // True if the tensor is the result of one operator and the input of the next, saved between the two, and it
  // was the next one's module that saved it, because backward uses the tensor in that module.
  bool saved_by_next(const TraceSaved& saved) const {
    const auto end = static_cast<std::int32_t>(trace_.operators.size());
    if (saved.packed_at < 1 || saved.packed_at >= end || saved.unpacked_at < 0 || saved.unpacked_at >= end) {
      return false;
    }
    const TraceOperator& next = trace_.operators[index(saved.packed_at)];
    return is_operand(next.inputs, saved.tensor) &&
           trace_.operators[index(saved.packed_at - 1)].module != next.module &&
           trace_.operators[index(saved.unpacked_at)].module == next.module;
  }

  // Records how far the second pass must run. Inputs are saved before their operator runs.
  void extend_pass(Recomputation& pass, const TraceSaved& saved) {
    const std::size_t id = static_cast<std::size_t>(&pass - plan_.recomputations.data());
    if (saved.unpacked_at >= 0) {
      stop_[id] = std::max(stop_[id], saved.packed_at);
    }
  }

  Recomputation* pass_that_saves(const TraceSaved& saved) {
    // Inputs are saved just before their operator, outputs just after it.
    std::int32_t by = saved.packed_at - 1;
    const bool after = by >= 0 && is_operand(trace_.operators[index(by)].outputs, saved.tensor);
    if (!after || saved_by_next(saved)) {
      by = saved.packed_at;
    }
    if (by < 0 || index(by) >= pass_of_.size() || pass_of_[index(by)] < 0) {
      return nullptr;
    }
    return &plan_.recomputations[index(pass_of_[index(by)])];
  }

  bool kept(std::int32_t op) const { return !kept_.empty() && kept_[index(op)]; }

  // kSelectiveHalf recomputes every second matrix product of a pass (torchtitan, parallelize_llama.py:
  // _get_custom_policy).
  void find_kept() {
    const bool half = checkpointing_ == ActivationCheckpointing::kSelectiveHalf;
    if (!half && checkpointing_ != ActivationCheckpointing::kSelective) {
      return;
    }
    kept_.assign(trace_.operators.size(), false);
    std::vector<bool> second(plan_.recomputations.size(), false);
    for (std::size_t i = 0; i < trace_.operators.size(); ++i) {
      const std::string_view name = trace_.operator_names[index(trace_.operators[i].name)];
      // A spec follows torchtitan's policy, which recomputes batched products; an exported graph's policy may
      // keep them.
      kept_[i] = is_expensive(name) && (trace_.module_groups.empty() || name != "aten::bmm");
      if (half && pass_of_[i] >= 0 && (name == "aten::mm" || name == "aten::addmm")) {
        const auto pass = index(pass_of_[i]);
        kept_[i] = !second[pass];
        second[pass] = !second[pass];
      }
    }
  }

  void recompute(Recomputation& pass, const TraceSaved& saved, std::int32_t storage) {
    const std::size_t id = static_cast<std::size_t>(&pass - plan_.recomputations.data());
    if (saved.unpacked_at >= 0 && (pass.at < 0 || saved.unpacked_at < pass.at)) {
      pass.at = saved.unpacked_at;
    }
    until_[id] = later(until_[id], saved.released_at);
    const std::int32_t allocated_at = trace_.storages[index(storage)].allocated_at;
    if (allocated_at < pass.begin || allocated_at >= pass.end) {
      extend(plan_.death[index(storage)], saved.released_at);
      return;
    }
    auto found = std::find_if(pass.storages.rbegin(), pass.storages.rend(),
                              [&](const Recomputation::Storage& each) { return each.storage == storage; });
    charge(budget_, static_cast<std::size_t>(found - pass.storages.rbegin()) / kScannedPerUnit);
    if (found == pass.storages.rend()) {
      pass.storages.push_back({.storage = storage, .released_after = -1, .released_at = saved.released_at});
    } else {
      extend(found->released_at, saved.released_at);
    }
  }

  void finish(Recomputation& pass) {
    if (pass.at < 0) {
      return;  // backward needs nothing of it
    }
    const std::size_t id = static_cast<std::size_t>(&pass - plan_.recomputations.data());
    const std::int32_t whole_end = pass.end;
    if (stops_early_) {
      pass.end = std::clamp(stop_[id], pass.begin, pass.end);
    }
    std::map<std::int32_t, std::int32_t> saved;
    for (const Recomputation::Storage& each : pass.storages) {
      saved.emplace(each.storage, each.released_at);
    }
    pass.storages.clear();
    charge(budget_, index(whole_end - pass.begin));
    for (std::int32_t op = pass.begin; op < pass.end; ++op) {
      pass.skipped.push_back(kept(op));
      for (const std::int32_t storage : plan_.births.at(index(op))) {
        if (kept(op)) {
          plan_.death[index(storage)] = -1;  // kept for the second pass, which frees it
        }
        const std::int32_t released = python_[index(storage)];
        const auto wanted = saved.find(storage);
        const bool within = released >= 0 && released <= pass.end;
        pass.storages.push_back({.storage = storage,
                                 .released_after = wanted == saved.end() && within ? released - 1 : -1,
                                 .released_at = wanted == saved.end() ? -1 : wanted->second});
      }
    }
    for (std::int32_t op = pass.end; op < whole_end && !compiled_; ++op) {
      for (const std::int32_t storage : plan_.births.at(index(op))) {
        if (kept(op)) {  // kept until the time when the second pass would have freed it
          const auto wanted = saved.find(storage);
          extend(plan_.death[index(storage)], wanted == saved.end() ? pass.at : wanted->second);
        }
      }
    }
    std::vector<std::int32_t> releases;
    for (const Recomputation::Storage& each : pass.storages) {
      releases.push_back(each.released_after < 0 ? -1 : each.released_after - pass.begin);
    }
    pass.releases = TimeTable(releases, index(pass.end - pass.begin));
    // Inputs of the pass from outside are kept until it has run again.
    for (std::int32_t op = pass.begin; op < whole_end; ++op) {
      const Span inputs = trace_.operators[index(op)].inputs;
      charge(budget_, index(inputs.size));
      for (std::int32_t at = inputs.begin; at < inputs.begin + inputs.size; ++at) {
        const std::int32_t tensor = trace_.operands[index(at)];
        const std::int32_t storage = tensor < 0 ? -1 : storage_of(tensor);
        if (storage >= 0 && trace_.storages[index(storage)].allocated_at < pass.begin) {
          extend(plan_.death[index(storage)], until_[id]);
        }
      }
    }
  }

  // Number of scanned elements that cost one unit of work.
  static constexpr std::size_t kScannedPerUnit = 64;

  const Trace& trace_;
  const ActivationCheckpointing checkpointing_;
  const bool stops_early_;
  const bool compiled_;
  Budget* const budget_;
  TracePlan plan_;
  std::vector<std::int32_t> python_;   // by storage: when Python frees it
  std::vector<std::int32_t> pass_of_;  // by operator
  std::vector<bool> kept_;             // by operator: true if not recomputed; empty: all are recomputed
  std::vector<std::int32_t> until_;    // by pass: when the last tensor that it saved is freed
  std::vector<std::int32_t> stop_;     // by pass: when everything that backward needs has been saved
};

}  // namespace

TimeTable::TimeTable(const std::vector<std::int32_t>& times, std::size_t end) : starts_(end + 2, 0) {
  for (const std::int32_t time : times) {
    if (time >= 0) {
      ++starts_[index(time) + 1];
    }
  }
  for (std::size_t i = 1; i < starts_.size(); ++i) {
    starts_[i] += starts_[i - 1];
  }
  items_.resize(index(starts_.back()));
  std::vector<std::int32_t> next(starts_.begin(), starts_.end() - 1);
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (times[i] >= 0) {
      items_[index(next[index(times[i])]++)] = static_cast<std::int32_t>(i);
    }
  }
}

Result<TracePlan> plan_trace(const Trace& trace, TorchVersion version, ActivationCheckpointing checkpointing,
                             const std::vector<std::string>& checkpoint_modules, Budget* budget,
                             bool compiled) {
  std::vector<std::int32_t> blocks;
  if (checkpointing != ActivationCheckpointing::kNone && !trace.module_groups.empty()) {
    for (const ModuleGroup& group : trace.module_groups) {
      blocks.push_back(group.block);
    }
  } else if (checkpointing != ActivationCheckpointing::kNone) {
    std::vector<std::vector<std::string_view>> patterns;
    for (const std::string& module : checkpoint_modules) {
      patterns.push_back(parts_of(module));
      if (patterns.back().empty()) {
        return invalid("a module to checkpoint has no name");
      }
    }
    std::vector<bool> matched(patterns.size(), false);
    std::map<std::string_view, std::int32_t> ids;
    for (const std::string& module : trace.modules) {
      charge(budget, module.size() + patterns.size());
      // For kFull and kSelective, blocks are the members of lists: the outermost module whose name is a
      // number, as in nn.ModuleList and nn.Sequential ("encoder.layers.3"; "3" if the model itself is the list).
      const std::string_view block = checkpointing == ActivationCheckpointing::kPerModule
                                         ? named_block(module, patterns, matched)
                                         : numbered_prefix(module);
      blocks.push_back(
          block.empty() ? -1 : ids.emplace(block, static_cast<std::int32_t>(ids.size())).first->second);
    }
    for (std::size_t p = 0; checkpointing == ActivationCheckpointing::kPerModule && p < patterns.size();
         ++p) {
      if (!matched[p]) {
        return invalid("no module of the graph matches \"" + checkpoint_modules[p].substr(0, 80) + "\"");
      }
    }
  }
  return Planner(trace, checkpointing, version >= kStopsEarly, compiled, budget).plan(blocks);
}

TracePlan plan_forward_only(const Trace& trace, Budget* budget) {
  return Planner(trace, ActivationCheckpointing::kNone, true, false, budget).plan_forward_only();
}

}  // namespace plimsoll::estimator::trace
