#include "crds/embedding_tables_csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <clocale>

#include "base/gzip.h"

namespace plimsoll::crds {
namespace {

using ::testing::HasSubstr;

std::string error_of(std::string_view text) {
  const auto tables = parse_embedding_tables_csv(text);
  return tables ? "parsed" : to_string(tables.error());
}

TEST(EmbeddingTablesCsv, ReadsCommentsHeaderAndBothWidths) {
  const auto tables = parse_embedding_tables_csv(
      "\xEF\xBB\xBF# synthetic\r\n"
      "name,rows,dim,pooling_factor,lookup_frequency\r\n"
      "\r\n"
      "t0,5185,256,5.424,0.7637\r\n"
      "  # two columns less is no table, one less is\n"
      " t1 , 425695,\t128 ,1e1");
  ASSERT_TRUE(tables.ok()) << to_string(tables.error());
  ASSERT_EQ(tables->size(), 2U);
  EXPECT_EQ((*tables)[0], (EmbeddingTable{"t0", 1, 5185, 256, DataType::kFP32, 5.424, 0.7637}));
  EXPECT_EQ((*tables)[1], (EmbeddingTable{"t1", 1, 425695, 128, DataType::kFP32, 10, 1}));
}

TEST(EmbeddingTablesCsv, HeaderIsOptional) {
  EXPECT_EQ(parse_embedding_tables_csv("t0,10,8,1\n")->size(), 1U);
  EXPECT_EQ(parse_embedding_tables_csv("name,rows,dim,pooling_factor\nt0,10,8,1\n")->size(), 1U);
  EXPECT_THAT(error_of("name,dim,rows,pooling_factor\nt0,10,8,1\n"),
              HasSubstr("line 1: rows must be an integer"));
  EXPECT_THAT(error_of("t0,10,8,1\nname,rows,dim,pooling_factor\n"),
              HasSubstr("line 2: rows must be an integer"));
}

TEST(EmbeddingTablesCsv, ReadsGzip) {
  const auto tables = parse_embedding_tables_csv(gzip("t0,10,8,1\nt1,20,8,2.5\n"));
  ASSERT_TRUE(tables.ok());
  EXPECT_DOUBLE_EQ((*tables)[1].pooling_factor, 2.5);
  EXPECT_THAT(error_of(gzip("t0,10,8,1\n").substr(0, 20)), HasSubstr("not a whole gzip file"));
}

TEST(EmbeddingTablesCsv, NamesTheLine) {
  EXPECT_THAT(error_of("t0,10,8,1\n\nt1,10,8\n"), HasSubstr("line 3: must be name,rows,dim,pooling_factor"));
  EXPECT_THAT(error_of("t0,10,8,1,1,1\n"), HasSubstr("line 1: must be name,rows"));
  EXPECT_THAT(error_of("t0,ten,8,1\n"), HasSubstr("line 1: rows must be an integer (near `ten`)"));
  EXPECT_THAT(error_of("t0,1.5,8,1\n"), HasSubstr("line 1: rows must be an integer"));
  EXPECT_THAT(error_of("t0,99999999999999999999,8,1\n"), HasSubstr("line 1: rows must be an integer"));
  EXPECT_THAT(error_of("t0,10,,1\n"), HasSubstr("line 1: dim must be an integer"));
  EXPECT_THAT(error_of("t0,10,8,many\n"), HasSubstr("line 1: pooling_factor must be a number"));
  EXPECT_THAT(error_of("t0,10,8,1,\n"), HasSubstr("line 1: lookup_frequency must be a number"));
  EXPECT_THAT(error_of("t0,0,8,1\n"), HasSubstr("line 1: t0.rows: must be at least 1, is 0"));
  EXPECT_THAT(error_of("t0,10,70000,1\n"), HasSubstr("t0.dim: must be at most 65536"));
  EXPECT_THAT(error_of("t0,10,8,nan\n"), HasSubstr("t0.poolingFactor"));
  EXPECT_THAT(error_of("t0,10,8,inf\n"), HasSubstr("t0.poolingFactor"));
  EXPECT_THAT(error_of("t0,10,8,1,-0.1\n"), HasSubstr("t0.lookupFrequency"));
  EXPECT_THAT(error_of("\"t0\",10,8,1\n"), HasSubstr("line 1: name must be"));
  EXPECT_THAT(error_of("t0,10,8,1\nt0,10,8,1\n"), HasSubstr("line 2: the name is already in line 1"));
}

TEST(EmbeddingTablesCsv, RefusesWhatHoldsNoTables) {
  EXPECT_THAT(error_of(""), HasSubstr("holds no embedding tables"));
  EXPECT_THAT(error_of("# nothing\n\n"), HasSubstr("holds no embedding tables"));
  EXPECT_THAT(error_of("name,rows,dim,pooling_factor\n"), HasSubstr("holds no embedding tables"));
  EXPECT_THAT(error_of(std::string_view("\x7f"
                                        "ELF\0\0\x01,\x02",
                                        9)),
              HasSubstr("line 1"));
}

TEST(EmbeddingTablesCsv, IsLimited) {
  std::string text;
  for (std::int64_t i = 0; i <= kMaxEmbeddingTables; ++i) {
    text += "t" + std::to_string(i) + ",10,8,1\n";
  }
  EXPECT_THAT(error_of(text), HasSubstr("RequestEntityTooLarge: holds more than 100000 tables"));
  text.resize(text.rfind('t'));
  EXPECT_EQ(parse_embedding_tables_csv(text)->size(), static_cast<std::size_t>(kMaxEmbeddingTables));
  const std::string bomb = gzip(std::string((65 << 20), '\n'));
  EXPECT_LT(bomb.size(), 100'000U);
  EXPECT_THAT(error_of(bomb), HasSubstr("RequestEntityTooLarge"));
}

TEST(EmbeddingTablesCsv, DoesNotCareForTheLocale) {
  const std::string before = std::setlocale(LC_ALL, nullptr);
  std::setlocale(LC_ALL, "de_DE.UTF-8");  // a comma for the point, where it is installed
  EXPECT_DOUBLE_EQ((*parse_embedding_tables_csv("t0,10,8,1.5\n"))[0].pooling_factor, 1.5);
  std::setlocale(LC_ALL, before.c_str());
}

}  // namespace
}  // namespace plimsoll::crds
