#include "estimator/estimate/equal_layers.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "estimator/estimate/other_passes.h"
#include "estimator/estimate/peak.h"

namespace plimsoll::estimator::inline estimate {
namespace {

// Equal distances, and large enough that the special layers at both ends of the model do not matter.
constexpr std::array<std::int64_t, 3> kSimulated = {96, 128, 160};

class Line {
 public:
  explicit Line(std::int64_t layers) : steps_(layers - kSimulated[2]) {}

  // The value for all layers; nothing if the three values are not on one line.
  std::optional<Bytes> extrapolate(Bytes first, Bytes second, Bytes third) const {
    if (third - second != second - first) {
      return std::nullopt;
    }
    return extended(third, third - second, kSimulated[2] - kSimulated[1]);
  }
  // The same for a value that need not be linear; it is assumed not to shrink.
  Bytes upper_bound(Bytes first, Bytes third) const {
    return extended(third, std::max(Bytes{}, third - first), kSimulated[2] - kSimulated[0]);
  }

 private:
  // In real arithmetic and rounded up, because the growth need not be divisible by the number of layers.
  Bytes extended(Bytes from, Bytes growth, std::int64_t layers) const {
    return from + Bytes{growth.count / layers} * steps_ +
           Bytes::ceil(static_cast<double>(growth.count % layers) / static_cast<double>(layers) *
                       static_cast<double>(steps_));
  }

  std::int64_t steps_;  // number of layers beyond the last simulation
};

using Moments = std::array<Ledger::Moment, kSections>;

std::optional<Moments> extrapolate_moments(const std::vector<SimulatedLayers>& simulated, const Line& line) {
  Moments moments;
  for (std::size_t section = 0; section < kSections; ++section) {
    const auto at = [&](std::size_t i) -> const Ledger::Moment& {
      return simulated[i].run->heaviest.peak_of(static_cast<Section>(section));
    };
    moments[section].phase = at(2).phase;
    for (std::size_t part = 0; part < kParts; ++part) {
      const std::optional<Bytes> bytes =
          line.extrapolate(at(0).parts[part], at(1).parts[part], at(2).parts[part]);
      if (!bytes) {
        return std::nullopt;
      }
      moments[section].parts[part] = *bytes;
      moments[section].live += *bytes;
    }
  }
  return moments;
}

// Unit after unit is made and sharded, so that the peak grows with their number.
std::optional<Estimate> extrapolate_initial(const std::optional<Estimate>& first,
                                            const std::optional<Estimate>& last, const Line& line) {
  if (!first || !last) {
    return std::nullopt;
  }
  Estimate estimate = *last;
  for (const auto part : {&Breakdown::parameters, &Breakdown::temporaries, &Breakdown::allocator_slack}) {
    estimate.breakdown.*part = line.upper_bound(first->breakdown.*part, last->breakdown.*part);
  }
  for (std::size_t i = 0; i < estimate.margins.size(); ++i) {
    estimate.margins[i].bytes = line.upper_bound(first->margins[i].bytes, last->margins[i].bytes);
  }
  estimate.peak = {.allocated = line.upper_bound(first->peak.allocated, last->peak.allocated),
                   .reserved = line.upper_bound(first->peak.reserved, last->peak.reserved),
                   .upper_bound = estimate.breakdown.total()};
  return estimate;
}

}  // namespace

bool may_be_extrapolated(const EstimateRequest& request, const TransformerSpec& spec) {
  const crds::TrainingSpec& training = *request.training;
  return spec.layers > kMaxSimulatedLayers && !spec.encoder_decoder && spec.uniform() &&
         spec.towers.empty() && spec.first_dense <= kSimulated[0] / 2 && training.parallelism.pipeline == 1 &&
         training.activation_checkpointing != crds::ActivationCheckpointing::kPerModule &&
         !has_other_passes(training);
}

Result<std::optional<Estimate>> estimate_of_equal_layers(const EstimateRequest& request,
                                                         const TransformerSpec& spec,
                                                         const SimulateLayers& simulate) {
  if (!may_be_extrapolated(request, spec)) {
    return std::optional<Estimate>();
  }
  std::vector<SimulatedLayers> simulated;
  for (const std::int64_t layers : kSimulated) {
    TransformerSpec fewer = spec;
    fewer.layers = layers;
    Result<SimulatedLayers> one = simulate(fewer);
    if (!one) {
      return one.error();
    }
    if (one->run->beyond_any_machine || one->run->allocated.size() != 1) {
      return std::optional<Estimate>();
    }
    simulated.push_back(*std::move(one));
  }
  const Line line(spec.layers);
  const std::optional<Moments> moments = extrapolate_moments(simulated, line);
  const std::optional<Bytes> dense =
      line.extrapolate(simulated[0].run->dense_parameters, simulated[1].run->dense_parameters,
                       simulated[2].run->dense_parameters);
  if (!moments || !dense) {
    return std::optional<Estimate>();
  }
  const Ledger::Moment& highest =
      *std::max_element(moments->begin(), moments->end(),
                        [](const Ledger::Moment& a, const Ledger::Moment& b) { return a.live < b.live; });
  Estimate estimate = estimate_of(breakdown_of(highest), request, name_of(highest.phase), *dense);
  const Estimate& first = simulated.front().estimate;
  const Estimate& last = simulated.back().estimate;
  estimate.breakdown.workspace = last.breakdown.workspace;
  estimate.breakdown.allocator_slack =
      line.upper_bound(first.breakdown.allocator_slack, last.breakdown.allocator_slack);
  estimate.peak.allocated += estimate.breakdown.workspace;
  estimate.peak.upper_bound = estimate.breakdown.total();
  estimate.peak.reserved = std::clamp(
      estimate.peak.allocated + line.upper_bound(first.peak.reserved - first.peak.allocated,
                                                 last.peak.reserved - last.peak.allocated),
      estimate.peak.allocated,
      std::max(estimate.peak.allocated, estimate.peak.upper_bound - estimate.breakdown.communication));
  estimate.margins = last.margins;
  for (std::size_t i = 0; i < estimate.margins.size(); ++i) {
    estimate.margins[i].bytes = line.upper_bound(first.margins[i].bytes, last.margins[i].bytes);
  }
  estimate.largest_live = last.largest_live;
  for (const auto part : {&HostMemory::parameters, &HostMemory::gradients, &HostMemory::optimizer_state,
                          &HostMemory::checkpoint}) {
    estimate.host.*part = line.upper_bound(first.host.*part, last.host.*part);
  }
  estimate.warnings = last.warnings;
  const InitialEstimates& few = simulated.front().initial;
  const InitialEstimates& many = simulated.back().initial;
  add_initial(estimate,
              {.counted = extrapolate_initial(few.counted, many.counted, line),
               .on_cpu = extrapolate_initial(few.on_cpu, many.on_cpu, line),
               .on_gpu = extrapolate_initial(few.on_gpu, many.on_gpu, line)},
              request);
  return std::optional(std::move(estimate));
}

}  // namespace plimsoll::estimator::estimate
