#include "tests/fake_apiserver/table.h"

#include <gtest/gtest.h>

#include "tests/fake_apiserver/json_path.h"
#include "tests/fake_apiserver/test_widgets.h"

namespace plimsoll::testing::fake {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

TEST(Age, IsWrittenAsKubectlWritesIt) {
  EXPECT_EQ(format_age(seconds(0)), "0s");
  EXPECT_EQ(format_age(seconds(119)), "119s");
  EXPECT_EQ(format_age(seconds(125)), "2m5s");
  EXPECT_EQ(format_age(minutes(10)), "10m");
  EXPECT_EQ(format_age(minutes(179)), "179m");
  EXPECT_EQ(format_age(minutes(200)), "3h20m");
  EXPECT_EQ(format_age(hours(9)), "9h");
  EXPECT_EQ(format_age(hours(50)), "2d2h");
  EXPECT_EQ(format_age(hours(24 * 9)), "9d");
  EXPECT_EQ(format_age(hours(24 * 800)), "2y70d");
  EXPECT_EQ(format_age(seconds(-9)), "<invalid>");
  EXPECT_EQ(age_since(Json("yesterday")), "<unknown>");
  EXPECT_EQ(age_since(Json()), "<unknown>");
}

std::string at(const Json& object, const std::string& path) {
  const auto values = values_at(object, path);
  return values.empty() ? "nothing" : write_json(*values[0]);
}

TEST(JsonPath, FindsWhatPrinterColumnsName) {
  const Json object = *parse_json(
      R"({"a":{"b.c":1,"d":[{"t":"x","s":"1"},{"t":"Ready","s":"2"}]},"l":{"k/v":"w"},"n":[[5]]})");
  EXPECT_EQ(at(object, ".a.d[1].s"), "\"2\"");
  EXPECT_EQ(at(object, ".a.d[?(@.t==\"Ready\")].s"), "\"2\"");
  EXPECT_EQ(at(object, ".a.d[?(@.t!='Ready')].s"), "\"1\"");
  EXPECT_EQ(at(object, ".a['b\\.c']"), "1");
  EXPECT_EQ(at(object, ".a.b\\.c"), "1");
  EXPECT_EQ(at(object, ".l.k/v"), "\"w\"");
  EXPECT_EQ(at(object, ".n[0][0]"), "5");
  EXPECT_EQ(at(object, ".a.d[*].t"), "\"x\"");
  for (const char* nowhere :
       {".x", ".a.d[9]", ".a.d[", ".a.d[?(broken)]", ".a.b.c", ".a['b.c']", ".a.d[-1]"}) {
    EXPECT_EQ(at(object, nowhere), "nothing") << nowhere;
  }
}

TEST(Table, ShowsTheColumnsOfACustomType) {
  WidgetApi server;
  server.create("a", R"({"size":2})");
  server.merge("a", R"({"status":{"conditions":[{"type":"Ready","status":"True"}]}})", "status");
  Request request;
  request.method = "GET";
  request.path = kWidgets;
  request.accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
  const Answer answer = server.api.handle(request);
  const Json table = *parse_json(std::get<Reply>(answer).body);
  EXPECT_EQ(table["kind"].asString(), "Table");
  ASSERT_EQ(table["columnDefinitions"].size(), 5U);
  EXPECT_EQ(table["columnDefinitions"][3]["priority"].asInt(), 1);
  EXPECT_EQ(write_json(table["rows"][0]["cells"]), R"(["a",2,"True","Red","0s"])");
  EXPECT_EQ(table["rows"][0]["object"]["kind"].asString(), "PartialObjectMetadata");
}

TEST(Format, TakesTheFirstThatItCanMake) {
  EXPECT_EQ(negotiate("")->kind, Format::Kind::kObject);
  EXPECT_EQ(negotiate("application/vnd.kubernetes.protobuf,application/json")->kind, Format::Kind::kObject);
  EXPECT_EQ(negotiate("application/json;as=Table;g=meta.k8s.io;v=v1beta1")->table.version, "v1beta1");
  EXPECT_EQ(negotiate("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")->kind,
            Format::Kind::kMetadata);
  EXPECT_TRUE(negotiate("application/yaml")->yaml);
  EXPECT_FALSE(negotiate("image/png"));
}

}  // namespace
}  // namespace plimsoll::testing::fake
