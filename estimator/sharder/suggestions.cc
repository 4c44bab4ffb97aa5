#include "estimator/sharder/suggestions.h"

#include <algorithm>
#include <cmath>

#include "base/words.h"
#include "estimator/sharder/bound.h"
#include "estimator/sharder/fewest_trainers.h"
#include "estimator/sharder/options.h"
#include "estimator/sharder/shard.h"

namespace plimsoll::estimator::inline sharder {
namespace {

constexpr double kBudgetStep = 1.02;  // a suggested budget is at most this much larger than needed
constexpr int kMaxSteps = 400;        // 1.02^400: from 1 GiB to more than any GPU has
constexpr int kCoarse = 16;           // steps of the first, coarse search

// Where the search for a budget begins: no smaller one is worth a try. Nothing if none is.
std::optional<double> first_budget(const ShardRequest& request) {
  const Options options(request);
  if (rule_out(request, options).constraint == "Pinned") {
    return std::nullopt;
  }
  const double given = std::max(static_cast<double>(request.budget.count), 1.0);
  return std::max(given * kBudgetStep, least_budget(request, options));
}

// The smallest budget for which a plan is found, to within a step.
std::optional<Bytes> enough_budget(ShardRequest request) {
  const std::optional<double> first = first_budget(request);
  if (!first) {
    return std::nullopt;
  }
  const auto fits = [&](int steps) {
    request.budget = Bytes::ceil(*first * std::pow(kBudgetStep, steps));
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
    text = counted(*suggestion.trainers, "trainer") + (*suggestion.trainers == 1 ? " fits" : " fit");
  }
  if (suggestion.budget) {
    text += (text.empty() ? "" : ", or ") + std::to_string(trainers) + " with " +
            to_string(*suggestion.budget) + " each" + (suggestion.trainers ? "" : " fit");
  }
  return text.empty() ? "no number of trainers and no budget that was tried fits" : text;
}

}  // namespace plimsoll::estimator::sharder
