#include "estimator/spec/hugging_face_config.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json/edit.h"
#include "base/json/json.h"
#include "base/json/view.h"
#include "base/words.h"
#include "estimator/spec/config_keys.h"
#include "estimator/spec/decoder_families.h"
#include "estimator/spec/encoder_families.h"

namespace plimsoll::estimator::inline spec {
namespace {

constexpr const char* kRecord =
    "Record the model itself, with a function that builds it: python3 -m plimsoll.export MODULE:FUNCTION --batch-size B -o "
    "graph.json.gz (docs/graph.md)";

struct Family {
  const char* model_type;
  TransformerSpec (*read)(ConfigKeys& keys);
};
constexpr std::array kFamilies = {
    Family{"llama", llama_spec},
    Family{"mistral", mistral_spec},
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

// What is trained on the family's layers, by the class that `architectures` names; of none, the usual one.
void read_head(ConfigKeys& keys, TransformerSpec& spec) {
  const std::string name = keys.architecture();
  const auto ends_with_one_of = [&](std::initializer_list<std::string_view> ends) {
    return std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return name.ends_with(end); });
  };
  const bool classifies = ends_with_one_of({"ForSequenceClassification"});
  std::string_view known;  // of the family
  bool is_known = name.empty();
  if (spec.image.height > 0) {
    known = "ViTModel and ViTForImageClassification";
    is_known = is_known || ends_with_one_of({"ViTModel", "ForImageClassification"});
  } else if (!spec.towers.empty() && !spec.encoder_decoder) {
    known = "CLIPModel and WhisperForConditionalGeneration";
    is_known = is_known || ends_with_one_of({"CLIPModel", "ForConditionalGeneration"});
  } else if (spec.encoder_decoder) {
    known = "...ForConditionalGeneration";
    is_known = is_known || ends_with_one_of({"ForConditionalGeneration", "WithLMHeadModel"});
  } else if (!spec.causal()) {
    known = "...Model, ...ForMaskedLM, ...ForPreTraining and ...ForSequenceClassification";
    is_known = is_known || classifies || ends_with_one_of({"ForMaskedLM", "ForPreTraining"}) ||
               (name.ends_with("Model") && !name.ends_with("LMHeadModel"));
  } else {
    known = "...ForCausalLM and ...ForSequenceClassification";
    is_known = is_known || classifies || ends_with_one_of({"ForCausalLM", "LMHeadModel"});
    spec.head = classifies ? Head::kScore : spec.head;
  }
  if (!is_known) {
    keys.fail("architectures", "\"" + name.substr(0, 64) + "\" has a head that is not known; known are " +
                                   std::string(known) + ". " + kRecord);
  } else if (classifies) {
    spec.classes = keys.labels();
    if (spec.classes < 1) {
      keys.fail("num_labels", "must be at least 1");
    }
  }
}

// Each is compared with the keys that are read.
constexpr std::size_t kMaxKeys = 512;

// Keys that change what is held in memory and that no family reads. Each is refused unless it has the value that changes nothing.
struct Refused {
  const char* key;
  const char* why;
};
constexpr std::array kRefused = {
    Refused{
        "quantization_config",
        "says that the weights are quantised, and such weights are trained by an adapter alone: leave it out, and give the type "
        "as training.fineTuning.quantization (plimsoll estimate --adapter FILE --quantization TYPE)"},
    Refused{"output_hidden_states",
            "keeps the result of each layer until the iteration ends, which is not modelled"},
    Refused{"output_attentions",
            "keeps the scores of each layer until the iteration ends, which is not modelled"},
    Refused{"chunk_size_feed_forward", "computes the feed-forward part in chunks, which is not modelled"},
    Refused{"pruned_heads", "removes heads from single layers, which is not modelled"},
    Refused{"add_cross_attention", "gives each layer a second attention, which is not modelled"},
    Refused{"reorder_and_upcast_attn", "computes scores in fp32, which is not modelled"},
    Refused{"is_decoder", "makes a decoder of an encoder, which is not modelled"},
    Refused{"layerdrop", "leaves out other layers in each iteration, which is not modelled"},
};

// Null, false, 0, an empty list and an empty object change nothing.
bool changes_nothing(const Json& value) {
  const JsonView view(value);
  return view.is_null() || view.boolean() == false || view.number() == 0.0 ||
         ((value.isArray() || value.isObject()) && value.empty());
}

// Refuses a key that was not read and would change memory, and one that seems to be a misspelt key. All others pass, because most keys of a
// config say nothing of memory.
void check_unread(ConfigKeys& keys) {
  if (keys.config().size() > kMaxKeys) {
    return keys.fail("it", "has more than " + std::to_string(kMaxKeys) + " keys, which no config.json has");
  }
  std::vector<std::string> absent;
  for (const std::string& key : keys.asked()) {
    if (member(keys.config(), {key.c_str()}).isNull()) {
      absent.push_back(key);
    }
  }
  for (const auto& [name, value] : JsonView(keys.config()).members()) {
    if (keys.error()) {
      return;
    }
    const std::string key(name);
    if (keys.asked().contains(key) || key.starts_with('_')) {  // a private attribute of the class
      continue;
    }
    const auto* const refused =
        std::find_if(kRefused.begin(), kRefused.end(), [&](const Refused& each) { return key == each.key; });
    if (refused != kRefused.end()) {
      if (!changes_nothing(tree_of(value))) {
        keys.fail(key, refused->why);
      }
    } else if (const std::string meant = slip_of(key, absent); !meant.empty()) {
      keys.fail(key.substr(0, 64), "is not known; did you mean " + meant + "?");
    }
  }
}

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
    return invalid("model.transformer.config: model_type " +
                   (model_type.empty() ? "is missing" : "\"" + model_type.substr(0, 64) + "\" is not known") +
                   "; known are " + known + part + ". How another family's layers run is not known. " +
                   kRecord);
  }
  TransformerSpec spec = family->read(keys);
  read_head(keys, spec);
  check_unread(keys);
  if (keys.error()) {
    return *keys.error();
  }
  spec.model_type = model_type;
  return spec;
}

}  // namespace plimsoll::estimator::spec
