// The CRDs' YAML and the C++ types say the same: every field, whether it must be there, its default, its
// bounds, its pattern, its enum, and every CEL rule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>

#include "base/quantity.h"
#include "crds/enums.h"
#include "crds/resource_fields.h"
#include "crds/training_job_fields.h"
#include "tests/checkout.h"
#include "tests/crds/test_jobs.h"

namespace plimsoll::crds {
namespace {

const char* const kFiles[] = {"trainingjobs", "gpumodels", "memoryprofiles"};

Json schema_of(const std::string& plural) {
  const Json crd = yaml(read_file(PLIMSOLL_SOURCE_DIR "/crds/plimsoll.dev_" + plural + ".yaml"));
  const Json& version = crd["spec"]["versions"][0];
  EXPECT_EQ(version["name"].asString(), kVersion);
  EXPECT_EQ(crd["spec"]["group"].asString(), kGroup);
  return version["schema"]["openAPIV3Schema"];
}

// The visitor that holds one object's schema to the description of its C++ type.
class SchemaComparer {
 public:
  SchemaComparer(const Json& schema, std::string path) : schema_(schema), path_(std::move(path)) {}
  SchemaComparer(const SchemaComparer&) = delete;
  SchemaComparer& operator=(const SchemaComparer&) = delete;

  ~SchemaComparer() {
    EXPECT_EQ(schema_["type"].asString(), "object") << path_;
    std::set<std::string> properties;
    for (const std::string& name : schema_["properties"].getMemberNames()) {
      properties.insert(name);
    }
    EXPECT_EQ(properties, described_) << path_ << ": fields of the YAML, fields of the C++ type";
    std::set<std::string> required;
    for (const Json& name : schema_["required"]) {
      required.insert(name.asString());
    }
    EXPECT_EQ(required, required_) << path_ << ": required in the YAML, required in C++";
  }

  // As T describes itself, when freshly made.
  template <class T>
  void describes() {
    const T value{};
    describe(*this, value);
  }

  // A field that C++ leaves as JSON.
  void left_as_json(const std::string& name, Presence presence) { property(name, presence, Json()); }

  void boolean(const char* name, bool value, Presence presence) {
    EXPECT_EQ(property(name, presence, value)["type"], "boolean") << at(name);
  }
  void optional_boolean(const char* name, const std::optional<bool>&) {
    EXPECT_EQ(property(name, Presence::kOptional, Json())["type"], "boolean") << at(name);
  }
  void integer(const char* name, std::int64_t value, Presence presence, Range range) {
    check_integer(property(name, presence, Json(::Json::Int64{value})), range, at(name));
  }
  void optional_integer(const char* name, const std::optional<std::int64_t>&, Range range) {
    check_integer(property(name, Presence::kOptional, Json()), range, at(name));
  }
  void integers(const char* name, const std::vector<std::int64_t>&, Presence presence, Range count,
                Range range) {
    check_integer(list(name, presence, count, "atomic")["items"], range, at(name));
  }
  void integer_set(const char* name, const std::vector<std::int64_t>&, Range count, Range range) {
    check_integer(list(name, Presence::kOptional, count, "set")["items"], range, at(name));
  }
  void text(const char* name, const std::string& value, Presence presence, const TextRule& rule) {
    check_text(property(name, presence, value), rule, at(name));
  }
  void texts(const char* name, const std::vector<std::string>&, Range count, const TextRule& rule) {
    check_text(list(name, Presence::kOptional, count, "set")["items"], rule, at(name));
  }
  void percentage(const char* name, double value, Presence presence, const TextRule& rule) {
    const Json& found = property(name, presence, Json());
    check_text(found, rule, at(name));
    EXPECT_DOUBLE_EQ(parse_percentage(found["default"].asString()).ok()
                         ? *parse_percentage(found["default"].asString())
                         : -1,
                     value)
        << at(name);
  }
  void decimal(const char* name, double, Presence presence, const DecimalRule& rule) {
    check_decimal(property(name, presence, Json()), rule, at(name));
  }
  void optional_decimal(const char* name, const std::optional<double>&, const DecimalRule& rule) {
    check_decimal(property(name, Presence::kOptional, Json()), rule, at(name));
  }
  void optional_bytes(const char* name, const std::optional<Bytes>&, const QuantityRule& rule) {
    const Json& found = property(name, Presence::kOptional, Json());
    EXPECT_TRUE(found["x-kubernetes-int-or-string"].asBool()) << at(name);
    EXPECT_EQ(found["pattern"].asString(), rule.pattern) << at(name);
    EXPECT_EQ(found["maxLength"].asUInt64(), rule.longest) << at(name);
    EXPECT_EQ(found["minimum"].asInt64(), rule.least) << at(name);
    EXPECT_FALSE(found.isMember("maximum")) << at(name);
  }
  template <class E>
  void choice(const char* name, E value, Presence presence) {
    check_choice<E>(property(name, presence, name_of(value)), {}, at(name));
  }
  template <class E>
  void choice_but(const char* name, E value, Presence presence, std::initializer_list<E> excluded) {
    std::set<std::string> names;
    for (const E each : excluded) {
      names.insert(name_of(each));
    }
    check_choice<E>(property(name, presence, name_of(value)), names, at(name));
  }
  template <class E>
  void choices(const char* name, const std::vector<E>&, Range count) {
    check_choice<E>(list(name, Presence::kOptional, count, "set")["items"], {}, at(name));
  }
  template <class T>
  void object(const char* name, const T&, Presence presence) {
    compare<T>(property(name, presence, Json()), at(name));
  }
  template <class T>
  void optional_object(const char* name, const std::optional<T>&) {
    compare<T>(property(name, Presence::kOptional, Json()), at(name));
  }
  template <class T>
  void objects(const char* name, const std::vector<T>&, Presence presence, Range count) {
    compare<T>(list(name, presence, count, {})["items"], at(name) + "[]");
  }
  template <class Describe>
  void group(const char* name, Presence presence, Describe fields) {
    SchemaComparer inner(property(name, presence, Json()), at(name));
    fields(inner);
  }

