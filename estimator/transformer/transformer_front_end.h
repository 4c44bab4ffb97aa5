// TransformerFrontEnd: what makes tokens of images and of sound, as ViT, CLIP and Whisper do.
//
//   TransformerFrontEnd front_end(context);
//   TensorId x = front_end.patches("vision.");
//
// Not thread-safe.
#pragma once

#include <string>

#include "estimator/transformer/transformer_part.h"

namespace plimsoll::estimator::inline transformer {

class TransformerFrontEnd : TransformerPiece {
 public:
  explicit TransformerFrontEnd(TransformerContext& context) : TransformerPiece(context) {}

  // Images through a convolution whose stride is a patch, a token for the class before them, and positions.
  TensorId patches(const std::string& prefix);
  // Mel spectrograms through two convolutions, the second of which halves the frames, and fixed positions.
  TensorId frames(const std::string& prefix);
};

}  // namespace plimsoll::estimator::transformer
