#include "estimator/parallel/stages.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "estimator/parallel/units.h"
#include "estimator/trace/module_pattern.h"

namespace plimsoll::estimator::inline parallel {
namespace {

constexpr std::int32_t kNone = -1;
// Bytes of a path that are compared with a pattern per unit of work.
constexpr std::size_t kBytesPerUnit = 64;

// By module: the block that contains it, as a prefix of its path; empty: none.
std::vector<std::string_view> named_blocks(const Trace& trace, ModulePatterns& patterns, std::size_t count,
                                           Budget* budget) {
  std::vector<std::string_view> blocks;
  for (const std::string& module : trace.modules) {
    std::string_view block;
    for (std::size_t end = 0; block.empty() && end < module.size(); ++end) {
      end = std::min(module.find('.', end), module.size());
      charge(budget, count * (1 + end / kBytesPerUnit));
      const std::string_view prefix = std::string_view(module).substr(0, end);
      block = patterns.matches(prefix) ? prefix : std::string_view();
    }
    blocks.push_back(block);
  }
  return blocks;
}

}  // namespace

Result<std::vector<std::int32_t>> parts_of_operators(const Trace& trace, std::int64_t parts,
                                                     const std::vector<std::string>& blocks, Budget* budget) {
  ModulePatterns patterns(blocks);
  const std::vector<std::string_view> block_of =
      blocks.empty() ? numbered_blocks(trace) : named_blocks(trace, patterns, blocks.size(), budget);
  if (patterns.unused() != nullptr) {
    return invalid("no block of the graph matches \"" + patterns.unused()->substr(0, 80) + "\"");
  }
  // Blocks in the order of execution, with the first operator of each.
  std::map<std::string_view, std::size_t> order;
  std::vector<std::int32_t> begins;
  charge(budget, trace.operators.size() + trace.modules.size());
  for (std::int32_t op = 0; op < trace.forward_end; ++op) {
    const std::int32_t module = trace.operators[index(op)].module;
    const std::string_view block = module < 0 ? std::string_view() : block_of[index(module)];
    if (!block.empty() && order.emplace(block, begins.size()).second) {
      begins.push_back(op);
    }
  }
  const auto count = static_cast<std::int64_t>(begins.size());
  if (count < parts) {
    return invalid("a pipeline of " + std::to_string(parts) + " parts needs as many blocks; the graph has " +
                   std::to_string(count) +
                   (blocks.empty() ? "; blocks are members of lists, or name them with --stage-blocks" : ""));
  }
  std::vector<std::int32_t> result(trace.operators.size(), kNone);
  std::map<std::int32_t, std::int32_t> part_of_module;  // kNone: several parts
  for (std::int64_t part = 0; part < parts; ++part) {
    const auto start = [&](std::int64_t at) { return begins[static_cast<std::size_t>(at * count / parts)]; };
    const std::int32_t begin = part == 0 ? 0 : start(part);
    const std::int32_t end = part + 1 == parts ? trace.loss_end : start(part + 1);
    for (std::int32_t op = begin; op < end; ++op) {
      const auto mine = static_cast<std::int32_t>(part);
      result[index(op)] = mine;
      const auto [known, added] = part_of_module.emplace(trace.operators[index(op)].module, mine);
      known->second = added || known->second == mine ? mine : kNone;
    }
  }
  // Backward runs the parts in reverse order. An operator outside of blocks belongs to the part before it.
  auto current = static_cast<std::int32_t>(parts - 1);
  for (std::size_t op = index(trace.loss_end); op < trace.operators.size(); ++op) {
    const auto known = part_of_module.find(trace.operators[op].module);
    const std::int32_t part = known == part_of_module.end() ? kNone : known->second;
    result[op] = part == kNone ? current : part;
    current = std::min(current, result[op]);
  }
  return result;
}

}  // namespace plimsoll::estimator::parallel
