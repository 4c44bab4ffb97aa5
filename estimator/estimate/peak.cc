#include "estimator/estimate/peak.h"

#include <algorithm>
#include <cmath>

#include "estimator/fixed_costs/fixed_costs.h"

namespace plimsoll::estimator::inline estimate {
namespace {

Bytes tensors(const Breakdown& parts) {
  return parts.parameters + parts.gradients + parts.optimizer_state + parts.inputs + parts.activations +
         parts.temporaries + parts.ddp_buckets;
}

// The parts that are allocated and freed within an iteration.
Bytes transient(const Breakdown& parts) {
  return parts.gradients + parts.activations + parts.temporaries;
}

// A learned correction scales what the simulation predicts, not what is counted exactly.
void correct(Breakdown& parts, const crds::LearnedBounds& learned) {
  if (learned.peak_correction && std::isfinite(*learned.peak_correction)) {
    const double factor = std::clamp(*learned.peak_correction, 0.5, 4.0);
    parts.activations = Bytes::ceil(static_cast<double>(parts.activations.count) * factor);
    parts.temporaries = Bytes::ceil(static_cast<double>(parts.temporaries.count) * factor);
  }
}

// The change of the fixed costs by past jobs.
Bytes learned_fixed_costs(const EstimateRequest& request, const FixedCosts& fixed) {
  EstimateRequest plain = request;
  plain.learned = request.given;
  const FixedCosts usual = fixed_costs_of(plain);
  return fixed.communication + fixed.cuda_context + fixed.forward_workspace + fixed.backward_workspace -
         (usual.communication + usual.cuda_context + usual.forward_workspace + usual.backward_workspace);
}

// The memory that the allocator reserves for a ledger, for GPUs with more or less memory.
class Reserved {
 public:
  Reserved(const Ledger& ledger, const EstimateRequest& request, const FixedCosts& fixed, KnownReplays& known)
      : ledger_(ledger) {
    options_.settings = request.runtime.allocator;
    options_.forward_workspace = fixed.forward_workspace;
    options_.backward_workspace = fixed.backward_workspace;
    options_.next_batch_early = request.next_batch_early;
    options_.budget = request.budget;
    if (request.gpu != nullptr) {
      options_.device.total = request.gpu->memory;
    }
    unlimited_ = known.replay(ledger_, options_);
  }

  const ReplayResult& unlimited() const { return unlimited_; }
  // At most `capacity`; the unlimited value if that is not enough.
  Bytes within(Bytes capacity) const {
    if (unlimited_.reserved_peak <= capacity) {
      return unlimited_.reserved_peak;
    }
    if (!ledger_.has_dispensable() && ledger_.peak() > capacity) {
      return unlimited_.reserved_peak;  // its tensors alone do not fit
    }
    ReplayOptions options = options_;
    options.device.available = std::max(capacity, Bytes{});
    const ReplayResult limited = replay(ledger_, options);
    return limited.out_of_memory ? unlimited_.reserved_peak : limited.reserved_peak;
  }