 private:
  template <class T>
  static void compare(const Json& schema, const std::string& path) {
    SchemaComparer inner(schema, path);
    inner.describes<T>();
  }

  std::string at(const std::string& name) const { return path_ + "." + name; }

  // The property's schema. `initial`: what the member starts with, null where that cannot be compared.
  const Json& property(const std::string& name, Presence presence, const Json& initial) {
    described_.insert(name);
    if (presence == Presence::kRequired) {
      required_.insert(name);
    }
    const Json& found = member(schema_, {"properties", name});
    EXPECT_TRUE(found.isObject()) << at(name) << " is missing in the YAML";
    EXPECT_EQ(found.isMember("default"), presence == Presence::kDefaulted) << at(name);
    if (presence == Presence::kDefaulted && !initial.isNull()) {
      EXPECT_EQ(found["default"], initial) << at(name);
    }
    return found;
  }

  const Json& list(const char* name, Presence presence, Range count, const std::string& type) {
    const Json& found = property(name, presence, Json());
    EXPECT_EQ(found["type"], "array") << at(name);
    EXPECT_EQ(found["minItems"].asInt64(), count.least) << at(name);
    EXPECT_EQ(found["maxItems"].asInt64(), count.most) << at(name);
    if (!type.empty()) {
      EXPECT_EQ(found["x-kubernetes-list-type"], type) << at(name);
    }
    return found;
  }

  static void check_integer(const Json& schema, Range range, const std::string& where) {
    EXPECT_EQ(schema["type"], "integer") << where;
    EXPECT_EQ(schema["format"], "int64") << where;
    EXPECT_EQ(schema["minimum"].asInt64(), range.least) << where;
    EXPECT_EQ(schema.get("maximum", Json(std::numeric_limits<::Json::Int64>::max())).asInt64(), range.most)
        << where;
  }

  static void check_text(const Json& schema, const TextRule& rule, const std::string& where) {
    EXPECT_EQ(schema["type"], "string") << where;
    EXPECT_EQ(schema["pattern"].asString(), rule.pattern) << where;
    EXPECT_EQ(schema["minLength"].asInt64(), rule.length.least) << where;
    EXPECT_EQ(schema["maxLength"].asInt64(), rule.length.most) << where;
  }

  static void check_decimal(const Json& schema, const DecimalRule& rule, const std::string& where) {
    EXPECT_TRUE(schema["x-kubernetes-int-or-string"].asBool()) << where;
    EXPECT_FALSE(schema.isMember("type")) << where;
    EXPECT_EQ(schema["pattern"].asString(), rule.pattern) << where;
    EXPECT_EQ(schema["maxLength"].asUInt64(), rule.longest()) << where;
    EXPECT_EQ(schema["minimum"].asInt64(), rule.integers.least) << where;
    EXPECT_EQ(schema["maximum"].asInt64(), rule.integers.most) << where;
  }

  template <class E>
  static void check_choice(const Json& schema, const std::set<std::string>& excluded,
                           const std::string& where) {
    EXPECT_EQ(schema["type"], "string") << where;
    std::vector<std::string> in_yaml;
    for (const Json& name : schema["enum"]) {
      in_yaml.push_back(name.asString());
    }
    std::vector<std::string> in_cpp;
    for (const char* name : kNames<E>) {
      if (!excluded.contains(name)) {
        in_cpp.emplace_back(name);
      }
    }
    EXPECT_EQ(in_yaml, in_cpp) << where;
  }

