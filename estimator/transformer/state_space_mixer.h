// StateSpaceMixer: the operators of Mamba's mixer, as transformers runs them without the mamba-ssm package: a
// convolution over the tokens, then a recurrence with a state of its own for each channel (MambaMixer, and
// mamba_selective_scan in modeling_mamba.py). The package's kernels take less.
//
//   TensorId y = StateSpaceMixer(context).run("layers.0.mixer", x);
//
// Not thread-safe.
#pragma once

#include <string>

#include "estimator/transformer/transformer_part.h"

namespace plimsoll::estimator::inline transformer {

class StateSpaceMixer : TransformerPiece {
 public:
  explicit StateSpaceMixer(TransformerContext& context) : TransformerPiece(context) {}

  TensorId run(const std::string& name, TensorId x);

 private:
  TensorId convolved(const std::string& name, TensorId x);
  TensorId scanned(const std::string& name, TensorId x, TensorId gate);
};

}  // namespace plimsoll::estimator::transformer