 private:
  const Ledger& ledger_;
  ReplayOptions options_;
  ReplayResult unlimited_;
};

}  // namespace

Breakdown breakdown_of(const Ledger::Moment& moment) {
  const auto at = [&](Part part) { return moment.parts[static_cast<std::size_t>(part)]; };
  Breakdown parts;
  parts.parameters = at(Part::kParameters);
  parts.gradients = at(Part::kGradients);
  parts.optimizer_state = at(Part::kOptimizerState);
  parts.inputs = at(Part::kInputs);
  parts.activations = at(Part::kActivations);
  parts.temporaries = at(Part::kTemporaries);
  parts.ddp_buckets = at(Part::kDdpBuckets);
  return parts;
}

Estimate estimate_of(const Breakdown& parts, const EstimateRequest& request, const char* phase,
                     Bytes dense_parameters) {
  const FixedCosts fixed = fixed_costs_of(request);
  Estimate estimate;
  estimate.breakdown = parts;
  correct(estimate.breakdown, request.learned);
  estimate.breakdown.embeddings = request.embedding_bytes;
  estimate.breakdown.communication = fixed.communication;
  estimate.breakdown.cuda_context = fixed.cuda_context;
  const Bytes shortfall = request.learned.shortfall.value_or(Bytes{});
  estimate.breakdown.allocator_slack = shortfall;
  Breakdown given = parts;  // without what past jobs have taught
  correct(given, request.given);
  estimate.learned = tensors(estimate.breakdown) - tensors(given) + shortfall -
                     request.given.shortfall.value_or(Bytes{}) + learned_fixed_costs(request, fixed);
  estimate.peak_phase = phase;
  estimate.dense_parameters = dense_parameters;
  estimate.peak.allocated = tensors(estimate.breakdown) + request.embedding_bytes;
  estimate.peak.reserved = estimate.peak.allocated;
  estimate.peak.upper_bound = estimate.breakdown.total();
  return estimate;
}

Estimate estimate_beyond_any_machine(const EstimateRequest& request, Bytes dense_parameters) {
  Breakdown parts;
  parts.activations = Bytes::max();
  return estimate_of(parts, request, name_of(Phase::kForward), dense_parameters);
}

const ReplayResult& KnownReplays::replay(const Ledger& ledger, const ReplayOptions& options) {
  const Key key(options.device.total, options.forward_workspace, options.backward_workspace);
  const auto found =
      std::find_if(known_.begin(), known_.end(), [&](const auto& entry) { return entry.first == key; });
  return found != known_.end() ? found->second
                               : known_.emplace_back(key, estimator::replay(ledger, options)).second;
}

Estimate estimate_of(const Ledger& ledger, const EstimateRequest& request, Bytes dense_parameters) {
  KnownReplays none;
  return estimate_of(ledger, request, dense_parameters, none);
}

Estimate estimate_of(const Ledger& ledger, const EstimateRequest& request, Bytes dense_parameters,
                     KnownReplays& known) {
  Estimate estimate = estimate_of(breakdown_of(ledger.peak_moment()), request, name_of(ledger.peak_phase()),
                                  dense_parameters);
  if (request.device == Device::kCpu) {
    return estimate;
  }
  Breakdown& parts = estimate.breakdown;
  const FixedCosts fixed = fixed_costs_of(request);
  const Reserved reserved(ledger, request, fixed, known);
  parts.workspace = fixed.forward_workspace + fixed.backward_workspace;
  const Bytes margin = safety_margin(transient(parts));

  // What the replay does not include.
  const Bytes corrected = tensors(parts) - tensors(breakdown_of(ledger.peak_moment()));
  const Bytes not_replayed = corrected + request.embedding_bytes;
  const Bytes shortfall = request.learned.shortfall.value_or(Bytes{});
  const Bytes outside = fixed.communication + fixed.cuda_context + margin + shortfall;
  Bytes reserved_now = reserved.unlimited().reserved_peak;
  Bytes reserved_if_safe = reserved_now;
  if (request.gpu != nullptr) {
    reserved_now =
        reserved.within(request.gpu->memory - fixed.unavailable - fixed.communication - not_replayed);
    reserved_if_safe =
        reserved.within(request.capacity.value_or(request.gpu->memory) - outside - not_replayed);
  }
  estimate.peak.allocated = tensors(parts) + parts.workspace + request.embedding_bytes;
  parts.allocator_slack =
      std::max(Bytes{}, reserved_if_safe + not_replayed - estimate.peak.allocated) + margin + shortfall;
  estimate.peak.upper_bound = parts.total();
  estimate.peak.reserved =
      std::max(estimate.peak.allocated,
               std::min(reserved_now + not_replayed, estimate.peak.upper_bound - fixed.communication));
  return estimate;
}

}  // namespace plimsoll::estimator::estimate
