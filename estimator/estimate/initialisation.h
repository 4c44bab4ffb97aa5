// InitialMemory: what a trainer takes before its first iteration, while a model that is made on the CPU or whole on the GPU is
// sharded (training.initialisation). It may be more than training takes.
//
//   InitialMemory initial(*spec_run.replicated, spec_run.dropped);
//   add_initial(estimate, initial.estimates(request, spec_run.dense_parameters), request);
//
// Not thread-safe. Refers to the budget of its run.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "crds/training_job.h"
#include "estimator/estimate/peak.h"
#include "estimator/execute/trace_run.h"
#include "estimator/ledger/ledger.h"
#include "estimator/types/request.h"

namespace plimsoll::estimator::inline estimate {

// Where the model is made, as it is counted: never kAuto. A model whose parts differ by trainer is made on the meta device, as
// torchtitan does, and one for ZeRO-3 within zero.Init, as transformers does; others on the CPU, as accelerate and Lightning do.
crds::Initialisation initialisation_of(const crds::TrainingSpec& training);

// Errors: kInvalid for a strategy that shards nothing, or a model in parts that is not made on the meta device.
Result<void> check_initialisation(const crds::TrainingSpec& training);

// Of one model. All are nothing where no trainers shard it, on the CPU, and with adapters.
struct InitialEstimates {
  std::optional<Estimate> counted;  // as initialisation_of() says
  std::optional<Estimate> on_cpu;   // nothing for parts of a model
  std::optional<Estimate> on_gpu;
};

class InitialMemory {
 public:
  // `dropped`: Making::dropped.
  InitialMemory(TraceRun::Replicated replicated, Bytes dropped);

  InitialEstimates estimates(const EstimateRequest& request, Bytes dense_parameters);

  // As estimator::fits().
  bool fits(const EstimateRequest& request);

  // What it takes at least with any number of trainers.
  Bytes least(const EstimateRequest& request) const;

 private:
  struct Simulated {
    Ledger ledger;
    KnownReplays replays;
  };
  bool applies_to(const EstimateRequest& request) const;
  Simulated& simulated(crds::Initialisation where, const EstimateRequest& request);
  Estimate estimate(crds::Initialisation where, const EstimateRequest& request, Bytes dense_parameters);

  TraceRun::Replicated replicated_;
  Bytes dropped_;
  std::map<crds::Initialisation, Simulated> known_;
};

// Makes what a trainer takes before the first iteration the estimate's peak, if it is higher, and says what would avoid it.
void add_initial(Estimate& estimate, const InitialEstimates& initial, const EstimateRequest& request);

}  // namespace plimsoll::estimator::estimate
