// TrainingJobs that once stopped the operator for everybody: with the CRD's schema, with the webhook alone,
// and with neither.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>

#include "base/yaml.h"
#include "kube/client.h"
#include "tests/checkout.h"
#include "tests/e2e/main_job.h"
#include "tests/testing/eventually.h"
#include "tests/testing/patience.h"

namespace plimsoll::testing {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

const kube::Resource kTrainingJobs{.group = "plimsoll.dev", .version = "v1alpha1", .plural = "trainingjobs"};

struct Malformed {
  std::string name;
  std::string field;  // that is told of
  Json object;
};

// The fixtures of malformed templates, each under a name of its own.
std::vector<Malformed> malformed_templates() {
  std::vector<Malformed> jobs;
  for (const auto& entry : std::filesystem::directory_iterator(PLIMSOLL_SOURCE_DIR "/tests/crds/invalid")) {
    const std::string name = entry.path().stem();
    if (!name.starts_with("template-") || name == "template-missing") {
      continue;  // that there is one even the oldest schema says
    }
    const std::string text = read_file(entry.path());
    const std::string prefix = "# expect: ";
    const Result<std::vector<Json>> documents = parse_yaml_documents(text);
    EXPECT_TRUE(documents.ok() && documents->size() == 1) << name;
    if (documents.ok() && !documents->empty()) {
      Json object = documents->front();
      object["metadata"]["name"] = name;
      jobs.push_back({name, text.substr(prefix.size(), text.find('\n') - prefix.size()), std::move(object)});
    }
  }
  EXPECT_GE(jobs.size(), 30U);
  return jobs;
}

// A job of 20,000 groups of `count` tables each.
Json job_of_many_tables(const std::string& name, std::int64_t count) {
  Json object = parse_yaml_documents(small_job(name))->front();
  Json tables(::Json::arrayValue);
  for (int i = 0; i < 20'000; ++i) {
    Json table;
    table["name"] = "t" + std::to_string(i);
    table["count"] = Json(::Json::Int64{count});
    table["rows"] = 9;
    table["dim"] = 8;
    tables.append(std::move(table));
  }
  object["spec"]["model"]["dlrm"]["tables"] = std::move(tables);
  return object;
}

void remove_rules(Json& schema) {
  if (schema.isObject()) {
    schema.removeMember("x-kubernetes-validations");
  }
  for (Json& each : schema) {
    remove_rules(each);
  }
}

class MalformedJobsTest : public MainJobTest {
 protected:
  void SetUp() override {
    MainJobTest::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) {
      client_ = server_->make_client();
    }
  }

  Result<Json> create(const Json& object, bool dry_run = false) const {
    kube::CallOptions options;
    options.timeout = kPatience;  // a busy API server takes ten seconds to write an object of a megabyte
    options.dry_run = dry_run;
    return client_->create(kTrainingJobs, "default", object, options);
  }

  // As an older CRD may be: it knows nothing of the template, and has no rules.
  void take_the_schema_away() const {
    Json crd =
        parse_yaml_documents(read_file(PLIMSOLL_SOURCE_DIR "/crds/plimsoll.dev_trainingjobs.yaml"))->front();
    Json& spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    Json open;
    open["type"] = "object";
    open["x-kubernetes-preserve-unknown-fields"] = true;
    spec["template"] = open;
    remove_rules(crd);
    must({"apply", "-f", "-"}, write_json(crd));
    const Malformed probe = malformed_templates().front();
    ASSERT_TRUE(
        eventually("the server follows the definition", [&] { return create(probe.object, true).ok(); }));
  }

  Json status_of(const std::string& name) const {
    const Result<Json> job = client_->get(kTrainingJobs, "default", name);
    return job ? (*job)["status"] : Json();
  }

  static bool has_failed(const Json& status) {
    for (const Json& condition : member(status, {"conditions"})) {
      if (text_member(condition, {"type"}) == "Failed" && text_member(condition, {"status"}) == "True") {
        return true;
      }
    }
    return false;
  }

  Json wait_until_failed(const std::string& name) const {
    constexpr std::chrono::seconds kLong = 4 * kPatience;
    Json status;
    const auto look = [&] {
      status = status_of(name);
      return has_failed(status);
    };
    EXPECT_TRUE(eventually("the failure of " + name, look, true, kLong)) << operator_->log();
    return status;
  }

