// An exported graph, plain or gzipped, to the estimate of a trainer.
#include <string>

#include "base/budget.h"
#include "estimator/catalog/gpu_catalog.h"
#include "estimator/estimate/estimate.h"
#include "estimator/provisioner/provisioner.h"
#include "estimator/trace/import_graph.h"
#include "tests/fuzz/target.h"

namespace plimsoll::testing {
namespace {

crds::Precision precision_of(const estimator::Trace& trace) {
  const Result<crds::Precision> precision = crds::parse_enum<crds::Precision>(trace.precision);
  return precision ? *precision : crds::Precision::kFP32;
}

}  // namespace

FUZZ_TARGET(graph) {
  static const estimator::GpuCatalog catalog = estimator::GpuCatalog::built_in();
  static const estimator::GpuModel* const gpu = catalog.find("A100-80GB");
  Budget budget({.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(50),
                 .memory = estimator::kDecisionMemory});
  const Result<estimator::TraceFile> graph =
      budget.run([&] { return estimator::import_traces(input, {.text = 1_MiB, .budget = &budget}); });
  if (!graph) {
    require(!graph.error().message.empty(), "an error says what is wrong");
    return;
  }
  (void)estimator::memory_of(*graph);
  crds::ModelSpec model;
  model.graph.emplace();
  for (const estimator::Trace& trace : graph->traces) {
    const bool is_cuda = trace.device == estimator::Device::kCuda;
    // Plain; split by tensor; in stages.
    for (const int way : {0, 1, 2}) {
      crds::TrainingSpec training;
      training.batch_size_per_trainer = 8;
      training.precision = precision_of(trace);
      training.gradient_accumulation = way == 0 ? 1 : 2;
      training.parallelism.tensor = way == 1 ? 2 : 1;
      training.parallelism.pipeline = way == 2 ? 2 : 1;
      const Result<estimator::Estimate> estimate = budget.run([&] {
        return estimator::estimate_memory(
            {.model = &model,
             .training = &training,
             .graph = &*graph,
             .gpu = is_cuda ? gpu : nullptr,
             .trainers = 4,
             .device = is_cuda ? estimator::Device::kCuda : estimator::Device::kCpu,
             .budget = &budget});
      });
      if (estimate) {
        require(estimate->peak.upper_bound >= Bytes{}, "a peak is not negative");
        require(estimate->breakdown.total() == estimate->peak.upper_bound, "the parts add up to the peak");
      }
    }
  }
}

}  // namespace plimsoll::testing
