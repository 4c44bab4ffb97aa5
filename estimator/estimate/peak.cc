#include "estimator/estimate/peak.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "estimator/estimate/margins.h"
#include "estimator/fixed_costs/fixed_costs.h"
#include "estimator/fixed_costs/table.h"

namespace plimsoll::estimator::inline estimate {
namespace {

Bytes tensors(const Breakdown& parts) {
  return parts.parameters + parts.gradients + parts.optimizer_state + parts.inputs + parts.activations +
         parts.temporaries + parts.ddp_buckets;
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

ReplayOptions replay_options(const EstimateRequest& request, const FixedCosts& fixed,
                             const KnownReplays& known) {
  ReplayOptions options;
  options.settings = request.runtime.allocator;
  options.forward_workspace = fixed.forward_workspace;
  options.backward_workspace = fixed.backward_workspace;
  options.next_batch_early = request.next_batch_early;
  options.afterwards = known.afterwards();
  options.budget = request.budget;
  if (request.before_iterations) {
    options.iterations = 1;
  }
  if (request.gpu != nullptr) {
    options.device.total = request.gpu->memory;
  }
  return options;
}

// The memory that the allocator reserves for a ledger, for GPUs with more or less memory.
class Reserved {
 public:
  Reserved(const Ledger& ledger, const EstimateRequest& request, const FixedCosts& fixed, KnownReplays& known)
      : ledger_(ledger),
        highest_(known.highest(ledger)),
        options_(replay_options(request, fixed, known)),
        known_(known) {}

  Bytes unlimited() const { return known_.replay(ledger_, options_).reserved_peak; }
  // At most `capacity`; the unlimited value if that is not enough.
  Bytes within(Bytes capacity) const {
    const std::optional<ReplayResult> limited = limited_to(capacity);
    return limited ? limited->reserved_peak : unlimited();
  }
  // Whether the allocator has to give something back for that.
  bool gives_back_within(Bytes capacity) const {
    const std::optional<ReplayResult> limited = limited_to(capacity);
    const AllocatorSettings& settings = options_.settings;
    if (settings.memory_fraction || settings.max_split_size != Bytes::max()) {
      return limited && limited->reserved_peak < unlimited();
    }
    return limited && limited->retries > 0;  // the driver refused what it would have reserved
  }

 private:
  // Nothing if that is not enough.
  std::optional<ReplayResult> limited_to(Bytes capacity) const {
    if (!highest_.has_dispensable() && highest_.peak() > capacity) {
      return std::nullopt;  // its tensors alone do not fit
    }
    ReplayOptions options = options_;
    options.device.available = std::max(capacity, Bytes{});
    const ReplayResult limited = known_.replay(ledger_, options);
    return limited.out_of_memory ? std::nullopt : std::optional(limited);
  }

  const Ledger& ledger_;
  const Ledger& highest_;
  const ReplayOptions options_;
  KnownReplays& known_;
};

// The allocator empties its cache only when the card is full, so the cache takes what the context leaves: the less the
// context takes, the more. Tables that are yet to be placed take the cache's place.
void fill_card(const EstimateRequest& request, Breakdown& parts) {
  const bool tables = request.model != nullptr && !request.model->tables().empty();
  const Bytes capacity = request.capacity.value_or(request.gpu->memory);
  if (tables || parts.total() > capacity) {
    return;
  }
  parts.cuda_context = std::min(parts.cuda_context, kTypicalContext);
  parts.allocator_slack += capacity - parts.total();
}

// aten/src/ATen/native/cudnn/Conv_v8.cpp: the first convolution of a shape takes one workspace for all plans that it
// times, as large as the greediest needs of those that fit into what is free (generate_and_filter_plans), halved while
// it cannot be allocated, and run_single_conv empties the cache afterwards. How much plans need is NVIDIA's, so nothing
// less than the card is certain; no job runs out of memory by it.
bool benchmarks(const EstimateRequest& request, const ConvolutionTotals& convolutions) {
  return request.training != nullptr && request.training->cudnn_benchmark && convolutions.traffic.count > 0 &&
         request.gpu != nullptr;
}

void add_benchmark(const EstimateRequest& request, Estimate& estimate) {
  const Bytes before = estimate.breakdown.allocator_slack;
  fill_card(request, estimate.breakdown);
  estimate.margins.push_back(
      {.name = "cudnnBenchmark",
       .bytes = estimate.breakdown.allocator_slack - before,
       .source = "torch.backends.cudnn.benchmark: plans may take what is free while they are timed "
                 "(aten/src/ATen/native/cudnn/Conv_v8.cpp, generate_and_filter_plans)"});
}

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

// Whether a replay with these options gives this result.
bool KnownReplays::Known::is_of(const ReplayOptions& options) const {
  const bool total_matters = settings.memory_fraction || settings.expandable_segments;
  if (settings != options.settings || (total_matters && total != options.device.total) ||
      forward_workspace != options.forward_workspace || backward_workspace != options.backward_workspace) {
    return false;
  }
  // Oversize blocks are given back before the cache is emptied, which is not counted.
  const bool never_refused = available == Bytes::max() || (!result.out_of_memory && result.retries == 0 &&
                                                           settings.max_split_size == Bytes::max());
  return available == options.device.available ||
         (never_refused && result.reserved_peak <= options.device.available);
}

ReplayResult KnownReplays::replay(const Ledger& ledger, const ReplayOptions& options) {
  const auto found =
      std::find_if(known_.begin(), known_.end(), [&](const Known& each) { return each.is_of(options); });
  if (found != known_.end()) {
    return found->result;
  }
  known_.push_back({.settings = options.settings,
                    .total = options.device.total,
                    .forward_workspace = options.forward_workspace,
                    .backward_workspace = options.backward_workspace,
                    .available = options.device.available,
                    .result = estimator::replay(ledger, options)});
  return known_.back().result;
}

const Ledger& KnownReplays::highest(const Ledger& ledger) const {
  const Ledger* highest = &ledger;
  for (const Ledger* const other : afterwards_) {
    highest = other->peak() > highest->peak() ? other : highest;
  }
  return *highest;
}

Estimate estimate_of(const Ledger& ledger, const EstimateRequest& request, Bytes dense_parameters,
                     const ConvolutionTotals& convolutions) {
  KnownReplays none;
  return estimate_of(ledger, request, dense_parameters, none, convolutions);
}

namespace {

// An estimate without the memory that the allocator reserves beyond the tensors.
struct Outline {
  Estimate estimate;
  FixedCosts fixed;
  Bytes not_replayed;  // what the replay does not include
  Bytes outside;       // of the allocator, and the margins
};

Outline outline_of(const Ledger& ledger, const EstimateRequest& request, Bytes dense_parameters,
                   const ConvolutionTotals& convolutions) {
  Outline outline{.estimate = estimate_of(breakdown_of(ledger.peak_moment()), request,
                                          name_of(ledger.peak_phase()), dense_parameters),
                  .fixed = fixed_costs_of(request),
                  .not_replayed = {},
                  .outside = {}};
  if (request.device == Device::kCpu) {
    return outline;
  }
  Breakdown& parts = outline.estimate.breakdown;
  parts.workspace = outline.fixed.forward_workspace + outline.fixed.backward_workspace;
  outline.estimate.margins = margins_of(request, ledger, parts, convolutions);
  outline.estimate.peak.allocated = tensors(parts) + parts.workspace + request.embedding_bytes;
  const Bytes corrected = tensors(parts) - tensors(breakdown_of(ledger.peak_moment()));
  outline.not_replayed = corrected + request.embedding_bytes;
  outline.outside = outline.fixed.communication + outline.fixed.cuda_context +
                    total_of(outline.estimate.margins) + request.learned.shortfall.value_or(Bytes{});
  return outline;
}

}  // namespace

Estimate estimate_of(const Ledger& ledger, const EstimateRequest& request, Bytes dense_parameters,
                     KnownReplays& known, const ConvolutionTotals& convolutions) {
  auto [estimate, fixed, not_replayed, outside] =
      outline_of(known.highest(ledger), request, dense_parameters, convolutions);
  if (request.device == Device::kCpu) {
    return estimate;
  }
  Breakdown& parts = estimate.breakdown;
  const Reserved reserved(ledger, request, fixed, known);
  const Bytes now = request.gpu == nullptr
                        ? Bytes::max()
                        : request.gpu->memory - fixed.unavailable - fixed.communication - not_replayed;
  const Bytes if_safe = request.gpu == nullptr
                            ? Bytes::max()
                            : request.capacity.value_or(request.gpu->memory) - outside - not_replayed;
  const Bytes reserved_now = reserved.within(now);
  const Bytes reserved_if_safe = reserved.within(if_safe);
  parts.allocator_slack = std::max(Bytes{}, reserved_if_safe + not_replayed - estimate.peak.allocated) +
                          total_of(estimate.margins) + request.learned.shortfall.value_or(Bytes{});
  if (reserved.gives_back_within(if_safe)) {
    fill_card(request, parts);
  }
  if (benchmarks(request, convolutions)) {
    add_benchmark(request, estimate);
  }
  estimate.peak.upper_bound = parts.total();
  estimate.peak.reserved =
      std::max(estimate.peak.allocated,
               std::min(reserved_now + not_replayed, estimate.peak.upper_bound - fixed.communication));
  return estimate;
}

bool fits(const Ledger& ledger, const EstimateRequest& request, KnownReplays& known,
          const ConvolutionTotals& convolutions) {
  const AllocatorSettings& settings = request.runtime.allocator;
  const Bytes capacity = request.capacity.value_or(request.gpu->memory);
  if (request.device == Device::kCpu || settings.memory_fraction) {
    return estimate_of(ledger, request, {}, known, convolutions).peak.upper_bound <= capacity;
  }
  const Ledger& highest = known.highest(ledger);
  const Outline outline = outline_of(highest, request, {}, convolutions);
  const Bytes left = capacity - outline.outside - outline.not_replayed;
  if (outline.estimate.peak.allocated + outline.outside > capacity ||
      (!highest.has_dispensable() && highest.peak() > left)) {
    return false;
  }
  ReplayOptions options = replay_options(request, outline.fixed, known);
  options.device.available = std::max(left, Bytes{});
  return !known.replay(ledger, options).out_of_memory;
}

}  // namespace plimsoll::estimator::estimate
