// The encoders, models with an encoder and a decoder, and models of images and sound among Hugging Face's families:
// members and defaults of configuration_<family>.py, and what differs in modeling_<family>.py, as fields of a
// TransformerSpec. Pure; any thread.
#pragma once

#include "estimator/spec/config_keys.h"
#include "estimator/spec/transformer_spec.h"

namespace plimsoll::estimator::inline spec {

TransformerSpec bert_spec(ConfigKeys& keys);
TransformerSpec t5_spec(ConfigKeys& keys);
TransformerSpec vit_spec(ConfigKeys& keys);
TransformerSpec clip_spec(ConfigKeys& keys);
TransformerSpec whisper_spec(ConfigKeys& keys);

}  // namespace plimsoll::estimator::spec
