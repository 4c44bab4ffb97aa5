// The schemas alone, with no webhook: what the API server itself refuses and accepts.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <regex>
#include <set>

#include "base/yaml.h"
#include "kube/client.h"
#include "tests/checkout.h"
#include "tests/e2e/main_job.h"

namespace plimsoll::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using CrdsTest = MainJobTest;

const kube::Resource kTrainingJobs{.group = "plimsoll.dev", .version = "v1alpha1", .plural = "trainingjobs"};

std::vector<std::string> fixtures(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(PLIMSOLL_SOURCE_DIR "/tests/crds/" + folder)) {
    if (entry.path().extension() == ".yaml") {
      files.push_back(entry.path().string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

TEST_F(CrdsTest, RefuseEachMalformedJobByTheNameOfTheField) {
  // The fields of rules that the fake API server cannot evaluate; none of the real one.
  std::set<std::string> unevaluated;
  for (const auto& rule : server_->unevaluated_rules()) {
    unevaluated.insert(rule.field);
  }
  const std::vector<std::string> files = fixtures("invalid");
  EXPECT_GE(files.size(), 25U);
  const std::string prefix = "# expect: ";
  const std::unique_ptr<kube::Client> client = server_->make_client();  // hundreds of kubectl take a minute
  kube::CallOptions dry_run;
  dry_run.dry_run = true;
  for (const std::string& file : files) {
    const std::string text = read_file(file);
    ASSERT_THAT(text, StartsWith(prefix)) << file;
    const std::string expected = text.substr(prefix.size(), text.find('\n') - prefix.size());
    const Result<std::vector<Json>> documents = parse_yaml_documents(text);
    ASSERT_TRUE(documents.ok() && documents->size() == 1) << file;
    ASSERT_EQ(text_member(documents->front(), {"kind"}), "TrainingJob") << file;
    const Result<Json> created = client->create(kTrainingJobs, "default", documents->front(), dry_run);
    static const std::regex index(R"(\[\d+\])");
    if (created && unevaluated.contains(std::regex_replace(expected, index, "[]"))) {
      std::cout << file << " is refused by a CEL rule alone, which this server does not evaluate\n";
      continue;
    }
    ASSERT_FALSE(created) << file << " was accepted";
    EXPECT_THAT(created.error().message, HasSubstr(expected)) << file;
  }
}

TEST_F(CrdsTest, AcceptEachValidJob) {
  const std::vector<std::string> files = fixtures("valid");
  EXPECT_GE(files.size(), 5U);
  for (const std::string& file : files) {
    must({"create", "--dry-run=server", "-f", file});
    must({"apply", "-f", file});
  }
}

TEST_F(CrdsTest, DefaultsAndColumnsReachPeople) {
  must({"create", "-f", "-"}, small_job("ads"));
  const Json job = this->job("ads");
  EXPECT_EQ(text_member(job, {"spec", "provisioning", "objective"}), "FewestGPUs");
  EXPECT_EQ(text_member(job, {"spec", "provisioning", "mode"}), "") << "which namespace and cluster say";
  EXPECT_EQ(text_member(job, {"spec", "training", "precision"}), "FP32");
  EXPECT_THAT(must({"describe", "tj", "ads"}).output, Not(ContainsRegex(":  *0\n")))
      << "a number that nobody chose";
  const CommandResult shown = must({"get", "tj"});  // by its short name
  EXPECT_THAT(shown.output, HasSubstr("GPU MODEL"));
  EXPECT_THAT(shown.output, HasSubstr("A100-80GB"));
  EXPECT_THAT(must({"get", "training"}).output, HasSubstr("ads"));  // by its category
}

TEST_F(CrdsTest, KeepUnknownFieldsOfTheTemplateOnly) {
  std::string manifest = small_job("ads");
  manifest += "      schedulerName: volcano\n      newerThanUs: {a: 1}\n";
  must({"create", "--validate=false", "-f", "-"}, manifest);
  const Json job = this->job("ads");
  EXPECT_EQ(job["spec"]["template"]["spec"]["newerThanUs"]["a"].asInt(), 1);
  EXPECT_EQ(text_member(job, {"spec", "template", "spec", "schedulerName"}), "volcano");
}

}  // namespace
}  // namespace plimsoll::testing
