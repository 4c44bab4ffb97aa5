#include "estimator/estimate/graph_estimate.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "estimator/estimate/amp.h"
#include "estimator/estimate/graph_tables.h"
#include "estimator/estimate/initialisation.h"
#include "estimator/estimate/peak.h"
#include "estimator/estimate/ranks.h"
#include "estimator/estimate/spec_run.h"
#include "estimator/execute/run_trace.h"
#include "estimator/fixed_costs/fixed_costs.h"
#include "estimator/kernels/convolution.h"
#include "estimator/trace/import_graph.h"
#include "estimator/trace/optimizer.h"
#include "estimator/trace/shapes.h"

namespace plimsoll::estimator::inline estimate {
namespace {

constexpr std::size_t kLargest = 10;

std::vector<LiveTensor> live_at_peak(const TraceRun& run) {
  std::vector<LiveTensor> largest;
  for (const BlockId block : run.ledger.largest_at_peak(kLargest)) {
    largest.push_back({run.name_of(block), run.kind_of(block), run.ledger.blocks()[index(block)].bytes});
  }
  return largest;
}

void add_notes(const Trace& trace, Estimate& estimate) {
  for (const std::string& note : trace.notes) {
    estimate.warnings.push_back("note in the graph: " + note);
  }
}

const std::vector<crds::EmbeddingTable>& tables_of(const EstimateRequest& request) {
  static const crds::ModelSpec graph_alone;
  return (request.model == nullptr ? graph_alone : *request.model).tables();
}

TablesRequest tables_request(const EstimateRequest& request) {
  return {.batch = request.training->batch_size_per_trainer,
          .batches_in_flight = request.device == Device::kCuda ? kSparseBatchesInFlight : 1,
          .budget = request.budget};
}

// Whether the tables are those that the graph looks up, and spread over the trainers as torchrec does it.
Result<void> check_model(const EstimateRequest& request, const Trace& trace) {
  const std::vector<crds::EmbeddingTable>& tables = tables_of(request);
  const crds::Parallelism& parallelism = request.training->parallelism;
  if (!tables.empty() && (parallelism.tensor > 1 || parallelism.pipeline > 1)) {
    return Error(
        ErrorCode::kUnsupported,
        "training.parallelism.strategy is the only parallelism of a graph with embedding tables; its "
        "tables are spread over all trainers, and each has a replica of the graph");
  }
  return check_tables(trace, tables, tables_request(request));
}

Result<TraceShapes> shapes_of(const EstimateRequest& request, const Trace& trace, bool halve_floats) {
  const crds::TrainingSpec& training = *request.training;
  return TraceShapes::at(trace, training.batch_size_per_trainer / training.gradient_accumulation,
                         {.halve_floats = halve_floats, .budget = request.budget});
}

}  // namespace

Result<SelectedTrace> select_trace(const EstimateRequest& request) {
  const Device device = request.device == Device::kCpu ? Device::kCpu : Device::kCuda;
  const crds::Precision precision = request.training->precision;
  const Result<const Trace*> exact = choose_trace(*request.graph, device, crds::name_of(precision));
  if (exact) {
    return SelectedTrace{.trace = *exact};
  }
  if (precision == crds::Precision::kTF32 || precision == crds::Precision::kBF16) {
    const Result<const Trace*> plain = choose_trace(*request.graph, device, "FP32");
    if (plain) {
      return SelectedTrace{.trace = *plain, .halve_floats = precision == crds::Precision::kBF16};
    }
  }
  return exact.error();
}

std::string convolution_family_of(const EstimateRequest& request) {
  constexpr ComputeCapability kSm80 = {.major = 8, .minor = 0};
  return request.gpu == nullptr
             ? std::string()
             : convolution_family(request.gpu->family, request.gpu->compute_capability == kSm80);
}

Result<GraphRun> run_graph(const EstimateRequest& request) {
  const Result<SelectedTrace> chosen = select_trace(request);
  if (!chosen) {
    return chosen.error();
  }
  if (Result<void> checked = check_model(request, *chosen->trace); !checked) {
    return checked.error();
  }
  GraphRun run{.trace = chosen->trace, .ranks = {}, .dense_parameters = {}};
  if (!tables_of(request).empty()) {
    run.with_tables = std::make_unique<const Trace>(
        with_batches_of_tables(*chosen->trace, tables_of(request), tables_request(request)));
    run.trace = run.with_tables.get();
  }
  const crds::TrainingSpec& training = *request.training;
  if (training.compile != crds::Compilation::kNone || training.float8 != crds::Float8::kNone ||
      training.loss_chunks > 1 || training.fine_tuning) {
    return Error(
        ErrorCode::kUnsupported,
        "training.compile, float8, lossChunks and fineTuning are for model.transformer; a graph has the operators "
        "that were recorded");
  }
  if (!training.torch_version.empty()) {
    return Error(
        ErrorCode::kUnsupported,
        "training.torchVersion is for model.dlrm and model.transformer; a graph carries the version that "
        "recorded it");
  }
  if (training.parallelism.strategy == crds::ParallelStrategy::kMegatron) {
    return Error(
        ErrorCode::kUnsupported,
        "training.parallelism.strategy Megatron is for model.transformer: Megatron-LM trains models of its own");
  }
  if (training.parallelism.reduce_dtype != crds::ReduceDtype::kAuto) {
    return Error(
        ErrorCode::kUnsupported,
        "training.parallelism.reduceDtype is for model.transformer: a graph's gradients are reduced in the precision "
        "that was recorded");
  }
  if (Result<void> checked = check_initialisation(training); !checked) {
    return checked.error();
  }
  Result<RankRuns> ranks =
      run_ranks(*run.trace, request.graph->producer,
                {.parallelism = training.parallelism,
                 .trainers = request.trainers,
                 .steps_in_backward = training.optimizer_in_backward,
                 .iteration = {.batch = training.batch_size_per_trainer,
                               .optimizer = training.optimizer,
                               .implementation = training.optimizer_implementation,
                               .gradient_accumulation = training.gradient_accumulation,
                               .checkpointing = training.activation_checkpointing,
                               .checkpoint_modules = training.checkpoint_modules,
                               .reentrant_checkpointing = request.reentrant_checkpointing,
                               .halve_floats = chosen->halve_floats,
                               .gpu_family = convolution_family_of(request),
                               .convolution_workspace = request.learned.convolution_workspace,
                               .replication = {.without_padding = request.without_padding},
                               .separate_step = {},
                               .set_to_none = !keeps_gradients(training, true),
                               .averaged_model = training.averaged_model,
                               .grad_scaler = training.grad_scaler,
                               .saving = request.training->checkpoint_saving,
                               .between = request.between,
                               .zero_grad_before_backward = request.zero_grad_before_backward,
                               .lenient = request.lenient,
                               .budget = request.budget}});
  if (!ranks) {
    run.beyond_any_machine = ranks.error().code == ErrorCode::kTooLarge;
    return run.beyond_any_machine ? Result<GraphRun>(std::move(run)) : ranks.error();
  }
  run.ranks = *std::move(ranks);
  const Result<TraceShapes> shapes = shapes_of(request, *run.trace, chosen->halve_floats);
  if (!shapes) {
    return shapes.error();
  }
  run.dense_parameters = parameter_bytes(*run.trace, *shapes);
  return run;
}

std::vector<LiveTensor> largest_live(const GraphRun& run) {
  return live_at_peak(*run.ranks.heaviest);
}

Estimate estimate_of(const GraphRun& run, const EstimateRequest& request, KnownReplays& known) {
  if (run.beyond_any_machine) {
    return estimate_beyond_any_machine(request, Bytes{});
  }
  const TraceRun& heaviest = *run.ranks.heaviest;
  Estimate estimate =
      estimate_of(heaviest.ledger, request, run.dense_parameters, known, heaviest.convolutions);
  estimate.largest_live = largest_live(run);
  estimate.host = heaviest.host;
  if (!tables_of(request).empty()) {
    estimate.lookups = heaviest.lookups;
  }
  if (run.ranks.peaks.size() > 1) {
    estimate.allocated_by_rank = run.ranks.peaks;
  }
  add_notes(*run.trace, estimate);
  for (const std::vector<std::string>* warnings : {&run.ranks.warnings, &heaviest.warnings}) {
    estimate.warnings.insert(estimate.warnings.end(), warnings->begin(), warnings->end());
  }
  if (request.training->cudnn_benchmark && heaviest.convolutions.traffic.count == 0) {
    estimate.warnings.emplace_back(
        "training.cudnnBenchmark changes nothing: the graph has no convolution that cuDNN runs");
  }
  return estimate;
}

Result<Estimate> estimate_by_amp(const GraphRun& run, const EstimateRequest& request) {
  if (run.beyond_any_machine) {
    return estimate_beyond_any_machine(request, Bytes{});
  }
  const Result<SelectedTrace> chosen = select_trace(request);
  const Result<TraceShapes> shapes =
      chosen ? shapes_of(request, *run.trace, chosen->halve_floats) : chosen.error();
  if (!shapes) {
    return shapes.error();
  }
  Result<Estimate> estimate =
      estimate_by_amp(request, *run.trace, *shapes, request.graph->producer.version,
                      [&](std::int64_t batch) { return amp_training_bytes(*run.trace, batch); });
  if (estimate) {
    add_notes(*run.trace, *estimate);
  }
  return estimate;
}

}  // namespace plimsoll::estimator::estimate
