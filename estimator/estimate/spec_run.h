// run_spec(): the iteration of a model that a spec describes (DLRM or transformer), on each trainer that
// differs: the stages of a pipeline, and ranks that own different parameters.
//
//   Result<SpecRun> run = run_spec(request);
//   run->heaviest.peak();
//
// tensor x pipeline x context trainers hold one replica of a transformer and take its batch together; the
// rest replicate it, and share what parallelism.strategy says. Experts are spread over `expert` of the
// replicas. Pure; any thread.
#pragma once

#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "estimator/ledger/ledger.h"
#include "estimator/spec/record.h"
#include "estimator/spec/transformer_spec.h"
#include "estimator/types/request.h"

namespace plimsoll::estimator::inline estimate {

struct SpecRun {
  Ledger heaviest;               // of the trainer with the highest peak
  std::vector<Bytes> allocated;  // the peak of each that differs: ranks of a replica, stage by stage
  Bytes dense_parameters;        // of the whole model
  std::vector<LiveTensor> largest_live{};  // of `heaviest` at its peak, at most ten
  bool beyond_any_machine = false;
};

// A spec does not say which PyTorch runs it: the newest that the rules were checked with.
inline constexpr TorchVersion kSpecTorchVersion = 215;

// The whole model on one trainer. Errors: those of run_spec().
Result<Recording> record_whole(const EstimateRequest& request, std::int64_t batch);

// Errors: kInvalid naming the field: sizes that cannot be, trainers that the parts do not divide;
// kUnsupported for an optimizer implementation that PyTorch lacks.
Result<SpecRun> run_spec(const EstimateRequest& request);
// The same for a transformer whose sizes are `spec`, whatever the request's model says; null for a DLRM.
Result<SpecRun> run_spec(const EstimateRequest& request, const TransformerSpec* spec);

// Requests that differ in the card, the embeddings or the number of trainers have equal runs where this
// number is equal.
std::int64_t trainers_that_matter(const EstimateRequest& request);

}  // namespace plimsoll::estimator::estimate
