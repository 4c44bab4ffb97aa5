#include "estimator/layer_costs/graph_parts.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/number.h"
#include "estimator/trace/module_pattern.h"

namespace plimsoll::estimator::inline layer_costs {
namespace {

constexpr std::int32_t kNone = -1;
constexpr const char* kNeedsList =
    ": a swap plan needs an nn.Sequential, or a model with one list of blocks, each of which takes what the one before returns";

Error unsupported(const std::string& what) {
  return Error(ErrorCode::kUnsupported, what + kNeedsList);
}

std::optional<std::int64_t> number_of(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return parse_number<std::int64_t>(std::string(dot == std::string_view::npos ? path : path.substr(dot + 1)));
}

std::string_view list_of(std::string_view block) {
  const std::size_t dot = block.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : block.substr(0, dot);
}

// By module: its block, a member of a list; empty: none.
std::vector<std::string_view> blocks_of(const Trace& trace) {
  std::vector<std::string_view> blocks;
  for (const std::string& module : trace.modules) {
    blocks.push_back(numbered_prefix(module));
  }
  return blocks;
}

// The children of an nn.Sequential, by number; empty if the model is none.
std::vector<std::string> children(const Trace& trace) {
  std::map<std::int64_t, std::string> numbered;
  for (const std::string& module : trace.modules) {
    if (module.empty() || module.find('.') != std::string::npos) {
      continue;
    }
    const std::optional<std::int64_t> number = number_of(module);
    if (!number) {
      return {};
    }
    numbered.emplace(*number, module);
  }
  std::vector<std::string> names;
  names.reserve(numbered.size());
  for (const auto& [number, name] : numbered) {
    names.push_back(name);
  }
  return names;
}

// The one list whose members run; with its members in the order in which they do.
Result<std::vector<std::string>> repeated_blocks(const Trace& trace,
                                                 const std::vector<std::string_view>& block_of) {
  std::map<std::string_view, std::vector<std::string_view>> lists;
  for (std::int32_t op = 0; op < trace.forward_end; ++op) {
    const std::int32_t module = trace.operators[index(op)].module;
    const std::string_view block = module < 0 ? std::string_view() : block_of[index(module)];
    if (block.empty()) {
      continue;
    }
    std::vector<std::string_view>& members = lists[list_of(block)];
    if (members.empty() || members.back() != block) {
      members.push_back(block);
    }
  }
  std::erase_if(lists, [](const auto& list) { return list.second.size() < 2; });
  if (lists.empty()) {
    return unsupported("the graph has no repeated blocks");
  }
  if (lists.size() > 1) {
    return unsupported("the graph has several lists of blocks, such as " + std::string(lists.begin()->first) +
                       " and " + std::string(lists.rbegin()->first));
  }
  const std::vector<std::string_view>& members = lists.begin()->second;
  std::vector<std::string_view> different = members;
  std::sort(different.begin(), different.end());
  if (std::adjacent_find(different.begin(), different.end()) != different.end()) {
    return unsupported("the blocks of " + std::string(lists.begin()->first) +
                       " do not run one after the other");
  }
  return std::vector<std::string>(members.begin(), members.end());
}

// Backward runs the layers in reverse order. An operator of a module that several layers use, or none, belongs to the layer before it.
void share_out_backward(const Trace& trace, GraphParts& parts) {
  std::map<std::int32_t, std::int32_t> layer_of_module;  // kNone: several
  for (std::int32_t op = 0; op < trace.forward_end; ++op) {
    const auto [known, added] =
        layer_of_module.emplace(trace.operators[index(op)].module, parts.of_operator[index(op)]);
    known->second =
        added || known->second == parts.of_operator[index(op)] ? parts.of_operator[index(op)] : kNone;
  }
  auto current = static_cast<std::int32_t>(parts.names.size()) - 1;
  for (std::size_t op = index(trace.loss_end); op < trace.operators.size(); ++op) {
    const auto known = layer_of_module.find(trace.operators[op].module);
    const std::int32_t layer =
        known == layer_of_module.end() || known->second == kNone ? current : known->second;
    parts.of_operator[op] = std::min(layer, current);
    current = parts.of_operator[op];
  }
}

// The layers' numbers rise in forward; `number_of` is kNone for an operator of no layer's own.
template <class NumberOf>
Result<void> share_out_forward(const Trace& trace, GraphParts& parts, std::int32_t first,
                               NumberOf number_of) {
  std::int32_t current = first;
  for (std::int32_t op = 0; op < trace.forward_end; ++op) {
    const std::int32_t own = number_of(op);
    if (own != kNone && own < current) {
      return unsupported("the operators of " + parts.names[index(own)] + " run after those of " +
                         parts.names[index(current)]);
    }
    current = own == kNone ? current : own;
    parts.of_operator[index(op)] = current;
  }
  const auto last = static_cast<std::int32_t>(parts.names.size()) - 1;
  std::fill(parts.of_operator.begin() + trace.forward_end, parts.of_operator.begin() + trace.loss_end, last);
  return {};
}

Result<void> sequential_parts(const Trace& trace, GraphParts& parts) {
  std::map<std::string_view, std::int32_t> numbers;
  for (std::size_t i = 0; i < parts.names.size(); ++i) {
    numbers.emplace(parts.names[i], static_cast<std::int32_t>(i));
  }
  return share_out_forward(trace, parts, 0, [&](std::int32_t op) {
    const std::int32_t module = trace.operators[index(op)].module;
    const std::string_view path =
        module < 0 ? std::string_view() : std::string_view(trace.modules[index(module)]);
    const auto found = numbers.find(path.substr(0, path.find('.')));
    return found == numbers.end() ? kNone : found->second;
  });
}

Result<void> block_parts(const Trace& trace, const std::vector<std::string_view>& block_of,
                         GraphParts& parts) {
  const auto blocks = static_cast<std::int32_t>(parts.names.size()) - 2;
  std::map<std::string_view, std::int32_t> numbers;
  for (std::int32_t i = 1; i <= blocks; ++i) {
    numbers.emplace(parts.names[index(i)], i);
  }
  std::int32_t last_of_blocks = kNone;
  const auto number = [&](std::int32_t op) {
    const std::int32_t module = trace.operators[index(op)].module;
    const auto found = module < 0 ? numbers.end() : numbers.find(block_of[index(module)]);
    return found == numbers.end() ? kNone : found->second;
  };
  for (std::int32_t op = 0; op < trace.forward_end; ++op) {
    last_of_blocks = number(op) == blocks ? op : last_of_blocks;
  }
  return share_out_forward(trace, parts, 0,
                           [&](std::int32_t op) { return op > last_of_blocks ? blocks + 1 : number(op); });
}

}  // namespace

Result<GraphParts> graph_parts(const Trace& trace, Budget* budget) {
  charge(budget, 4 * trace.operators.size() + 4 * trace.modules.size());
  const std::vector<std::string_view> block_of = blocks_of(trace);
  GraphParts parts;
  parts.of_operator.assign(trace.operators.size(), 0);
  parts.names = children(trace);
  Result<void> shared;
  if (!parts.names.empty()) {
    shared = sequential_parts(trace, parts);
  } else {
    Result<std::vector<std::string>> blocks = repeated_blocks(trace, block_of);
    if (!blocks) {
      return blocks.error();
    }
    parts.names = *std::move(blocks);
    parts.names.insert(parts.names.begin(), "what comes before " + parts.names.front());
    parts.names.push_back("what comes after " + parts.names.back());
    shared = block_parts(trace, block_of, parts);
  }
  if (!shared) {
    return shared.error();
  }
  share_out_backward(trace, parts);
  return parts;
}

}  // namespace plimsoll::estimator::layer_costs
