#include "workloads/description.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json/edit.h"

namespace plimsoll::workloads {
namespace {

using ::testing::HasSubstr;

const ConfigMapKey kKey{"llama", "model"};
constexpr const char* kTraining = "{batchSizePerTrainer: 4, precision: BF16Mixed}";

Json annotated(std::initializer_list<std::pair<std::string_view, Json>> annotations) {
  JsonObject object;
  object["metadata"]["annotations"] = json_object(annotations);
  return std::move(object).take();
}

TEST(Description, IsModelAndTrainingAsInATrainingJob) {
  const Result<Description> description = read_description(
      "model: {transformer: {layers: 2, seqLen: 128}}\ntraining: {batchSizePerTrainer: 8}\n", kKey, Json());
  ASSERT_TRUE(description) << description.error().message;
  EXPECT_EQ(description->model["transformer"]["layers"], 2);
  EXPECT_EQ(description->training["batchSizePerTrainer"], 8);
}

TEST(Description, IsAConfigJson) {
  const std::string config = R"({"model_type": "llama", "max_position_embeddings": 4096})";
  const Result<Description> longest =
      read_description(config, kKey, annotated({{kTrainingAnnotation, kTraining}}));
  ASSERT_TRUE(longest) << longest.error().message;
  EXPECT_EQ(longest->model["transformer"]["config"], config);
  EXPECT_EQ(longest->model["transformer"]["seqLen"], 4096);
  EXPECT_EQ(longest->training["batchSizePerTrainer"], 4);
  const Result<Description> shorter = read_description(
      config, kKey, annotated({{kTrainingAnnotation, kTraining}, {kSequenceAnnotation, "512"}}));
  EXPECT_EQ(shorter->model["transformer"]["seqLen"], 512);
  EXPECT_THAT(
      read_description(R"({"model_type": "llama"})", kKey, annotated({{kTrainingAnnotation, kTraining}}))
          .error()
          .message,
      HasSubstr(kSequenceAnnotation));
}

TEST(Description, IsAnExportedGraph) {
  for (const char* text : {"{\"format\": \"plimsoll-graph/1\"}", "\x1f\x8b\x08 zipped"}) {
    const Result<Description> description =
        read_description(text, kKey, annotated({{kTrainingAnnotation, kTraining}}));
    ASSERT_TRUE(description) << description.error().message;
    EXPECT_EQ(description->model["graph"]["configMapKeyRef"]["name"], "llama");
    EXPECT_EQ(description->model["graph"]["configMapKeyRef"]["key"], "model");
  }
}

TEST(Description, WhatIsMissingIsSaid) {
  EXPECT_THAT(read_description(R"({"model_type": "llama"})", kKey, Json()).error().message,
              HasSubstr("annotation plimsoll.dev/training is missing"));
  EXPECT_THAT(read_description("{a: 1}", kKey, annotated({{kTrainingAnnotation, kTraining}})).error().message,
              HasSubstr("ConfigMap llama, key model must hold"));
  EXPECT_FALSE(read_description("[1, 2]", kKey, Json()));
  EXPECT_FALSE(read_description("", kKey, Json()));
  EXPECT_FALSE(read_description("a: [", kKey, Json()));
  EXPECT_THAT(read_description(R"({"model_type": "llama"})", kKey, annotated({{kTrainingAnnotation, "[1]"}}))
                  .error()
                  .message,
              HasSubstr("annotation plimsoll.dev/training"));
}

TEST(Description, ALongTextIsJson) {
  const std::string filler(70'000, 'x');
  const Result<Description> json = read_description(
      R"({"model": {"transformer": {}}, "training": {}, "note": ")" + filler + "\"}", kKey, Json());
  EXPECT_TRUE(json) << json.error().message;
  const Result<Description> yaml =
      read_description("model: {transformer: {}}\ntraining: {}\nnote: " + filler, kKey, Json());
  ASSERT_FALSE(yaml);
  EXPECT_THAT(yaml.error().message, HasSubstr("must be one JSON object"));
}

TEST(ConfigMapKey, IsANameAndAKey) {
  const Result<ConfigMapKey> key = parse_config_map_key("llama/config.json");
  ASSERT_TRUE(key);
  EXPECT_EQ(key->name, "llama");
  EXPECT_EQ(key->key, "config.json");
  for (const char* wrong : {"", "llama", "/key", "llama/", "other-namespace/llama/key"}) {
    EXPECT_FALSE(parse_config_map_key(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace plimsoll::workloads
