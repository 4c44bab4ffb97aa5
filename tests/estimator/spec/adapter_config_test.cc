#include "estimator/spec/adapter_config.h"

#include <gtest/gtest.h>

namespace plimsoll::estimator {
namespace {

using crds::FineTuningMethod;

std::string error_of(const std::string& text) {
  const Result<crds::FineTuning> read = read_adapter_config(text);
  return read ? "" : read.error().message;
}

// As peft 0.21 writes it, with all the keys that change nothing.
TEST(AdapterConfig, AFileOfPeftIsReadInFull) {
  const Result<crds::FineTuning> read = read_adapter_config(R"({
    "alora_invocation_tokens": null, "alpha_pattern": {"q_proj": 4}, "arrow_config": null, "auto_mapping": null,
    "base_model_name_or_path": "meta-llama/Llama-2-7b-hf", "bias": "lora_only", "corda_config": null,
    "ensure_weight_tying": false, "eva_config": null, "exclude_modules": ["lm_head"], "fan_in_fan_out": false,
    "inference_mode": true, "init_lora_weights": true, "layer_replication": null, "layers_pattern": null,
    "layers_to_transform": [0, 5], "loftq_config": {}, "lora_alpha": 32, "lora_bias": false, "lora_dropout": 0.05,
    "megatron_config": null, "megatron_core": "megatron.core", "modules_to_save": ["embed_tokens"],
    "peft_type": "LORA", "peft_version": "0.21.2", "qalora_group_size": 16, "r": 64, "rank_pattern": {"v_proj": 8},
    "revision": null, "target_modules": ["q_proj", "v_proj"], "target_parameters": null, "task_type": "CAUSAL_LM",
    "trainable_token_indices": null, "use_dora": true, "use_qalora": false, "use_rslora": true})");
  ASSERT_TRUE(read.ok()) << to_string(read.error());
  const crds::FineTuning expected{.method = FineTuningMethod::kDoRA,
                                  .bias = crds::TrainedBiases::kLoRAOnly,
                                  .rank = 64,
                                  .dropout = 0.05,
                                  .target_modules = {"q_proj", "v_proj"},
                                  .exclude_modules = {"lm_head"},
                                  .modules_to_save = {"embed_tokens"},
                                  .layers_to_transform = {0, 5},
                                  .rank_pattern = {{"v_proj", 8}}};
  EXPECT_EQ(*read, expected);
}

TEST(AdapterConfig, WhatIsAbsentHasPeftsDefault) {
  const Result<crds::FineTuning> read = read_adapter_config(R"({"peft_type": "LORA"})");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->method, FineTuningMethod::kLoRA);
  EXPECT_EQ(read->rank, 8);
  EXPECT_TRUE(read->target_modules.empty());
}

TEST(AdapterConfig, AllLinearIsReadInAnyCase) {
  const Result<crds::FineTuning> read =
      read_adapter_config(R"({"peft_type": "LORA", "target_modules": "All-Linear"})");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->target_modules, std::vector<std::string>{"all-linear"});
}

TEST(AdapterConfig, AnotherKindOfAdapterIsRefusedByName) {
  EXPECT_NE(error_of(R"({"peft_type": "IA3"})").find("IA3"), std::string::npos);
  EXPECT_NE(error_of("{}").find("peft_type is missing"), std::string::npos);
}

TEST(AdapterConfig, AWrongValueIsAnErrorThatNamesItsKey) {
  const std::pair<const char*, const char*> wrong[] = {{"r", "0"},
                                                       {"r", "\"8\""},
                                                       {"r", "65537"},
                                                       {"lora_dropout", "1"},
                                                       {"lora_dropout", "-0.5"},
                                                       {"target_modules", "7"},
                                                       {"target_modules", "[7]"},
                                                       {"target_modules", "[\"\"]"},
                                                       {"modules_to_save", "{}"},
                                                       {"layers_to_transform", "\"all\""},
                                                       {"layers_to_transform", "[-1]"},
                                                       {"rank_pattern", "[8]"},
                                                       {"rank_pattern", "{\"q_proj\": 0}"},
                                                       {"bias", "\"some\""},
                                                       {"use_dora", "\"yes\""},
                                                       {"task_type", "\"CAUSAL\""},
                                                       {"lora_alpha", "\"32\""},
                                                       {"alpha_pattern", "[4]"},
                                                       {"use_rslora", "1"},
                                                       {"fan_in_fan_out", "1"},
                                                       {"init_lora_weights", "\"gausian\""},
                                                       {"init_lora_weights", "1"},
                                                       {"peft_type", "7"}};
  for (const auto& [key, value] : wrong) {
    const std::string type = std::string(key) == "peft_type" ? "" : R"("peft_type": "LORA", )";
    const std::string error = error_of("{" + type + "\"" + key + "\": " + value + "}");
    EXPECT_NE(error.find(key), std::string::npos) << key << ": " << value << " -> " << error;
  }
}

TEST(AdapterConfig, WhatIsNotModelledIsRefusedByName) {
  for (const char* key : {"layer_replication", "target_parameters", "trainable_token_indices", "use_qalora",
                          "lora_bias", "layers_pattern", "a_key_of_tomorrow"}) {
    const bool flag = std::string(key).starts_with("use_") || std::string(key) == "lora_bias";
    const std::string value = flag ? "true" : "[1]";
    const std::string error =
        error_of(R"({"peft_type": "LORA", ")" + std::string(key) + "\": " + value + "}");
    EXPECT_NE(error.find(key), std::string::npos) << error;
  }
  EXPECT_NE(error_of(R"({"peft_type": "LORA", "target_modules": ".*q_proj"})").find("regular expression"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"peft_type": "LORA", "task_type": "SEQ_CLS"})").find("SEQ_CLS"), std::string::npos);
}

// peft/tuners/lora/config.py, 0.21: each way to fill the weights of an adapter.
TEST(AdapterConfig, InitialValuesChangeNothing) {
  for (const char* value :
       {"true", "false", "null", "\"gaussian\"", "\"olora\"", "\"pissa\"", "\"pissa_niter_16\"", "\"corda\"",
        "\"loftq\"", "\"orthogonal\"", "\"lora_ga\""}) {
    EXPECT_EQ(error_of(R"({"peft_type": "LORA", "init_lora_weights": )" + std::string(value) + "}"), "")
        << value;
  }
}

TEST(AdapterConfig, MicaIsRefusedBecauseItFreezesB) {
  const std::string error = error_of(R"({"peft_type": "LORA", "init_lora_weights": "mica"})");
  EXPECT_NE(error.find("freezes each adapter's B"), std::string::npos) << error;
}

TEST(AdapterConfig, EvaIsRefusedUntilItsRanksAreKnown) {
  const std::string eva = R"({"peft_type": "LORA", "init_lora_weights": "eva")";
  EXPECT_NE(error_of(eva + "}").find("rank_pattern"), std::string::npos);
  EXPECT_NE(error_of(eva + R"(, "eva_config": {"rho": 1.5}})").find("rank_pattern"), std::string::npos);
  EXPECT_NE(error_of(eva + R"(, "eva_config": {"rho": 0}})").find("rho"), std::string::npos);
  EXPECT_EQ(error_of(eva + R"(, "eva_config": {"rho": 1.0}})"), "");
  EXPECT_EQ(error_of(eva + R"(, "rank_pattern": {"layers.0.self_attn.q_proj": 5}})"), "");
}

TEST(AdapterConfig, TextThatIsNoObjectIsRefused) {
  EXPECT_NE(error_of("[]").find("JSON object"), std::string::npos);
  EXPECT_NE(error_of("{").find("JSON object"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll::estimator
