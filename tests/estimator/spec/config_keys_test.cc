#include "estimator/spec/config_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plimsoll::estimator {
namespace {

using ::testing::HasSubstr;

const Json kConfig =
    *parse_json(R"({"layers": 12, "width": 32.0, "half": 0.5, "tied": true, "name": "gelu", "cap": null,
                                     "types": ["a"], "none": [], "architectures": ["BertModel"]})");

TEST(ConfigKeys, ReadsValuesAndDefaults) {
  ConfigKeys keys(kConfig, "config");
  EXPECT_EQ(keys.integer("layers", 1), 12);
  EXPECT_EQ(keys.integer("width", 1), 32);
  EXPECT_EQ(keys.required("layers"), 12);
  EXPECT_EQ(keys.integer("absent", 7), 7);
  EXPECT_EQ(keys.number("half", 0), 0.5);
  EXPECT_TRUE(keys.boolean("tied", false));
  EXPECT_EQ(keys.text("name", ""), "gelu");
  EXPECT_EQ(keys.architecture(), "BertModel");
  EXPECT_TRUE(keys.has_items("types"));
  EXPECT_FALSE(keys.has_items("none"));
  EXPECT_FALSE(keys.error());
}

TEST(ConfigKeys, NullIsAbsentButMayTurnOff) {
  ConfigKeys keys(kConfig, "config");
  EXPECT_FALSE(keys.has("cap"));
  EXPECT_EQ(keys.number("cap", 50), 50);
  EXPECT_EQ(keys.number_or_null("cap", 50), 0);
  EXPECT_EQ(keys.number_or_null("absent", 50), 50);
  EXPECT_EQ(keys.integer_or_null("cap", 50), 0);
  EXPECT_EQ(keys.integer_or_null("absent", 50), 50);
  EXPECT_EQ(keys.integer_or_null("layers", 50), 12);
}

TEST(ConfigKeys, TheFirstWrongValueIsTheError) {
  ConfigKeys keys(kConfig, "model.transformer.config");
  EXPECT_EQ(keys.integer("name", 3), 3);
  keys.required("absent");
  ASSERT_TRUE(keys.error());
  EXPECT_EQ(keys.error()->message, "model.transformer.config: name must be an integer");
}

TEST(ConfigKeys, WhatIsNotModelledIsRefused) {
  ConfigKeys keys(kConfig, "config");
  keys.only("absent", false);
  EXPECT_FALSE(keys.error());
  keys.only("tied", false);
  ASSERT_TRUE(keys.error());
  EXPECT_THAT(keys.error()->message, HasSubstr("tied is supported only as false"));
}

TEST(ConfigKeys, KnowsWhatItWasAskedFor) {
  const Json config = *parse_json(R"({"a": 1, "b": [1], "c": {}, "d": 2})");
  ConfigKeys keys(config, "config");
  keys.integer("a", 0);
  keys.has_items("b");
  keys.nested("c");
  keys.number_or_null("absent", 0);
  keys.architecture();
  EXPECT_EQ(keys.asked(), (std::set<std::string>{"a", "absent", "architectures", "b", "c"}));
}

TEST(ConfigKeys, LabelsAreNamedOrCounted) {
  const auto labels = [](const char* text) {
    const Json config = *parse_json(text);
    ConfigKeys keys(config, "config");
    const std::int64_t count = keys.labels();
    return keys.error() ? -1 : count;
  };
  EXPECT_EQ(labels("{}"), 2);
  EXPECT_EQ(labels(R"({"num_labels": 7})"), 7);
  EXPECT_EQ(labels(R"({"num_labels": 7, "id2label": {"0": "a"}})"), 1);
  EXPECT_EQ(labels(R"({"id2label": [1]})"), -1);
}

}  // namespace
}  // namespace plimsoll::estimator
