// TrainerCountSearch: the fewest trainers of one candidate whose memory holds a job. The reserved memory of an
// estimate (a model without its embeddings) leaves a budget for embeddings, and the sharder finds the smallest
// number of trainers whose plan is within it. Both depend on the number of trainers, so each number has its own
// estimate: a job that fits on 32 trainers need not fit on 40, whose allocator may waste more. So every number is
// tried, in ascending order, but for those that a lower bound excludes.
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
#include <tuple>
#include <vector>

#include "crds/global_batch.h"
#include "estimator/estimate/estimate.h"
#include "estimator/provisioner/candidates.h"
#include "estimator/provisioner/original_request.h"
#include "estimator/provisioner/provisioner.h"
#include "estimator/sharder/bound.h"
#include "estimator/sharder/sharder.h"
#include "estimator/speed/throughput.h"

namespace plimsoll::estimator::inline provisioner {

// A number of trainers of a candidate that holds the job.
struct Fit {
  const Candidate* candidate = nullptr;
  std::int64_t trainers = 0;
  crds::BatchSplit batch;
  Estimate estimate;                       // of the fullest trainer, embeddings included
  Plan plan;                               // empty when the model has no embedding tables
  std::optional<Throughput> throughput{};  // nothing: it is not known
  bool fewer_too_slow = false;             // the next smaller number is below provisioning.minThroughput
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

  // Whether the last run() found nothing because the most trainers are below provisioning.minThroughput.
  bool was_too_slow() const { return !too_slow_.empty(); }

  // The same with expandable_segments:True, for models without tables. Nothing if the job has it already.
  std::optional<std::int64_t> run_with_expandable_segments(const Candidate& candidate, std::int64_t most);

  // What exceeds a GPU of the candidate on the requested number of trainers, or the next that it can have, without embedding tables; empty: nothing does, or it is not known.
  std::string excess(const Candidate& candidate);

  // Of the requested trainers, on the GPU model that the job names, or else on `otherwise`. Nothing: none were
  // requested, or it is not known.
  std::optional<Throughput> requested_throughput(const AvailableGpu& otherwise);

  // Of the runtime settings in the job's template.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  // What a trainer takes at least, without embeddings.
  struct LeastMemory {
    MemoryFloor tensors;
    Bytes outside;  // of the tensors: on the first of the numbers
    Bytes at(std::int64_t holders, Budget* budget) const { return tensors.at(holders, budget) + outside; }
  };

  Bytes shortfall_of(const FailedSize& failed);
  Result<void> bound_with_tables(Candidate& candidate);
  Result<void> bound_with_tables_and_shards(Candidate& candidate);
  void rule_out_tables(Candidate& candidate, Bytes left);
  Result<void> bound_without_tables(Candidate& candidate);
  // A number of trainers of a candidate, and what each takes of the batch.
  struct Size {
    const Candidate* candidate = nullptr;
    std::int64_t trainers = 0;
    crds::BatchSplit batch;
  };

  std::vector<Size> sizes(const Candidate& candidate, std::int64_t trainers) const;
  EstimateRequest request_for(const Size& size, Bytes embeddings);
  Result<Estimate> estimate(const Size& size, Bytes embeddings);
  std::vector<std::int64_t> counts(const Candidate& candidate, std::int64_t least, std::int64_t most) const;
  Result<bool> holds(const Size& size);
  Result<LeastMemory> least_memory(const Candidate& candidate, const std::vector<std::int64_t>& counts);
  Result<std::optional<Size>> fewest(const Candidate& candidate, std::int64_t most);
  Result<Throughput> throughput(const Size& size, double lookup_milliseconds);
  Result<void> fast_enough(const Size& size, const Plan& plan);
  Result<bool> suffices(const Size& size);
  Result<double> lookup_milliseconds(const Size& size);
  std::optional<Fit> run_without_tables(const Candidate& candidate, std::int64_t most, std::string& why_not);
  std::optional<Fit> run_with_tables(const Candidate& candidate, std::int64_t most, std::string& why_not);
  Result<Bytes> budget(const Size& size);
  Result<Bytes> exact_budget(const Size& size);
  Bytes usable(const Candidate& candidate) const;
  Bytes startup(const Candidate& candidate) const;

  const ProvisionRequest& request_;
  const crds::TrainingJobSpec& spec_;
  BudgetBytes tables_memory_;
  std::vector<std::string> warnings_;
  RuntimeSettings runtime_;
  ShardRequest sharding_;            // the tables stay; topology and budget change from search to search
  std::optional<StateBound> state_;  // of the tables
  Estimator estimator_;
  crds::TrainingSpec training_;  // with the batch of the last request
  std::map<std::tuple<std::string, std::int64_t, std::int64_t>, Bytes> budgets_;
  Bytes shortfall_;  // what estimates lack, as attempts that ran out of memory have shown
  const OriginalRequest original_;
  const std::optional<MinThroughput> min_throughput_;
  std::string too_slow_;  // why the last number of trainers that was tried is too slow; empty: it is not
  bool fewer_too_slow_ = false;  // the number before the last that was tried
  std::map<std::string, std::optional<Throughput>> requested_throughputs_;  // by GPU model
};

}  // namespace plimsoll::estimator::provisioner
