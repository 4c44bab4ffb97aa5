// TrainerCountSearch: the fewest trainers of one candidate whose memory holds a job. The reserved memory of an
// estimate (a model without its embeddings) leaves a budget for embeddings, and the sharder finds the smallest
// number of trainers whose plan is within it. Both depend on the number of trainers, so each number has its own
// estimate.
//
//   TrainerCountSearch search(request);
//   search.learn_from(request.failed);
//   if (const Result<void> bounded = search.bound(candidate); !bounded) return bounded.error();
//   const std::optional<Fit> fit = search.run(candidate, most, why_not);
//
// Refers to the request, which must outlive it. Not thread-safe. Throws BudgetExceeded (base/budget.h).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "estimator/estimate/estimate.h"
#include "estimator/provisioner/candidates.h"
#include "estimator/provisioner/provisioner.h"
#include "estimator/sharder/bound.h"
#include "estimator/sharder/sharder.h"

namespace plimsoll::estimator::inline provisioner {

// A number of trainers of a candidate that holds the job.
struct Fit {
  const Candidate* candidate = nullptr;
  std::int64_t trainers = 0;
  Estimate estimate;  // of the fullest trainer, embeddings included
  Plan plan;          // empty when the model has no embedding tables
};

class TrainerCountSearch {
 public:
  explicit TrainerCountSearch(const ProvisionRequest& request);

  // Adds what the estimates of these sizes lacked to all later estimates.
  void learn_from(const std::vector<FailedSize>& failed);

  // Sets the candidate's bound, or why it is impossible, without searching for a plan. Errors: the estimator's,
  // which hold for every candidate.
  Result<void> bound(Candidate& candidate);

  // The smallest number from the candidate's bound to `most` that fits. Nothing: `why_not` says why.
  std::optional<Fit> run(const Candidate& candidate, std::int64_t most, std::string& why_not);

  // Of the runtime settings in the job's template.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  Bytes shortfall_of(const FailedSize& failed);
  Result<void> bound_with_tables(Candidate& candidate);
  Result<void> bound_without_tables(Candidate& candidate);
  Result<Estimate> estimate(const Candidate& candidate, std::int64_t trainers, Bytes embeddings);
  Result<Bytes> budget(const Candidate& candidate, std::int64_t trainers);
  Result<Bytes> exact_budget(const Candidate& candidate, std::int64_t trainers);
  Bytes usable(const Candidate& candidate) const;

  const ProvisionRequest& request_;
  const crds::TrainingJobSpec& spec_;
  BudgetBytes tables_memory_;
  std::vector<std::string> warnings_;
  RuntimeSettings runtime_;
  ShardRequest sharding_;            // the tables stay; topology and budget change from search to search
  std::optional<StateBound> state_;  // of the tables
  Estimator estimator_;
  std::map<std::pair<std::string, std::int64_t>, Bytes> budgets_;
  Bytes shortfall_;  // what estimates lack, as attempts that ran out of memory have shown
};

}  // namespace plimsoll::estimator::provisioner
