// other_passes(): what a training loop runs besides its usual iteration, which may have a higher peak or fragment the
// allocator's cache: batches padded to other lengths, an epoch's last, smaller batch, validation passes, and
// checkpoints that gather something on the GPU.
//
//   Result<std::vector<OtherPass>> passes = other_passes(request, spec, inputs);
//   std::vector<std::size_t> order = order_of_passes(*request.training);  // 1, 2, 0: last batch, validation, usual
//
// Pure; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "crds/training_job.h"
#include "estimator/spec/transformer_spec.h"
#include "estimator/trace/between_iterations.h"
#include "estimator/types/request.h"

namespace plimsoll::estimator::inline estimate {

bool has_other_passes(const crds::TrainingSpec& training);

// A pass is estimated like an iteration of these settings.
struct OtherPass {
  crds::TrainingSpec training;
  std::optional<TransformerSpec> spec;  // of a transformer
  std::optional<BetweenIterations> between{};
  std::string if_highest{};  // for users, if its peak is the highest
};

// By sequence length, then the last batch, validation, saving. `spec`: null for other models; `inputs`: size of the usual
// iteration's. Errors: kInvalid for a length above the model's; kUnsupported for a pipeline, for lengths of a model that
// is no transformer, and for a full checkpoint of tables or of layers that trainers split.
Result<std::vector<OtherPass>> other_passes(const EstimateRequest& request, const TransformerSpec* spec,
                                            Bytes inputs);

// The order in which a loop may run them: 0 is the usual iteration, i the pass i-1. Lengths come in random order,
// from a fixed seed; an epoch ends with its last batch and validation, and another one begins.
std::vector<std::size_t> order_of_passes(const crds::TrainingSpec& training);

}  // namespace plimsoll::estimator::estimate
