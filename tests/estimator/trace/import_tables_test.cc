#include "estimator/trace/import_tables.h"

#include <gtest/gtest.h>

#include <string>

namespace plimsoll::estimator {
namespace {

std::string with_tables(const std::string& table) {
  return R"({"embeddings": [)" + table + "]}";
}

constexpr const char* kUser =
    R"({"name": "user", "module": "sparse", "rows": 1000, "dim": 16, "dtype": "FP16", "pooling": "sum",
        "features": ["viewer", "author"], "poolingFactor": 2.5})";
constexpr const char* kHistory =
    R"({"name": "history", "rows": 50, "dim": 8, "dtype": "FP32", "pooling": "none", "features": ["h"],
        "poolingFactor": 7, "sequenceLength": 20})";

Result<std::vector<crds::EmbeddingTable>> imported(const std::string& text) {
  const Result<JsonText> json = JsonText::parse(text);
  EXPECT_TRUE(json.ok());
  return import_tables(json->root(), nullptr);
}

TEST(ImportTables, ReadsTheEmbeddingTables) {
  const auto tables = imported(with_tables(std::string(kUser) + "," + kHistory));
  ASSERT_TRUE(tables.ok()) << tables.error().message;
  ASSERT_EQ(tables->size(), 2U);
  const crds::EmbeddingTable expected{.name = "user",
                                      .rows = 1000,
                                      .dim = 16,
                                      .dtype = crds::DataType::kFP16,
                                      .pooling_factor = 2.5,
                                      .features = 2};
  EXPECT_EQ(tables->at(0), expected);
  EXPECT_EQ(tables->at(1).sequence_length, 20);
  EXPECT_TRUE(imported("{}")->empty());
}

TEST(ImportTables, AWrongTableIsNamedByItsPlace) {
  const auto problem = [](const std::string& what, const std::string& by) {
    std::string table = kUser;
    table.replace(table.find(what), what.size(), by);
    const auto tables = imported(with_tables(table));
    EXPECT_FALSE(tables.ok());
    return tables ? "" : tables.error().message;
  };
  EXPECT_EQ(problem("\"rows\": 1000", "\"rows\": \"many\""), "embeddings[0].rows: must be an integer");
  EXPECT_NE(problem("\"rows\": 1000", "\"rows\": 0").find("embeddings[0].rows"), std::string::npos);
  EXPECT_NE(problem("\"FP16\"", "\"FP64\"").find("embeddings[0].dtype"), std::string::npos);
  EXPECT_NE(problem("\"sum\"", "\"none\"").find("embeddings[0].sequenceLength"), std::string::npos);
  EXPECT_NE(problem("\"sum\"", "\"median\"").find("embeddings[0].pooling"), std::string::npos);
  EXPECT_NE(problem("[\"viewer\", \"author\"]", "[]").find("embeddings[0].features"), std::string::npos);
  EXPECT_NE(problem("[\"viewer\", \"author\"]", "2").find("embeddings[0].features"), std::string::npos);
  EXPECT_NE(problem("2.5", "1e9").find("embeddings[0].poolingFactor"), std::string::npos);
  EXPECT_NE(problem("\"user\"", "7").find("embeddings[0].name"), std::string::npos);
  const auto twice = imported(with_tables(std::string(kUser) + "," + kUser));
  ASSERT_FALSE(twice.ok());
  EXPECT_NE(twice.error().message.find("embeddings[1].name"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll::estimator
