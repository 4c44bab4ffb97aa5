#include "estimator/estimate/graph_estimate.h"

#include <algorithm>
#include <string>
#include <vector>

#include "estimator/estimate/amp.h"
#include "estimator/estimate/peak.h"
#include "estimator/estimate/ranks.h"
#include "estimator/execute/run_trace.h"
#include "estimator/trace/import_graph.h"
#include "estimator/trace/optimizer.h"
#include "estimator/trace/shapes.h"

namespace plimsoll::estimator::inline estimate {
namespace {

constexpr std::size_t kLargest = 10;

struct SelectedTrace {
  const Trace* trace = nullptr;
  bool halve_floats = false;
};

// The trace for the precision. TF32 uses the memory of FP32; if all values of the FP32 trace are fp32, pure
// BF16 is the same with half the width.
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

std::vector<LiveTensor> largest_live(const TraceRun& run) {
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

}  // namespace

Result<Estimate> estimate_trace(const EstimateRequest& request) {
  const Result<SelectedTrace> chosen = select_trace(request);
  if (!chosen) {
    return chosen.error();
  }
  const Trace& trace = *chosen->trace;
  const crds::TrainingSpec& training = *request.training;
  const Result<RankRuns> runs =
      run_ranks(trace, request.graph->producer,
                {.parallelism = training.parallelism,
                 .trainers = request.trainers,
                 .iteration = {.batch = training.batch_size_per_trainer,
                               .optimizer = training.optimizer,
                               .implementation = training.optimizer_implementation,
                               .gradient_accumulation = training.gradient_accumulation,
                               .checkpointing = training.activation_checkpointing,
                               .checkpoint_modules = training.checkpoint_modules,
                               .reentrant_checkpointing = request.reentrant_checkpointing,
                               .halve_floats = chosen->halve_floats,
                               .gpu_family = request.gpu == nullptr ? std::string() : request.gpu->family,
                               .convolution_workspace = request.learned.convolution_workspace,
                               .replication = {},
                               .separate_step = {},
                               .zero_grad_before_backward = request.zero_grad_before_backward,
                               .lenient = request.lenient,
                               .budget = request.budget}});
  if (!runs) {
    return runs.error().code == ErrorCode::kTooLarge
               ? Result<Estimate>(estimate_beyond_any_machine(request, Bytes{}))
               : runs.error();
  }
  const Result<TraceShapes> shapes =
      TraceShapes::at(trace, training.batch_size_per_trainer / training.gradient_accumulation,
                      {.halve_floats = chosen->halve_floats, .budget = request.budget});
  if (!shapes) {
    return shapes.error();
  }
  if (request.method == Method::kAmp) {
    Result<Estimate> estimate =
        estimate_by_amp(request, trace, *shapes, request.graph->producer.version,
                        [&](std::int64_t batch) { return amp_training_bytes(trace, batch); });
    if (estimate) {
      add_notes(trace, *estimate);
    }
    return estimate;
  }
  Estimate estimate = estimate_of(runs->heaviest->ledger, request, parameter_bytes(trace, *shapes));
  estimate.largest_live = largest_live(*runs->heaviest);
  if (runs->peaks.size() > 1) {
    estimate.allocated_by_rank = runs->peaks;
  }
  add_notes(trace, estimate);
  estimate.warnings.insert(estimate.warnings.end(), runs->warnings.begin(), runs->warnings.end());
  const std::vector<std::string>& more = runs->heaviest->warnings;
  estimate.warnings.insert(estimate.warnings.end(), more.begin(), more.end());
  return estimate;
}

}  // namespace plimsoll::estimator::estimate
