// read_adapter_config(): peft's adapter_config.json as a job's training.fineTuning.
//
//   Result<crds::FineTuning> tuning = read_adapter_config(text);
//   tuning->rank;                             // LoraConfig's r
//
// What changes only the values of the weights (lora_alpha, most of init_lora_weights, ...) is checked and has no
// effect; all that changes the model and is not modelled is refused by name. Pure; any thread.
#pragma once

#include <string>

#include "base/result.h"
#include "crds/training_job.h"

namespace plimsoll::estimator::inline spec {

// Errors: kInvalid naming the key: text that is not a JSON object, values of the wrong type or out of range.
// kUnsupported for another peft_type, and for what LoraConfig has besides.
Result<crds::FineTuning> read_adapter_config(const std::string& text);

}  // namespace plimsoll::estimator::spec
