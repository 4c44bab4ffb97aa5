// Llama 3's sizes (arXiv 2407.21783, table 3) as jobs: 8,192 tokens, FSDP2 with full checkpointing, BF16, AdamW, nodes of
// eight, which may be resized. Pure.
#pragma once

#include <cstdint>

#include "crds/training_job.h"

namespace plimsoll::estimator::testing {

struct LlamaSizes {
  const char* name;
  std::int64_t layers, hidden, heads, ffn;
};
inline constexpr LlamaSizes kLlama8B = {"8B", 32, 4096, 32, 14'336};
inline constexpr LlamaSizes kLlama70B = {"70B", 80, 8192, 64, 28'672};
inline constexpr LlamaSizes kLlama405B = {"405B", 126, 16'384, 128, 53'248};

inline crds::TrainingJob llama_job(const LlamaSizes& of, std::int64_t batch, std::int64_t tensor = 1,
                                   std::int64_t most = 512) {
  crds::TrainingJob job;
  job.name = of.name;
  crds::TransformerModel& sizes = job.spec.model.transformer.emplace();
  sizes.layers = of.layers;
  sizes.hidden = of.hidden;
  sizes.heads = of.heads;
  sizes.kv_heads = 8;
  sizes.ffn = of.ffn;
  sizes.vocab = 128'256;
  sizes.sequence_length = 8192;
  sizes.attention = crds::AttentionKind::kFlash;
  crds::TrainingSpec& training = job.spec.training;
  training.batch_size_per_trainer = batch;
  training.precision = crds::Precision::kBF16Mixed;
  training.optimizer = crds::Optimizer::kAdamW;
  training.activation_checkpointing = crds::ActivationCheckpointing::kFull;
  training.parallelism.strategy = crds::ParallelStrategy::kFSDP2;
  training.parallelism.tensor = tensor;
  job.spec.trainers = {.replicas = most, .per_node = 8, .gpu_model = {}, .replicas_given = true};
  job.spec.provisioning.max_trainers = most;
  job.spec.provisioning.resize_data_parallel = true;
  return job;
}

}  // namespace plimsoll::estimator::testing
