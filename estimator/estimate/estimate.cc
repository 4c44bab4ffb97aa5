#include "estimator/estimate/estimate.h"

#include "estimator/estimate/amp.h"
#include "estimator/estimate/equal_layers.h"
#include "estimator/estimate/graph_estimate.h"
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
  return estimate_by_amp(request, recording->trace, *shapes, kSpecTorchVersion, [&](std::int64_t batch) {
    const Result<Recording> micro = record_whole(request, batch);
    return micro ? amp_training_bytes(micro->trace, batch) : Bytes::max();
  });
}

}  // namespace

struct Estimator::Run {
  SpecRun spec;
  KnownReplays replays;  // of its ledger

  Estimate estimate(const EstimateRequest& request) {
    if (spec.beyond_any_machine) {
      return estimate_beyond_any_machine(request, spec.dense_parameters);
    }
    Estimate estimate = estimate_of(spec.heaviest, request, spec.dense_parameters, replays);
    estimate.largest_live = spec.largest_live;
    if (spec.allocated.size() > 1) {
      estimate.allocated_by_rank = spec.allocated;
    }
    return estimate;
  }
};

Result<Estimator::Run*> Estimator::run_of(const EstimateRequest& request, const TransformerSpec* spec) {
  std::unique_ptr<Run>& run = runs_[{trainers_that_matter(request), spec == nullptr ? 0 : spec->layers}];
  if (run == nullptr) {
    Result<SpecRun> simulated = run_spec(request, spec);
    if (!simulated) {
      return simulated.error();
    }
    run = std::make_unique<Run>(Run{.spec = *std::move(simulated), .replays = {}});
  }
  return run.get();
}

Result<Estimate> Estimator::by_simulation(const EstimateRequest& request) {
  std::optional<TransformerSpec> spec;
  if (request.model->transformer) {
    Result<TransformerSpec> read = transformer_spec(*request.model->transformer);
    if (!read) {
      return read.error();
    }
    spec = *std::move(read);
    Result<std::optional<Estimate>> estimate = estimate_of_equal_layers(
        request, *spec, [&](const TransformerSpec& fewer) -> Result<SimulatedLayers> {
          const Result<Run*> run = run_of(request, &fewer);
          return run ? Result<SimulatedLayers>({.run = &(*run)->spec, .estimate = (*run)->estimate(request)})
                     : run.error();
        });
    if (!estimate) {
      return estimate.error();
    }
    if (*estimate) {
      return **std::move(estimate);
    }
  }
  const Result<Run*> run = run_of(request, spec ? &*spec : nullptr);
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
  if (request.graph != nullptr) {
    return estimate_trace(request);
  }
  if (request.method == Method::kPlimsoll) {
    return by_simulation(request);
  }
  return by_amp(request);
}

}  // namespace plimsoll::estimator::estimate
