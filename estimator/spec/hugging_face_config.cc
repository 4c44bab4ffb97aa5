#include "estimator/spec/hugging_face_config.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/json/json.h"
#include "estimator/spec/config_keys.h"
#include "estimator/spec/decoder_families.h"
#include "estimator/spec/encoder_families.h"

namespace plimsoll::estimator::inline spec {
namespace {

struct Family {
  const char* model_type;
  TransformerSpec (*read)(ConfigKeys& keys);
};
constexpr std::array kFamilies = {
    Family{"llama", llama_spec},
    Family{"mistral", llama_spec},
    Family{"mixtral", mixtral_spec},
    Family{"qwen2", qwen2_spec},
    Family{"qwen2_moe", qwen2_moe_spec},
    Family{"qwen3", qwen3_spec},
    Family{"qwen3_moe", qwen3_moe_spec},
    Family{"gpt2", gpt2_spec},
    Family{"bert", bert_spec},
    Family{"roberta", bert_spec},
    Family{"t5", t5_spec},
    Family{"mt5", t5_spec},
    Family{"deepseek_v2", deepseek_spec},
    Family{"deepseek_v3", deepseek_spec},
    Family{"gemma", gemma_spec},
    Family{"gemma2", gemma2_spec},
    Family{"gemma3_text", gemma3_spec},
    Family{"phi", phi_spec},
    Family{"phi3", phi3_spec},
    Family{"gpt_neox", gpt_neox_spec},
    Family{"stablelm", stablelm_spec},
    Family{"olmo2", olmo2_spec},
    Family{"opt", opt_spec},
    Family{"falcon", falcon_spec},
    Family{"bloom", bloom_spec},
    Family{"mamba", mamba_spec},
    Family{"llama4_text", llama4_spec},
    Family{"qwen3_next", qwen3_next_spec},
    Family{"vit", vit_spec},
    Family{"clip", clip_spec},
    Family{"whisper", whisper_spec},
};

}  // namespace

Result<TransformerSpec> read_hugging_face_config(const std::string& config) {
  Result<Json> json = parse_json(config);
  if (!json || !json->isObject()) {
    return invalid("model.transformer.config must be the text of a config.json, a JSON object" +
                   (json ? std::string() : ": " + json.error().message));
  }
  ConfigKeys keys(*json, "model.transformer.config");
  const std::string model_type = keys.text("model_type", "");
  const auto family = std::find_if(kFamilies.begin(), kFamilies.end(),
                                   [&](const Family& each) { return model_type == each.model_type; });
  if (family == kFamilies.end()) {
    std::string known;
    for (const Family& each : kFamilies) {
      known += (known.empty() ? "" : ", ") + std::string(each.model_type);
    }
    const std::string part =
        keys.json("text_config").isObject()
            ? ". It has a text_config: give that object alone as the config where only texts are trained"
            : "";
    return invalid(
        "model.transformer.config: model_type " +
        (model_type.empty() ? "is missing" : "\"" + model_type.substr(0, 64) + "\" is not known") +
        "; known are " + known + part +
        ". How another family's layers run is not known; record the model itself, with a function that "
        "builds it: python3 -m plimsoll.export MODULE:FUNCTION --batch-size B -o graph.json.gz (docs/graph.md)");
  }
  TransformerSpec spec = family->read(keys);
  if (keys.error()) {
    return *keys.error();
  }
  spec.model_type = model_type;
  return spec;
}

}  // namespace plimsoll::estimator::spec
