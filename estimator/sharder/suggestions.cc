#include "estimator/sharder/suggestions.h"

#include <algorithm>
#include <cmath>

#include "estimator/sharder/fewest_trainers.h"
#include "estimator/sharder/options.h"
#include "estimator/sharder/shard.h"

namespace plimsoll::estimator::inline sharder {
namespace {

constexpr double kBudgetStep = 1.02;  // a suggested budget is at most this much larger than needed
constexpr int kMaxSteps = 400;        // 1.02^400: from 1 GiB to more than any GPU has
constexpr int kCoarse = 16;           // steps of the first, coarse search

// The smallest budget for which a plan is found, to within a step; starts at the lower bounds on memory.
std::optional<Bytes> enough_budget(ShardRequest request) {
  const Infeasibility bound = rule_out(request);
  double budget = std::max(static_cast<double>(request.budget.count), 1.0) * kBudgetStep;
  if (bound.constraint == "TotalMemory") {
    budget = static_cast<double>(request.budget.count) +
             static_cast<double>(bound.missing.count) / static_cast<double>(request.topology.trainers);
  } else if (bound.constraint == "LargestPiece") {
    budget = static_cast<double>((request.budget + bound.missing).count);
  } else if (bound.constraint == "Pinned") {
    return std::nullopt;
  }
  const auto fits = [&](int steps) {
    request.budget = Bytes::ceil(budget * std::pow(kBudgetStep, steps));
    return shard(request).ok();
  };
  int enough = 0;
  while (!fits(enough)) {
    enough += kCoarse;
    if (enough > kMaxSteps) {
      return std::nullopt;
    }
  }
  int least = std::max(0, enough - kCoarse);
  while (least < enough) {
    const int middle = (least + enough) / 2;
    if (fits(middle)) {
      enough = middle;
    } else {
      least = middle + 1;
    }
  }
  return fits(enough) ? std::optional(request.budget) : std::nullopt;
}

}  // namespace

Suggestion find_suggestion(const ShardRequest& request, std::int64_t most_trainers) {
  Suggestion suggestion;
  if (!request.budgets.empty()) {
    return suggestion;  // one figure cannot say how unequal trainers should change
  }
  if (request.budget.count > 0 && request.topology.trainers < most_trainers) {
    const Result<FewestTrainersPlan> found =
        shard_on_fewest_trainers(request, request.topology.trainers + 1, most_trainers);
    if (found) {
      suggestion.trainers = found->trainers;
    }
  }
  suggestion.budget = enough_budget(request);
  return suggestion;
}

std::string to_string(const Suggestion& suggestion, std::int64_t trainers) {
  std::string text;
  if (suggestion.trainers) {
    text = std::to_string(*suggestion.trainers) + " trainers fit";
  }
  if (suggestion.budget) {
    text += (text.empty() ? "" : ", or ") + std::to_string(trainers) + " with " +
            to_string(*suggestion.budget) + " each" + (suggestion.trainers ? "" : " fit");
  }
  return text.empty() ? "no number of trainers and no budget that was tried fits" : text;
}

}  // namespace plimsoll::estimator::sharder
