#include "estimator/estimate/estimate.h"

#include <algorithm>

#include "estimator/estimate/amp.h"
#include "estimator/estimate/equal_layers.h"
#include "estimator/estimate/graph_estimate.h"
#include "estimator/estimate/initialisation.h"
#include "estimator/estimate/other_passes.h"
#include "estimator/estimate/peak.h"
#include "estimator/estimate/spec_run.h"
#include "estimator/fixed_costs/fixed_costs.h"

namespace plimsoll::estimator::inline estimate {
namespace {

constexpr std::int64_t kMaxBatch = std::int64_t{1} << 32;
constexpr std::int64_t kMaxTrainers = std::int64_t{1} << 24;

Result<void> check(const EstimateRequest& request) {
  if (request.model == nullptr || request.training == nullptr) {
    return invalid("an estimate needs a model and its training settings");
  }
  if (request.model->graph && request.graph == nullptr) {
    return Error(ErrorCode::kUnsupported, "the graph in ConfigMap " + request.model->graph->config_map_name +
                                              " could not be read; the job keeps its number of trainers");
  }
  if (!request.model->dlrm && !request.model->transformer && request.graph == nullptr) {
    return invalid("model is empty: give model.dlrm, model.transformer or model.graph");
  }
  const std::int64_t batch = request.training->batch_size_per_trainer;
  if (batch < 1 || batch > kMaxBatch) {
    return invalid("training.batchSizePerTrainer must be from 1 to " + std::to_string(kMaxBatch) + ", is " +
                   std::to_string(batch));
  }
  if (request.trainers < 1 || request.trainers > kMaxTrainers) {
    return invalid("the number of trainers must be from 1 to " + std::to_string(kMaxTrainers) + ", is " +
                   std::to_string(request.trainers));
  }
  if (request.embedding_bytes.count < 0) {
    return invalid("the embedding shard cannot have a negative size");
  }
  return {};
}

// The field of the request that contributes most to the length of the iteration.
Budget::Cause largest_cause(const EstimateRequest& request) {
  if (request.graph != nullptr) {
    return {"spec.model.graph"};
  }
  if (request.model->dlrm) {
    return {"spec.model.dlrm.tables", static_cast<std::int64_t>(request.model->dlrm->tables.size())};
  }
  const std::int64_t layers = request.model->transformer->layers;
  const crds::Parallelism& parallelism = request.training->parallelism;
  // Each stage runs a few more micro-batches than there are stages, through each of its chunks.
  const std::int64_t passes = (Bytes{parallelism.pipeline} * parallelism.pipeline).count;  // saturates
  if (parallelism.pipeline_chunks > passes && parallelism.pipeline_chunks > layers) {
    return {"spec.training.parallelism.pipelineChunks", parallelism.pipeline_chunks};
  }
  if (passes > layers) {
    return {"spec.training.parallelism.pipeline", parallelism.pipeline};
  }
  return layers > 0 ? Budget::Cause{"spec.model.transformer.layers", layers}
                    : Budget::Cause{"spec.model.transformer.config"};
}

// Nothing for a graph or a DLRM.
Result<std::optional<TransformerSpec>> spec_of(const EstimateRequest& request) {
  if (request.graph != nullptr || !request.model->transformer) {
    return std::optional<TransformerSpec>();
  }
  Result<TransformerSpec> spec = trained_spec(request);
  return spec ? Result(std::optional(*std::move(spec))) : spec.error();
}

Result<Estimate> by_amp(const EstimateRequest& request) {
  const Result<Recording> recording = record_whole(request, request.training->batch_size_per_trainer);
  if (!recording) {
    return recording.error();
  }
  const Result<TraceShapes> shapes =
      TraceShapes::at(recording->trace, request.training->batch_size_per_trainer,
                      {.halve_floats = false, .budget = request.budget});
  if (!shapes && shapes.error().code == ErrorCode::kTooLarge) {
    return estimate_beyond_any_machine(request, Bytes{});
  }
  if (!shapes) {
    return shapes.error();
  }
  return estimate_by_amp(request, recording->trace, *shapes, spec_torch_version(*request.training),
                         [&](std::int64_t batch) {
                           const Result<Recording> micro = record_whole(request, batch);
                           return micro ? amp_training_bytes(micro->trace, batch) : Bytes::max();
                         });
}

}  // namespace

namespace {

// The simulation of a spec or of a graph.
struct Simulation {
  std::optional<SpecRun> spec;
  std::optional<GraphRun> graph;

