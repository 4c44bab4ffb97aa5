#include "estimator/sharder/fewest_trainers.h"

#include <algorithm>
#include <vector>

#include "estimator/sharder/bound.h"
#include "estimator/sharder/options.h"
#include "estimator/sharder/request.h"
#include "estimator/sharder/shard.h"

namespace plimsoll::estimator::inline sharder {
namespace {

// The result for the first number of trainers from `least` to `most` for which `attempt` has one. Skips numbers
// that the tables' state rules out, except the largest: its error is the result when no number fits.
template <class T>
Result<T> first_that_fits(const ShardRequest& request, std::int64_t least, std::int64_t most,
                          const std::function<Result<Bytes>(std::int64_t)>& budget_of,
                          const std::function<Result<T>(const ShardRequest&)>& attempt) {
  if (Result<void> checked = check_tables(request); !checked) {
    return checked.error();
  }
  const std::int64_t per_node = request.topology.per_node;
  if (Result<void> checked = check_trainers({.trainers = 1, .per_node = per_node}); !checked) {
    return checked.error();
  }
  if (!request.budgets.empty()) {
    return invalid("the number of trainers cannot be searched for: there is a budget for each trainer");
  }
  std::vector<std::int64_t> counts;
  for (std::int64_t count = round_up_to_nodes(std::max<std::int64_t>(least, 1), per_node);
       count <= std::min(most, kMaxTrainers); count = round_up_to_nodes(count + 1, per_node)) {
    counts.push_back(count);
  }
  if (counts.empty()) {
    return invalid("no number of trainers from " + std::to_string(least) + " to " + std::to_string(most) +
                   " is at most one node of " + std::to_string(per_node) + " or a multiple of it");
  }
  const StateBound state(request);
  charge(request.work_budget, request.tables.size());
  const BudgetBytes copy(request.work_budget, memory_of(request.tables));
  ShardRequest at = request;
  for (const std::int64_t count : counts) {
    charge(request.work_budget, 1);
    if (budget_of) {
      const Result<Bytes> budget = budget_of(count);
      if (!budget) {
        return budget.error();
      }
      at.budget = *budget;
    }
    if (count != counts.back() && state.rules_out(count, at.budget)) {
      continue;
    }
    at.topology.trainers = count;
    Result<T> found = attempt(at);
    if (found || found.error().code != ErrorCode::kUnfittable || count == counts.back()) {
      return found;
    }
  }
  return Error();  // not reached: the largest number returns
}

}  // namespace

Infeasibility rule_out(const ShardRequest& request) {
  return rule_out(request, Options(request));
}

Result<std::int64_t> fewest_trainers_bound(const ShardRequest& request, std::int64_t most) {
  return first_that_fits<std::int64_t>(
      request, 1, most, {}, [](const ShardRequest& at) -> Result<std::int64_t> {
        const Infeasibility found = rule_out(at);
        return found.constraint.empty() ? Result(at.topology.trainers) : unfittable(found, nullptr);
      });
}

Result<FewestTrainersPlan> shard_on_fewest_trainers(
    const ShardRequest& request, std::int64_t least, std::int64_t most,
    const std::function<Result<Bytes>(std::int64_t)>& budget_of, Infeasibility* why) {
  std::int64_t searched = 0;
  return first_that_fits<FewestTrainersPlan>(
      request, least, most, budget_of, [&](const ShardRequest& at) -> Result<FewestTrainersPlan> {
        ++searched;
        Result<Plan> plan = shard(at, why);
        if (!plan) {
          return plan.error();
        }
        return FewestTrainersPlan{
            .trainers = at.topology.trainers, .plan = *std::move(plan), .searched = searched};
      });
}

}  // namespace plimsoll::estimator::sharder