  const Json& schema_;
  std::string path_;
  std::set<std::string> described_;
  std::set<std::string> required_;
};

TEST(Schema, TrainingJobAgreesWithItsType) {
  const Json schema = schema_of("trainingjobs");
  {
    SchemaComparer spec(schema["properties"]["spec"], "spec");
    spec.describes<TrainingJobSpec>();
    spec.left_as_json("template", Presence::kRequired);
  }
  const Json& name = schema["properties"]["metadata"]["properties"]["name"];
  EXPECT_EQ(name["pattern"].asString(), kJobName.pattern);
  EXPECT_EQ(name["maxLength"].asInt64(), kJobName.length.most);
  const Json& containers = schema["properties"]["spec"]["properties"]["template"]["properties"]["spec"]
                                 ["properties"]["containers"];
  EXPECT_EQ(containers["items"]["properties"]["name"]["pattern"].asString(), kContainerName.pattern);
  EXPECT_EQ(containers["maxItems"].asInt(), 32);
}

TEST(Schema, GpuModelAgreesWithItsType) {
  const Json schema = schema_of("gpumodels");
  SchemaComparer spec(schema["properties"]["spec"], "spec");
  spec.describes<GpuModelSpec>();
  SchemaComparer status(schema["properties"]["status"], "status");
  status.describes<GpuModelStatus>();
}

TEST(Schema, MemoryProfileAgreesWithItsType) {
  const Json schema = schema_of("memoryprofiles");
  SchemaComparer spec(schema["properties"]["spec"], "spec");
  spec.describes<ProfileSpec>();
  SchemaComparer status(schema["properties"]["status"], "status");
  status.describes<ProfileStatus>();
  status.left_as_json("updateTime", Presence::kOptional);
  status.left_as_json("statistics", Presence::kOptional);
  status.left_as_json("samples", Presence::kOptional);
}

TEST(Schema, LongListsOfTablesStayAtomicAndWithoutDefaults) {
  const Json schema = schema_of("trainingjobs");
  const Json& tables =
      schema["properties"]["spec"]["properties"]["model"]["properties"]["dlrm"]["properties"]["tables"];
  // A keyed list would repeat every name in managedFields, and defaults would be written into every entry.
  EXPECT_EQ(tables["x-kubernetes-list-type"], "atomic");
  for (const Json& property : tables["items"]["properties"]) {
    EXPECT_FALSE(property.isMember("default"));
  }
}

// Every property is told what it is for; no number has a fraction.
void expect_documented(const Json& schema, const std::string& path) {
  EXPECT_NE(schema["type"], "number") << path;
  for (const std::string& name : schema["properties"].getMemberNames()) {
    const std::string here = path + "." + name;
    if (here == ".metadata") {
      continue;  // the API server describes it, and allows no description
    }
    const Json& property = schema["properties"][name];
    EXPECT_GE(property["description"].asString().size(), 10U) << here;
    EXPECT_THAT(property["description"].asString(), ::testing::EndsWith(".")) << here;
    if (property["type"] == "array") {
      EXPECT_TRUE(property.isMember("maxItems"))
          << here << ": rules over it would have no bound on their cost";
      EXPECT_TRUE(property.isMember("x-kubernetes-list-type")) << here;
      expect_documented(property["items"], here + "[]");
    }
    expect_documented(property, here);
  }
}

TEST(Schema, EveryFieldIsDescribed) {
  for (const char* plural : kFiles) {
    SCOPED_TRACE(plural);
    expect_documented(schema_of(plural), "");
  }
}

// A rule as the API server reports it: the field, with [] for any index, and the message.
using Rule = std::pair<std::string, std::string>;

void collect_rules(const Json& schema, const std::string& path, std::set<Rule>& rules) {
  for (const Json& rule : schema["x-kubernetes-validations"]) {
    rules.emplace(path + rule["fieldPath"].asString(), rule["message"].asString());
  }
  for (const std::string& name : schema["properties"].getMemberNames()) {
    collect_rules(schema["properties"][name], path.empty() ? name : path + "." + name, rules);
  }
  if (schema.isMember("items")) {
    collect_rules(schema["items"], path + "[]", rules);
  }
}

Rule reported(const FieldError& error) {
  std::string field;
  bool inside = false;
  for (const char c : error.field) {
    inside = inside && c != ']';
    if (!inside) {
      field += c;
    }
    inside = inside || c == '[';
  }
  return {field, error.message};
}

TEST(Schema, EveryRuleOfATrainingJobIsMirroredWordForWord) {
  std::set<Rule> rules;
  collect_rules(schema_of("trainingjobs"), "", rules);
  ASSERT_GE(rules.size(), 14U);
  std::set<Rule> said;
  for (const auto& entry : std::filesystem::directory_iterator(PLIMSOLL_SOURCE_DIR "/tests/crds/invalid")) {
    for (const FieldError& problem : problems_of(yaml(read_file(entry.path())))) {
      said.insert(reported(problem));
    }
  }
  const Result<TrainingJob> before = decode_training_job(small_job());
  ASSERT_TRUE(before.ok());
  TrainingJob now = *before;
  now.spec.model.family = "other";
  now.spec.training.batch_size_per_trainer = 2048;
  now.spec.managed_by = "kueue.x-k8s.io/multikueue";
  for (const FieldError& problem : validate_update(*before, now)) {
    said.insert(reported(problem));
  }
  for (const Rule& rule : rules) {
    EXPECT_TRUE(said.contains(rule)) << "no fixture, or no C++, says: " << rule.first << ": " << rule.second;
  }
}

}  // namespace
}  // namespace plimsoll::crds