  void expect_user_error(const std::string& name, const std::string& field) const {
    const Json status = wait_until_failed(name);
    const Json& attempts = member(status, {"attempts"});
    ASSERT_EQ(attempts.size(), 1U) << name;
    EXPECT_EQ(text_member(attempts[0], {"outcome"}), "UserError") << name;
    EXPECT_THAT(text_member(attempts[0], {"message"}), HasSubstr(field)) << name;
    EXPECT_TRUE(get("job", name + "-0").isNull()) << name;
  }

  // A good job has its pods made: the operator lives and works.
  void expect_progress() const {
    EXPECT_TRUE(eventually("the good job runs", [&] { return !get("job", "good-0").isNull(); }))
        << operator_->log();
    EXPECT_TRUE(operator_->running()) << operator_->log();
  }

  std::unique_ptr<kube::Client> client_;
};

TEST_F(MalformedJobsTest, AreRefusedByTheWebhookWithTheFieldsPath) {
  ASSERT_NO_FATAL_FAILURE(take_the_schema_away());
  ASSERT_NO_FATAL_FAILURE(start_plimsoll());
  const std::vector<Malformed> all = malformed_templates();
  for (const Malformed& bad : all) {
    const Result<Json> refused = create(bad.object);
    ASSERT_FALSE(refused) << bad.name;
    EXPECT_THAT(refused.error().message, HasSubstr(bad.field)) << bad.name;
  }
  const CommandResult shown =
      kubectl({"create", "--validate=false", "-f", "-"}, write_json(all.front().object));
  EXPECT_NE(shown.exit_code, 0);
  EXPECT_THAT(shown.errors, HasSubstr(all.front().field));
  EXPECT_THAT(shown.errors, HasSubstr("the job keeps its trainers"));
  const Result<Json> many = create(job_of_many_tables("many", 100'000));
  ASSERT_FALSE(many);
  EXPECT_THAT(many.error().message, HasSubstr("all counts of the tables together must not exceed 100000"));
  EXPECT_TRUE(operator_->running());
  EXPECT_TRUE(webhook_->running());
}

TEST_F(MalformedJobsTest, WithoutAWebhookEndAsUserErrorsAndOthersGoOn) {
  ASSERT_NO_FATAL_FAILURE(take_the_schema_away());
  ASSERT_NO_FATAL_FAILURE(start_operator());
  const std::vector<Malformed> all = malformed_templates();
  for (const Malformed& bad : all) {
    const Result<Json> created = create(bad.object);
    EXPECT_TRUE(created.ok()) << bad.name << ": " << to_string(created.error());
  }
  must({"create", "-f", "-"}, small_job("good"));
  for (const Malformed& bad : all) {
    expect_user_error(bad.name, bad.field);
  }
  expect_progress();
}

TEST_F(MalformedJobsTest, TwentyThousandGroupsOfTablesAreNotExpandedWhereNoWebhookWas) {
  ASSERT_NO_FATAL_FAILURE(take_the_schema_away());
  ASSERT_NO_FATAL_FAILURE(start_operator());
  const Result<Json> created = create(job_of_many_tables("many", 100'000));
  ASSERT_TRUE(created.ok()) << to_string(created.error());
  must({"create", "-f", "-"}, small_job("good"));
  expect_user_error("many", "spec.model.dlrm.tables: all counts of the tables together");
  expect_progress();
}

// The rule is within the API server's budget for CEL: it takes the CRD, and 20,000 groups that are allowed.
TEST_F(MalformedJobsTest, TheSumOfTablesIsARuleOfTheSchema) {
  const Result<Json> accepted = create(job_of_many_tables("many", 5), true);
  ASSERT_TRUE(accepted.ok()) << to_string(accepted.error());
  if (kind_under_test() == ApiServerKind::kFake) {
    GTEST_SKIP() << "the sum is a CEL rule, which needs a real API server";
  }
  const Result<Json> refused = create(job_of_many_tables("many", 100'000));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("all counts of the tables together must not exceed 100000"));
}

}  // namespace
}  // namespace plimsoll::testing
