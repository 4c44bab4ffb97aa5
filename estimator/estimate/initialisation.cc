#include "estimator/estimate/initialisation.h"

#include <utility>

#include "estimator/parallel/life_cycle.h"

namespace plimsoll::estimator::inline estimate {
namespace {

using crds::Initialisation;
using crds::ParallelStrategy;

// Past jobs have taught what training takes, not what comes before it.
EstimateRequest before_training(const EstimateRequest& request) {
  EstimateRequest before = request;
  before.before_iterations = true;
  for (crds::LearnedBounds* bounds : {&before.learned, &before.given}) {
    bounds->peak_correction.reset();
    bounds->shortfall.reset();
  }
  return before;
}

class Blocks : public ParameterLedger {
 public:
  explicit Blocks(Ledger& ledger) : ledger_(ledger) {}
  BlockId allocate(Part part, Bytes bytes_of_one, std::int64_t count, std::size_t /*parameter*/,
                   StreamId stream) override {
    return ledger_.allocate(part, bytes_of_one, count, stream);
  }
  void release(BlockId block) override { ledger_.release(block); }

 private:
  Ledger& ledger_;
};

std::string how_to_avoid(ParallelStrategy strategy) {
  switch (strategy) {
    case ParallelStrategy::kFSDP:
      return "Make it on the CPU and give FSDP a device_id, or make it on the meta device";
    case ParallelStrategy::kZeRO1:
    case ParallelStrategy::kZeRO2: return "Make it on the CPU, where DeepSpeed casts it to 16 bits";
    case ParallelStrategy::kZeRO3: return "Make it within deepspeed.zero.Init";
    default: return "Make it on the CPU or on the meta device";
  }
}

std::string held_by_each(const Estimate& whole, ParallelStrategy strategy) {
  return "each trainer holds the whole model until " + std::string(crds::name_of(strategy)) +
         " has sharded it, up to " + to_string(whole.peak.upper_bound);
}

// Of a way that was counted because the user named it.
std::string warning_of_peak(const InitialEstimates& initial, const crds::TrainingSpec& training) {
  const ParallelStrategy strategy = training.parallelism.strategy;
  const bool whole = training.initialisation == Initialisation::kGPU ||
                     (training.initialisation == Initialisation::kCPU && crds::is_zero(strategy));
  return whole ? "the memory peaks before the first iteration: " + held_by_each(*initial.counted, strategy) +
                     ". " + how_to_avoid(strategy) + ": training.initialisation"
               : std::string();
}

// Of the ways that a user who has named none may have taken.
std::string warning_of_others(const InitialEstimates& initial, ParallelStrategy strategy, Bytes capacity) {
  const auto too_large = [&](const std::string& made, const Estimate& whole) {
    return made + " does not fit: " + held_by_each(whole, strategy) + " of " + to_string(capacity) + ". " +
           how_to_avoid(strategy) + "; training.initialisation says which";
  };
  if (strategy == ParallelStrategy::kZeRO3 && initial.on_cpu->peak.upper_bound > capacity) {
    return too_large("a model that zero.Init does not make", *initial.on_cpu);
  }
  return initial.on_gpu->peak.upper_bound > capacity
             ? too_large("a model that is made on the GPU", *initial.on_gpu)
             : std::string();
}

std::string warning_of(const Estimate& estimate, const InitialEstimates& initial,
                       const EstimateRequest& request) {
  const crds::TrainingSpec& training = *request.training;
  if (training.initialisation != Initialisation::kAuto) {
    return estimate.peak_phase == kBeforeIterations ? warning_of_peak(initial, training) : std::string();
  }
  if (request.gpu == nullptr) {
    return {};
  }
  const Bytes capacity = request.capacity.value_or(request.gpu->memory);
  if (initial.on_gpu) {
    return warning_of_others(initial, training.parallelism.strategy, capacity);
  }
  return estimate.dense_parameters > capacity
             ? "the whole model has " + to_string(estimate.dense_parameters) +
                   ", more than a GPU: make it on the meta device, because it is split only afterwards"
             : std::string();
}

}  // namespace

Initialisation initialisation_of(const crds::TrainingSpec& training) {
  if (training.initialisation != Initialisation::kAuto) {
    return training.initialisation;
  }
  const bool by_parameter = training.parallelism.strategy == ParallelStrategy::kZeRO3;
  return by_parameter || crds::is_split(training.parallelism) ? Initialisation::kMeta : Initialisation::kCPU;
}

Result<void> check_initialisation(const crds::TrainingSpec& training) {
  const Initialisation given = training.initialisation;
  if (given == Initialisation::kAuto) {
    return {};
  }
  if (!crds::shards_model(training.parallelism.strategy) || training.fine_tuning) {
    return invalid(
        "training.initialisation needs strategy FSDP, FSDP2, ZeRO1, ZeRO2 or ZeRO3, and no fineTuning");
  }
  if (given != Initialisation::kMeta && crds::is_split(training.parallelism)) {
    return invalid("training.initialisation CPU and GPU need tensor, pipeline and expert of 1");
  }
  return {};
}

InitialMemory::InitialMemory(TraceRun::Replicated replicated, Bytes dropped)
    : replicated_(std::move(replicated)), dropped_(dropped) {}

bool InitialMemory::applies_to(const EstimateRequest& request) const {
  return request.device == Device::kCuda && !request.between && replicated_.replication.replicas > 1 &&
         crds::shards_model(replicated_.replication.strategy) && !request.training->fine_tuning;
}

InitialMemory::Simulated& InitialMemory::simulated(Initialisation where, const EstimateRequest& request) {
  const auto [found, added] =
      known_.try_emplace(where, Simulated{.ledger = Ledger(kCudaGranule, request.budget), .replays = {}});
  Simulated& simulated = found->second;
  if (added) {
    simulated.ledger.enter(Phase::kForward);
    Blocks blocks(simulated.ledger);
    ParameterLifeCycle life(blocks, replicated_.replication, replicated_.parameters, replicated_.optimizer,
                            request.budget);
    life.initialise({.where = where,
                     .is_sent = request.training->checkpoint_loading == crds::CheckpointLoading::kFirstRank,
                     .dropped = dropped_});
  }
  return simulated;
}

Estimate InitialMemory::estimate(Initialisation where, const EstimateRequest& request,
                                 Bytes dense_parameters) {
  Simulated& of = simulated(where, request);
  Estimate estimate = estimate_of(of.ledger, before_training(request), dense_parameters, of.replays);
  estimate.peak_phase = kBeforeIterations;
  return estimate;
}

InitialEstimates InitialMemory::estimates(const EstimateRequest& request, Bytes dense_parameters) {
  if (!applies_to(request)) {
    return {};
  }
  InitialEstimates initial;
  const Initialisation where = initialisation_of(*request.training);
  initial.counted = estimate(where, request, dense_parameters);
  const auto made = [&](Initialisation other) {
    return other == where ? initial.counted : estimate(other, request, dense_parameters);
  };
  if (!crds::is_split(request.training->parallelism)) {
    initial.on_cpu = made(Initialisation::kCPU);
    initial.on_gpu = made(Initialisation::kGPU);
  }
  return initial;
}

bool InitialMemory::fits(const EstimateRequest& request) {
  if (!applies_to(request)) {
    return true;
  }
  Simulated& of = simulated(initialisation_of(*request.training), request);
  return estimator::fits(of.ledger, before_training(request), of.replays);
}

Bytes InitialMemory::least(const EstimateRequest& request) const {
  Bytes whole;
  if (applies_to(request) && initialisation_of(*request.training) == Initialisation::kGPU) {
    for (const ReplicaParameter& parameter : replicated_.parameters) {
      whole += Bytes{parameter.elements} * parameter.optimizer_width * parameter.count;
    }
  }
  return whole;
}

void add_initial(Estimate& estimate, const InitialEstimates& initial, const EstimateRequest& request) {
  if (!initial.counted) {
    return;
  }
  const Estimate& counted = *initial.counted;
  const auto bound = [](const std::optional<Estimate>& of) {
    return of ? std::optional(of->peak.upper_bound) : std::nullopt;
  };
  InitialPeak peak{.where = initialisation_of(*request.training),
                   .upper_bound = counted.peak.upper_bound,
                   .on_cpu = bound(initial.on_cpu),
                   .on_gpu = bound(initial.on_gpu)};
  if (counted.peak.upper_bound > estimate.peak.upper_bound) {
    estimate.peak = counted.peak;
    estimate.breakdown = counted.breakdown;
    estimate.peak_phase = counted.peak_phase;
    estimate.learned = counted.learned;
    estimate.margins = counted.margins;
    estimate.largest_live.clear();
  }
  peak.warning = warning_of(estimate, initial, request);
  if (!peak.warning.empty()) {
    estimate.warnings.push_back(peak.warning);
  }
  estimate.initial = std::move(peak);
}

}  // namespace plimsoll::estimator::estimate
