#include "webhook/table_source.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include <map>

#include "base/base64.h"
#include "base/gzip.h"
#include "tests/checkout.h"
#include "tests/kube/partial_client.h"

namespace plimsoll::webhook {
namespace {

using namespace std::chrono_literals;

constexpr const char* kCsv = "name,rows,dim,pooling_factor\nuser,1000,64,2.5\nitem,2000,128,1\n";

// ConfigMaps by namespace/name; everything but `get` is refused.
class ConfigMaps : public testing::PartialClient {
 public:
  Result<Json> get(const kube::Resource& resource, const std::string& namespace_name, const std::string& name,
                   const kube::CallOptions& options) override {
    ++gets;
    timeout = options.timeout;
    EXPECT_EQ(kube::path_of(resource, "ns", "x"), "/api/v1/namespaces/ns/configmaps/x");
    const auto found = objects.find(namespace_name + "/" + name);
    if (found == objects.end()) {
      return Error(ErrorCode::kNotFound, "configmaps \"" + name + "\" not found");
    }
    return found->second;
  }
  // A ConfigMap ads/tables whose key tables.csv holds the text.
  void put(const std::string& text, const std::string& version, const std::string& name = "tables") {
    Json& object = objects["ads/" + name];
    object = Json();
    object["metadata"]["resourceVersion"] = version;
    object["data"]["tables.csv"] = text;
  }

  std::map<std::string, Json> objects;
  int gets = 0;
  std::chrono::milliseconds timeout{};
};

Result<estimator::SharedTables> read(ConfigMapTableSource& source, const std::string& name = "tables",
                                     const std::string& key = "tables.csv") {
  Budget budget({.deadline = std::chrono::steady_clock::now() + 10s});
  return source.tables("ads", {.config_map_name = name, .key = key}, &budget);
}

TEST(ConfigMapTableSource, ParsesOnceAVersion) {
  ConfigMaps api;
  api.put(kCsv, "1");
  ConfigMapTableSource source(api, {});
  const Result<estimator::SharedTables> first = read(source);
  ASSERT_TRUE(first.ok()) << first.error().message;
  ASSERT_EQ((*first)->size(), 2U);
  EXPECT_EQ((**first)[0].name, "user");
  EXPECT_EQ((**first)[1].rows, 2000);
  EXPECT_EQ(read(source)->get(), first->get());
  EXPECT_EQ(api.gets, 2);  // asked each time, parsed once

  api.put("only,5,4,1\n", "2");
  const Result<estimator::SharedTables> second = read(source);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ((*second)->size(), 1U);
}

TEST(ConfigMapTableSource, ReadsGzipAndBinaryData) {
  ConfigMaps api;
  Json& object = api.objects["ads/tables"];
  object["metadata"]["resourceVersion"] = "1";
  object["binaryData"]["tables.csv"] = base64_encode(gzip(kCsv));
  object["binaryData"]["plain.csv"] = base64_encode(kCsv);
  object["binaryData"]["broken.csv"] = base64_encode(gzip(kCsv).substr(0, 30));
  object["binaryData"]["nonsense"] = "%%%";
  ConfigMapTableSource source(api, {});
  ASSERT_TRUE(read(source).ok());
  EXPECT_EQ((*read(source))->size(), 2U);
  EXPECT_TRUE(read(source, "tables", "plain.csv").ok());
  EXPECT_FALSE(read(source, "tables", "broken.csv").ok());
  EXPECT_FALSE(read(source, "tables", "nonsense").ok());
}

TEST(ConfigMapTableSource, ReadsGraphsOnceAVersion) {
  std::ifstream file(PLIMSOLL_SOURCE_DIR "/tests/estimator/graphs/linear.json");
  std::stringstream text;
  text << file.rdbuf();
  ConfigMaps api;
  Json& object = api.objects["ads/gpt"];
  object["metadata"]["resourceVersion"] = "1";
  object["binaryData"]["graph"] = base64_encode(gzip(text.str()));
  object["data"]["broken"] = "{}";
  ConfigMapTableSource source(api, {});
  const auto graph = [&](const std::string& key) {
    Budget budget({.deadline = std::chrono::steady_clock::now() + 10s});
    return source.graph("ads", {.config_map_name = "gpt", .key = key}, &budget);
  };
  const Result<estimator::SharedGraph> first = graph("graph");
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ((*first)->traces.size(), 1U);
  EXPECT_EQ(graph("graph")->get(), first->get());
  EXPECT_GT(source.cached(), Bytes{});
  ASSERT_FALSE(graph("broken").ok());
  EXPECT_NE(graph("broken").error().message.find("ConfigMap ads/gpt, key broken"), std::string::npos);
  EXPECT_FALSE(graph("missing").ok());
}

TEST(ConfigMapTableSource, SaysWhatIsWrongAndWhere) {
  ConfigMaps api;
  api.put("user,many,64,1\n", "1");
  ConfigMapTableSource source(api, {});
  const auto message = [&](const std::string& name, const std::string& key) {
    const Result<estimator::SharedTables> tables = read(source, name, key);
    EXPECT_FALSE(tables.ok());
    return tables ? "" : tables.error().message;
  };
  EXPECT_NE(message("tables", "tables.csv").find("ConfigMap ads/tables, key tables.csv"), std::string::npos);
  EXPECT_NE(message("tables", "other").find("no key other"), std::string::npos);
  EXPECT_NE(message("missing", "tables.csv").find("ads/missing"), std::string::npos);
}

TEST(ConfigMapTableSource, KeepsToTheDeadline) {
  ConfigMaps api;
  api.put(kCsv, "1");
  ConfigMapTableSource source(api, {});
  Budget budget({.deadline = std::chrono::steady_clock::now() + 1400ms});
  ASSERT_TRUE(source.tables("ads", {"tables", "tables.csv"}, &budget).ok());
  EXPECT_LE(api.timeout, 700ms);  // the rest is for deciding
  Budget passed({.deadline = std::chrono::steady_clock::now()});
  const Result<estimator::SharedTables> late = source.tables("ads", {"tables", "tables.csv"}, &passed);
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, ErrorCode::kTimeout);
  EXPECT_EQ(api.gets, 1);
}

TEST(ConfigMapTableSource, TheLeastRecentlyUsedGoesFirst) {
  ConfigMaps api;
  ConfigMapTableSource probe(api, {});
  api.put(kCsv, "1", "a");
  ASSERT_TRUE(read(probe, "a").ok());
  const Bytes one = probe.cached();
  ASSERT_GT(one.count, 0);

  ConfigMapTableSource source(api, {.cache_limit = one * 2});
  api.put(kCsv, "1", "b");
  api.put(kCsv, "1", "c");
  const estimator::SharedTables a = *read(source, "a");
  const estimator::SharedTables b = *read(source, "b");
  EXPECT_EQ(*read(source, "a"), a);  // used again: b is now the older
  ASSERT_TRUE(read(source, "c").ok());
  EXPECT_LE(source.cached(), one * 2);
  EXPECT_EQ(*read(source, "a"), a);
  EXPECT_NE(*read(source, "b"), b);

  ConfigMapTableSource tiny(api, {.cache_limit = Bytes{1}});
  EXPECT_TRUE(read(tiny, "a").ok());  // too large to keep is not too large to use
  EXPECT_EQ(tiny.cached(), Bytes{});
}

}  // namespace
}  // namespace plimsoll::webhook
