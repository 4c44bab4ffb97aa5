#include "crds/decoder.h"

#include <gtest/gtest.h>

#include "crds/training_job_fields.h"
#include "tests/crds/test_jobs.h"

namespace plimsoll::crds {
namespace {

// What a decoder of these members says: "field: message; ...".
template <class Read>
std::string errors_of(const std::string& object, Read read) {
  const Json tree = yaml(object);
  const FieldPath path("spec");
  FieldErrors errors;
  Decoder decoder(tree, path, errors);
  read(decoder);
  return to_string(errors.list(), 100);
}

std::string integer_error(const std::string& value) {
  return errors_of("{count: " + value + "}", [](Decoder& decoder) {
    std::int64_t count = 7;
    decoder.integer("count", count, Presence::kOptional, {0, 10});
  });
}

TEST(Decoder, ValuesAreQuotedOnOneLineAndShort) {
  EXPECT_EQ(crds::quoted("a\"b\n"), R"("a\"b\n")");
  EXPECT_EQ(crds::quoted(std::string(64, 'x')), '"' + std::string(64, 'x') + '"');
  EXPECT_EQ(crds::quoted(std::string(65, 'x')), '"' + std::string(64, 'x') + "\"...");
}

TEST(Decoder, NamesWhatItFound) {
  const std::pair<const char*, const char*> kinds[] = {{"true", "a boolean"},
                                                       {"text", "a string"},
                                                       {"[]", "a list"},
                                                       {"{}", "an object"},
                                                       {"5", "an integer"},
                                                       {"5.0", "an integer"},
                                                       {"5.5", "a number with a fraction"},
                                                       {"null", "null"}};
  for (const auto& [text, kind] : kinds) {
    EXPECT_STREQ(kind_of(yaml("[" + std::string(text) + "]")[0]), kind) << text;
  }
  EXPECT_STREQ(kind_of(Json(::Json::UInt64{1} << 63U)), "an integer of more than 64 bits");
}

TEST(Decoder, NullIsAbsent) {
  std::int64_t count = 7;
  const auto read = [&](Presence presence) {
    return [&count, presence](Decoder& decoder) { decoder.integer("count", count, presence, {0, 10}); };
  };
  for (const char* object : {"{}", "{count: null}"}) {
    EXPECT_EQ(errors_of(object, read(Presence::kOptional)), "");
    EXPECT_EQ(errors_of(object, read(Presence::kDefaulted)), "");
    EXPECT_EQ(errors_of(object, read(Presence::kRequired)), "spec.count: is required");
    EXPECT_EQ(count, 7) << "the default stays";
  }
}

// 2^63 is the first double that is no 64-bit integer; -2^63 still is one.
TEST(Decoder, IntegersAreWholeNumbersOf64Bits) {
  for (const char* value : {"5", "-5.0", "9223372036854775807", "-9223372036854775808", "1e3", "100"}) {
    EXPECT_EQ(integer_error(value), "") << value << ": ranges are the Checker's";
  }
  EXPECT_EQ(integer_error("0.5"), "spec.count: must be an integer, is a number with a fraction");
  EXPECT_EQ(integer_error("'5'"), "spec.count: must be an integer, is a string");
  EXPECT_NE(integer_error("9223372036854775808"), "");
  EXPECT_NE(integer_error("1e300"), "");
}

TEST(Decoder, CollectsAllThatIsWrongAndReadsTheRest) {
  bool flag = false;
  std::string name = "default";
  std::vector<std::int64_t> widths;
  Optimizer optimizer = Optimizer::kAdam;
  const std::string errors =
      errors_of("{flag: 1, name: found, widths: [1, two, 3], optimizer: adam}", [&](Decoder& decoder) {
        decoder.boolean("flag", flag, Presence::kRequired);
        decoder.text("name", name, Presence::kRequired, kTableName);
        decoder.integers("widths", widths, Presence::kRequired, {0, 3}, {0, 10});
        decoder.choice("optimizer", optimizer, Presence::kRequired);
      });
  EXPECT_EQ(
      errors,
      "spec.flag: must be true or false, is an integer; spec.widths[1]: must be an integer, is a string; "
      "spec.optimizer: must be one of " +
          enum_choices<Optimizer>() + ", is \"adam\"");
  EXPECT_FALSE(flag);
  EXPECT_EQ(name, "found");
  EXPECT_EQ(widths, (std::vector<std::int64_t>{1, 0, 3}));
  EXPECT_EQ(optimizer, Optimizer::kAdam);
}

TEST(Decoder, AListOfAWrongLengthIsNotReadAtAll) {
  std::vector<std::int64_t> widths;
  const auto read = [&](Decoder& decoder) {
    decoder.integers("widths", widths, Presence::kOptional, {2, 3}, {0, 10});
  };
  EXPECT_EQ(errors_of("{widths: [1]}", read), "spec.widths: must have 2 to 3 items, has 1");
  EXPECT_EQ(errors_of("{widths: [1, 2, 3, x]}", read), "spec.widths: must have 2 to 3 items, has 4");
  EXPECT_EQ(errors_of("{widths: {}}", read), "spec.widths: must be a list, is an object");
  EXPECT_TRUE(widths.empty());
}

TEST(Decoder, AnOptionalThatCannotBeReadIsAbsent) {
  std::optional<Bytes> memory;
  std::optional<double> ratio;
  const auto read = [&](Decoder& decoder) {
    decoder.optional_bytes("memory", memory, kPositiveBytes);
    decoder.optional_decimal("ratio", ratio, kBumpUpRatio);
  };
  EXPECT_EQ(errors_of("{memory: 2Gi, ratio: '1.5'}", read), "");
  EXPECT_EQ(memory, 2_GiB);
  EXPECT_EQ(ratio, 1.5);
  EXPECT_NE(errors_of("{memory: much, ratio: 1.5}", read), "");
  EXPECT_EQ(memory, std::nullopt);
  EXPECT_EQ(ratio, std::nullopt) << "a decimal stands in quotes";
  EXPECT_EQ(errors_of("{memory: 1024, ratio: 2}", read), "");
  EXPECT_EQ(memory, 1_KiB);
  EXPECT_EQ(ratio, 2);
}

TEST(Decoder, APercentageIsAShare) {
  double headroom = 0;
  const auto read = [&](Decoder& decoder) {
    decoder.percentage("headroom", headroom, Presence::kOptional, kPercentage);
  };
  EXPECT_EQ(errors_of("{headroom: 12.5%}", read), "");
  EXPECT_DOUBLE_EQ(headroom, 0.125);
  for (const char* value : {"100%", "5", "'5'", "-1%"}) {
    EXPECT_NE(errors_of("{headroom: " + std::string(value) + "}", read), "") << value;
  }
  EXPECT_DOUBLE_EQ(headroom, 0.125);
}

TEST(Decoder, ErrorsOfNestedObjectsHaveTheirWholePath) {
  std::vector<EmbeddingTable> tables;
  EXPECT_EQ(errors_of("{tables: [{name: a, rows: 1, dim: 8}, {name: b, rows: many, dim: 8}, 5]}",
                      [&](Decoder& decoder) {
                        decoder.objects("tables", tables, Presence::kRequired, {1, 10});
                      }),
            "spec.tables[1].rows: must be an integer, is a string; spec.tables[2]: must be an object, is an "
            "integer");
  EXPECT_EQ(errors_of("{inner: 5}",
                      [](Decoder& decoder) {
                        decoder.group("inner", Presence::kOptional,
                                      [](Decoder&) { ADD_FAILURE() << "it is no object"; });
                      }),
            "spec.inner: must be an object, is an integer");
}

}  // namespace
}  // namespace plimsoll::crds
