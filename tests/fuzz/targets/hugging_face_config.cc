// A Hugging Face config.json, to the estimate of a trainer.
#include <string>

#include "base/budget.h"
#include "estimator/catalog/gpu_catalog.h"
#include "estimator/estimate/estimate.h"
#include "estimator/provisioner/provisioner.h"
#include "tests/fuzz/target.h"

namespace plimsoll::testing {

FUZZ_TARGET(hugging_face_config) {
  static const estimator::GpuCatalog catalog = estimator::GpuCatalog::built_in();
  static const estimator::GpuModel* const gpu = catalog.find("A100-80GB");
  crds::ModelSpec model;
  model.transformer.emplace();
  model.transformer->config = std::string(input);
  model.transformer->sequence_length = 512;
  crds::TrainingSpec training;
  training.batch_size_per_trainer = 4;
  Budget budget({.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(50),
                 .memory = estimator::kDecisionMemory});
  const Result<estimator::Estimate> estimate = budget.run([&] {
    return estimator::estimate_memory(
        {.model = &model, .training = &training, .gpu = gpu, .trainers = 8, .budget = &budget});
  });
  if (estimate) {
    require(estimate->peak.upper_bound >= Bytes{}, "a peak is not negative");
    require(estimate->breakdown.total() == estimate->peak.upper_bound, "the parts add up to the peak");
  }
}

}  // namespace plimsoll::testing