  bool beyond_any_machine() const { return graph ? graph->beyond_any_machine : spec->beyond_any_machine; }
  const Ledger& ledger() const { return graph ? graph->ranks.heaviest->ledger : spec->heaviest; }
  const std::vector<Bytes>& peaks() const { return graph ? graph->ranks.peaks : spec->allocated; }
  std::vector<LiveTensor> largest() const { return graph ? largest_live(*graph) : spec->largest_live; }
};

Result<Simulation> simulate(const EstimateRequest& request, const TransformerSpec* spec,
                            KnownSpecParts* known) {
  Simulation simulation;
  if (request.graph != nullptr) {
    Result<GraphRun> run = run_graph(request);
    if (!run) {
      return run.error();
    }
    simulation.graph = *std::move(run);
  } else {
    Result<SpecRun> run = run_spec(request, spec, known);
    if (!run) {
      return run.error();
    }
    simulation.spec = *std::move(run);
  }
  return simulation;
}

Bytes inputs_of(const Ledger& ledger) {
  Bytes sum;
  for (std::size_t i = 0; i < ledger.begin_of_iteration(); ++i) {
    const Ledger::Block& block = ledger.blocks()[static_cast<std::size_t>(ledger.events()[i].block)];
    sum += block.part == Part::kInputs ? block.bytes : Bytes{};
  }
  return sum;
}

}  // namespace

struct Estimator::Run {
  struct Other {
    Simulation simulation;
    std::string if_highest;
  };
  Simulation usual;           // iteration
  std::vector<Other> others;  // other_passes()
  KnownReplays replays;       // of the usual iteration's ledger, and then the others'
  std::optional<InitialMemory> before;

  bool beyond_any_machine() const {
    return usual.beyond_any_machine() || std::any_of(others.begin(), others.end(), [](const Other& each) {
             return each.simulation.beyond_any_machine();
           });
  }

  void add_before() {
    if (usual.beyond_any_machine()) {
      return;
    }
    if (usual.graph) {
      before.emplace(usual.graph->ranks.heaviest->replicated, Bytes{});
    } else if (usual.spec->replicated) {
      before.emplace(*std::move(usual.spec->replicated), usual.spec->dropped);
    }
  }

  Result<void> add_others(const EstimateRequest& request, const TransformerSpec* spec) {
    if (usual.beyond_any_machine()) {
      return {};
    }
    const Result<std::vector<OtherPass>> passes = other_passes(request, spec, inputs_of(usual.ledger()));
    if (!passes) {
      return passes.error();
    }
    for (const OtherPass& pass : *passes) {
      EstimateRequest other = request;
      other.training = &pass.training;
      other.between = pass.between;
      Result<Simulation> simulation = simulate(other, pass.spec ? &*pass.spec : nullptr, nullptr);
      if (!simulation) {
        return simulation.error();
      }
      others.push_back({.simulation = *std::move(simulation), .if_highest = pass.if_highest});
    }
    if (!beyond_any_machine()) {
      std::vector<const Ledger*> afterwards;
      for (const std::size_t pass : order_of_passes(*request.training)) {
        afterwards.push_back(pass == 0 ? &usual.ledger() : &others[pass - 1].simulation.ledger());
      }
      replays.set_afterwards(std::move(afterwards));
    }
    return {};
  }

  // The peaks of the other passes, and what is live at the highest of all.
  void add_highest(Estimate& estimate) const {
    for (const Other& other : others) {
      const std::vector<Bytes>& peaks = other.simulation.peaks();
      for (std::size_t i = 0; i < std::min(peaks.size(), estimate.allocated_by_rank.size()); ++i) {
        estimate.allocated_by_rank[i] = std::max(estimate.allocated_by_rank[i], peaks[i]);
      }
    }
    const Ledger* const highest = &replays.highest(usual.ledger());
    for (const Other& other : others) {
      if (&other.simulation.ledger() == highest) {
        estimate.largest_live = other.simulation.largest();
        estimate.warnings.push_back(other.if_highest);
      }
    }
  }

  // Before the first iteration.
  InitialEstimates initial(const EstimateRequest& request) {
    return before && !beyond_any_machine() ? before->estimates(request, dense_parameters())
                                           : InitialEstimates();
  }

  Bytes dense_parameters() const {
    return usual.spec ? usual.spec->dense_parameters : usual.graph->dense_parameters;
  }

  Estimate estimate(const EstimateRequest& request) {
    Estimate estimate = of_iterations(request);
    add_initial(estimate, initial(request), request);
    return estimate;
  }

  Estimate of_iterations(const EstimateRequest& request) {
    if (beyond_any_machine()) {
      return estimate_beyond_any_machine(request, usual.spec ? usual.spec->dense_parameters : Bytes{});
    }
    if (usual.graph) {
      Estimate estimate = estimate_of(*usual.graph, request, replays);
      add_highest(estimate);
      return estimate;
    }
    const SpecRun& spec = *usual.spec;
    Estimate estimate = estimate_of(spec.heaviest, request, spec.dense_parameters, replays);
    estimate.largest_live = spec.largest_live;
    estimate.host = spec.host;
    estimate.warnings.insert(estimate.warnings.end(), spec.warnings.begin(), spec.warnings.end());
    if (spec.allocated.size() > 1) {
      estimate.allocated_by_rank = spec.allocated;
    }
    add_highest(estimate);
    return estimate;
  }

  bool fits(const EstimateRequest& request) {
    if (beyond_any_machine()) {
      return false;
    }
    const ConvolutionTotals convolutions =
        usual.graph ? usual.graph->ranks.heaviest->convolutions : ConvolutionTotals{};
    return estimator::fits(usual.ledger(), request, replays, convolutions) &&
           (!before || before->fits(request));
  }

