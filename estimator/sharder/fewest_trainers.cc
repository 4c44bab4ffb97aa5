#include "estimator/sharder/fewest_trainers.h"

#include <algorithm>
#include <vector>

#include "estimator/sharder/bound.h"
#include "estimator/sharder/options.h"
#include "estimator/sharder/request.h"
#include "estimator/sharder/shard.h"

namespace plimsoll::estimator::inline sharder {
namespace {

// Multiples of per_node above one node, any number below.
std::vector<std::int64_t> counts_of(std::int64_t least, std::int64_t most, std::int64_t per_node) {
  std::vector<std::int64_t> counts;
  for (std::int64_t count = round_up_to_nodes(std::max<std::int64_t>(least, 1), per_node);
       count <= std::min(most, kMaxTrainers); count = round_up_to_nodes(count + 1, per_node)) {
    counts.push_back(count);
  }
  return counts;
}

// The result for the first number of trainers from `least` to `most` for which `attempt` has one. Skips numbers
// that the tables' state rules out, except the largest: its error is the result when no number fits.
template <class T>
Result<T> first_that_fits(const ShardRequest& request, std::int64_t least, std::int64_t most,
                          const Variants& variants,
                          const std::function<Result<T>(const ShardRequest&, std::size_t variant)>& attempt) {
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
  const std::vector<std::int64_t> counts = counts_of(least, most, per_node);
  if (counts.empty()) {
    return invalid("no number of trainers from " + std::to_string(least) + " to " + std::to_string(most) +
                   " is at most one node of " + std::to_string(per_node) + " or a multiple of it");
  }
  const StateBound state(request);
  charge(request.work_budget, request.tables.size());
  const BudgetBytes copy(request.work_budget, memory_of(request.tables));
  ShardRequest at = request;
  Result<T> last = invalid("the batch cannot be divided among any number of trainers from " +
                           std::to_string(counts.front()) + " to " + std::to_string(counts.back()));
  struct {
    std::int64_t trainers = 0;
    std::size_t variant = 0;
  } skipped;  // since the last attempt
  for (const std::int64_t count : counts) {
    at.topology.trainers = count;
    for (std::size_t variant = 0;; ++variant) {
      charge(request.work_budget, 1);
      const Result<bool> is_one = variants ? variants(at, variant) : Result<bool>(variant == 0);
      if (!is_one) {
        return is_one.error();
      }
      if (!*is_one) {
        break;
      }
      if (count != counts.back() && state.rules_out(count, at.budget)) {
        skipped = {.trainers = count, .variant = variant};
        continue;
      }
      skipped = {};
      last = attempt(at, variant);
      if (last || last.error().code != ErrorCode::kUnfittable) {
        return last;
      }
    }
  }
  if (skipped.trainers > 0) {  // the largest that could divide the batch says what is missing
    at.topology.trainers = skipped.trainers;
    const Result<bool> again = variants(at, skipped.variant);
    return again ? attempt(at, skipped.variant) : again.error();
  }
  return last;
}

}  // namespace

Infeasibility rule_out(const ShardRequest& request) {
  return rule_out(request, Options(request));
}

Result<std::int64_t> fewest_trainers_bound(const ShardRequest& request, std::int64_t most) {
  return first_that_fits<std::int64_t>(
      request, 1, most, {}, [](const ShardRequest& at, std::size_t) -> Result<std::int64_t> {
        const Infeasibility found = rule_out(at);
        return found.constraint.empty() ? Result(at.topology.trainers) : unfittable(found, nullptr);
      });
}

Result<FewestTrainersPlan> shard_on_fewest_trainers(const ShardRequest& request, std::int64_t least,
                                                    std::int64_t most, const Variants& variants,
                                                    Infeasibility* why) {
  std::int64_t searched = 0;
  return first_that_fits<FewestTrainersPlan>(
      request, least, most, variants,
      [&](const ShardRequest& at, std::size_t variant) -> Result<FewestTrainersPlan> {
        ++searched;
        Result<Plan> plan = shard(at, why);
        if (!plan) {
          return plan.error();
        }
        return FewestTrainersPlan{.trainers = at.topology.trainers,
                                  .variant = variant,
                                  .plan = *std::move(plan),
                                  .searched = searched};
      });
}

}  // namespace plimsoll::estimator::sharder
