#include "estimator/sharder/fewest_trainers.h"

#include <algorithm>
#include <vector>

#include "estimator/sharder/bound.h"
#include "estimator/sharder/options.h"
#include "estimator/sharder/request.h"
#include "estimator/sharder/shard.h"

namespace plimsoll::estimator::inline sharder {
namespace {

// Every count within one node, whole nodes above.
std::vector<std::int64_t> counts_between(std::int64_t least, std::int64_t most, std::int64_t per_node) {
  std::vector<std::int64_t> counts;
  for (std::int64_t count = std::max<std::int64_t>(least, 1); count <= std::min(most, per_node); ++count) {
    counts.push_back(count);
  }
  const std::int64_t first = std::max(least, per_node + 1);
  for (std::int64_t count = (first + per_node - 1) / per_node * per_node; count <= most; count += per_node) {
    counts.push_back(count);
  }
  return counts;
}

Result<std::vector<std::int64_t>> counts_of(const ShardRequest& request, std::int64_t least,
                                            std::int64_t most) {
  if (Result<void> checked = check_tables(request); !checked) {
    return checked.error();
  }
  const std::int64_t per_node = request.topology.per_node;
  if (Result<void> checked = check_trainers({.trainers = 1, .per_node = per_node}); !checked) {
    return checked.error();
  }
  if (!request.budgets.empty()) {
    return invalid("the number of trainers is given by the budgets of each; it cannot be searched for");
  }
  std::vector<std::int64_t> counts = counts_between(least, std::min(most, kMaxTrainers), per_node);
  if (counts.empty()) {
    return invalid("no number of trainers from " + std::to_string(least) + " to " + std::to_string(most) +
                   " is at most one node of " + std::to_string(per_node) + " or a multiple of it");
  }
  return counts;
}

}  // namespace

Infeasibility rule_out(const ShardRequest& request) {
  return rule_out(request, Options(request));
}

Result<std::int64_t> fewest_trainers_bound(const ShardRequest& request, std::int64_t most) {
  const Result<std::vector<std::int64_t>> counts = counts_of(request, 1, most);
  if (!counts) {
    return counts.error();
  }
  const StateBound state(request);
  charge(request.work_budget, request.tables.size());
  const BudgetBytes copy(request.work_budget, memory_of(request.tables));
  ShardRequest at = request;
  Infeasibility found;
  for (const std::int64_t count : *counts) {
    if (count != counts->back() && state.rules_out(count, request.budget)) {
      continue;
    }
    at.topology.trainers = count;
    found = rule_out(at);
    if (found.constraint.empty()) {
      return count;
    }
  }
  return unfittable(found, nullptr);
}

Result<FewestTrainersPlan> shard_on_fewest_trainers(
    const ShardRequest& request, std::int64_t least, std::int64_t most,
    const std::function<Result<Bytes>(std::int64_t)>& budget_of, Infeasibility* why) {
  const Result<std::vector<std::int64_t>> counts = counts_of(request, least, most);
  if (!counts) {
    return counts.error();
  }
  const StateBound state(request);
  charge(request.work_budget, request.tables.size());
  const BudgetBytes copy(request.work_budget, memory_of(request.tables));
  ShardRequest at = request;
  FewestTrainersPlan smallest;
  Error last;
  for (const std::int64_t count : *counts) {
    charge(request.work_budget, 1);
    if (budget_of) {
      const Result<Bytes> budget = budget_of(count);
      if (!budget) {
        return budget.error();
      }
      at.budget = *budget;
    }
    // The largest count is always looked at in full: its failure is what the caller is told.
    if (count != counts->back() && state.rules_out(count, at.budget)) {
      continue;
    }
    at.topology.trainers = count;
    Result<Plan> plan = shard(at, why);
    if (plan || plan.error().code != ErrorCode::kUnfittable) {
      if (!plan) {
        return plan.error();
      }
      smallest.trainers = count;
      smallest.plan = *std::move(plan);
      ++smallest.searched;
      return smallest;
    }
    last = plan.error();
    ++smallest.searched;
  }
  return last;
}

}  // namespace plimsoll::estimator::sharder
