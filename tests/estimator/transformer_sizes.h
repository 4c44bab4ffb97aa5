// The sizes of published transformers, as a table of a test has them in a row. Pure; any thread.
#pragma once

#include <cstdint>

#include "crds/training_job.h"

namespace plimsoll::estimator::testing {

struct TransformerSizes {
  std::int64_t layers, hidden, ffn, heads, kv_heads, head_dim, vocab;
  std::int64_t experts = 0, experts_per_token = 0;
};

inline crds::ModelSpec model_of(const TransformerSizes& sizes, std::int64_t tokens) {
  crds::ModelSpec model;
  crds::TransformerModel& transformer = model.transformer.emplace();
  transformer.layers = sizes.layers;
  transformer.hidden = sizes.hidden;
  transformer.ffn = sizes.ffn;
  transformer.heads = sizes.heads;
  transformer.kv_heads = sizes.kv_heads;
  transformer.head_dim = sizes.head_dim;
  transformer.vocab = sizes.vocab;
  transformer.experts = sizes.experts;
  transformer.experts_per_token = sizes.experts_per_token;
  transformer.sequence_length = tokens;
  transformer.attention = crds::AttentionKind::kFlash;
  return model;
}

}  // namespace plimsoll::estimator::testing