  MemoryFloor floor(const EstimateRequest& request) const {
    if (usual.beyond_any_machine()) {
      return {};
    }
    MemoryFloor floor = usual.graph ? MemoryFloor(*usual.graph->ranks.heaviest, request) : usual.spec->floor;
    floor.raise_to(before ? before->least(request) : Bytes{});
    return floor;
  }
};

Result<Estimator::Run*> Estimator::run_of(const EstimateRequest& request, const TransformerSpec* spec) {
  // A search asks for one number of trainers after the other, and equal layers for three models at a time.
  constexpr std::size_t kKept = 8;
  Key key{.trainers = trainers_that_matter(request),
          .layers = spec == nullptr ? 0 : spec->layers,
          .batch_size = request.training->batch_size_per_trainer,
          .accumulation = request.training->gradient_accumulation,
          .without_padding = request.without_padding,
          .has_flash = has_flash(request)};
  if (request.graph != nullptr) {
    key.gpu_family = convolution_family_of(request);
    key.convolution_workspace = request.learned.convolution_workspace;
  }
  const auto known =
      std::find_if(runs_.begin(), runs_.end(), [&](const auto& entry) { return entry.first == key; });
  if (known != runs_.end()) {
    runs_.splice(runs_.begin(), runs_, known);
    return runs_.front().second.get();
  }
  Result<Simulation> usual = simulate(request, spec, &parts_);
  if (!usual) {
    return usual.error();
  }
  auto run = std::make_unique<Run>();
  run->usual = *std::move(usual);
  run->add_before();
  if (Result<void> added = run->add_others(request, spec); !added) {
    return added.error();
  }
  while (runs_.size() >= kKept) {
    runs_.pop_back();
  }
  runs_.emplace_front(std::move(key), std::move(run));
  return runs_.front().second.get();
}

Result<Estimate> Estimator::by_simulation(const EstimateRequest& request) {
  const Result<std::optional<TransformerSpec>> spec = spec_of(request);
  if (!spec) {
    return spec.error();
  }
  if (*spec) {
    Result<std::optional<Estimate>> estimate = estimate_of_equal_layers(
        request, **spec, [&](const TransformerSpec& fewer) -> Result<SimulatedLayers> {
          const Result<Run*> run = run_of(request, &fewer);
          return run ? Result<SimulatedLayers>({.run = &*(*run)->usual.spec,
                                                .estimate = (*run)->of_iterations(request),
                                                .initial = (*run)->initial(request)})
                     : run.error();
        });
    if (!estimate) {
      return estimate.error();
    }
    if (*estimate) {
      return **std::move(estimate);
    }
  }
  const Result<Run*> run = run_of(request, *spec ? &**spec : nullptr);
  return run ? Result<Estimate>((*run)->estimate(request)) : run.error();
}

Estimator::Estimator() = default;
Estimator::~Estimator() = default;

Result<Estimate> estimate_memory(const EstimateRequest& request) {
  return Estimator().estimate(request);
}

Result<Estimate> Estimator::estimate(const EstimateRequest& request) {
  Result<void> checked = check(request);
  if (!checked) {
    return checked.error();
  }
  const BudgetCause cause(request.budget, largest_cause(request));
  if (request.method == Method::kPlimsoll) {
    return by_simulation(request);
  }
  if (request.graph == nullptr) {
    return by_amp(request);
  }
  const Result<Run*> run = run_of(request, nullptr);
  return run ? estimate_by_amp(*(*run)->usual.graph, request) : run.error();
}

Result<Estimator::Run*> Estimator::single_run(const EstimateRequest& request) {
  if (Result<void> checked = check(request); !checked) {
    return checked.error();
  }
  const Result<std::optional<TransformerSpec>> spec = spec_of(request);
  if (!spec) {
    return spec.error();
  }
  const TransformerSpec* const sizes = *spec ? &**spec : nullptr;
  const bool several = sizes != nullptr && may_be_extrapolated(request, *sizes);
  return several || request.method != Method::kPlimsoll ? Result<Run*>(nullptr) : run_of(request, sizes);
}

Result<bool> Estimator::fits(const EstimateRequest& request) {
  const BudgetCause cause(request.budget, largest_cause(request));
  const Result<Run*> run = single_run(request);
  if (!run) {
    return run.error();
  }
  if (*run != nullptr) {
    return (*run)->fits(request);
  }
  const Result<Estimate> whole = estimate(request);
  return whole ? Result<bool>(whole->peak.upper_bound <= request.capacity.value_or(request.gpu->memory))
               : whole.error();
}

Result<MemoryFloor> Estimator::floor(const EstimateRequest& request) {
  const BudgetCause cause(request.budget, largest_cause(request));
  EstimateRequest least = request;
  least.without_padding = request.training != nullptr && gathers(request.training->parallelism.strategy);
  const Result<Run*> run = single_run(least);
  if (!run) {
    return run.error();
  }
  return *run == nullptr ? MemoryFloor() : (*run)->floor(least);
}

}  // namespace plimsoll::estimator::estimate
