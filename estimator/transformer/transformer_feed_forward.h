// TransformerFeedForward: the operators of a layer's other half: matrices with an activation between them, or a
// mixture of experts.
//
//   TransformerFeedForward feed_forward(context);
//   TensorId y = feed_forward.run("layers.0.mlp", x, /*sparse=*/false);
//
// Not thread-safe.
#pragma once

#include <string>

#include "estimator/transformer/transformer_part.h"

namespace plimsoll::estimator::inline transformer {

class TransformerFeedForward : TransformerPiece {
 public:
  explicit TransformerFeedForward(TransformerContext& context) : TransformerPiece(context) {}

  // `sparse`: with the spec's experts.
  TensorId run(const std::string& name, TensorId x, bool sparse);

 private:
  TensorId dense(const std::string& name, TensorId x, std::int64_t ffn, bool flat);
  TensorId all_experts(const std::string& name, TensorId x);
  TensorId experts(const std::string& name, TensorId x);
};

}  // namespace plimsoll::estimator::transformer
