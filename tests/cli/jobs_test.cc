#include "cli/jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/yaml.h"
#include "cli/command.h"
#include "tests/cli/run_command.h"

namespace plimsoll::cli {
namespace {

using plimsoll::testing::kJob;
using ::testing::HasSubstr;

Document document(const std::string& yaml, const std::string& where = "jobs.yaml") {
  return {parse_yaml_documents(yaml)->front(), where};
}

// The job, whose tables are in a ConfigMap.
Document job_with_tables_elsewhere() {
  Document job = document(kJob);
  Json& model = job.object["spec"]["model"]["dlrm"];
  model.removeMember("tables");
  model["tablesFrom"]["configMapKeyRef"]["name"] = "shared";
  model["tablesFrom"]["configMapKeyRef"]["key"] = "tables.csv";
  return job;
}

Result<Json> no_config_maps(const std::string&, const std::string& name) {
  return Error(ErrorCode::kNotFound, "no ConfigMap " + name);
}

TEST(ReadJobs, TakesTheTrainingJobsInTheirOrder) {
  Document second = document(kJob);
  second.object["metadata"]["name"] = "feed";
  second.object["metadata"].removeMember("namespace");
  const std::vector<JobOrError> jobs = read_jobs(
      {document(kJob), document("{apiVersion: v1, kind: ConfigMap}"), second}, "mine", no_config_maps);
  ASSERT_EQ(jobs.size(), 2U);
  EXPECT_EQ(jobs[0].name, "team/ads");
  EXPECT_EQ(jobs[1].name, "mine/feed");
  ASSERT_TRUE(jobs[1].job) << to_string(jobs[1].job.error());
  EXPECT_EQ(jobs[1].job->namespace_name, "mine");
  EXPECT_EQ(jobs[1].graph, nullptr);
}

TEST(ReadJobs, AWrongOneIsAnEntryWithItsErrorAndItsPlace) {
  Document wrong = document(kJob, "jobs.yaml, document 2");
  wrong.object["spec"]["training"]["batchSizePerTrainer"] = 0;
  const std::vector<JobOrError> jobs =
      read_jobs({wrong, document("{kind: TrainingJob}"), document(kJob)}, "mine", no_config_maps);
  ASSERT_EQ(jobs.size(), 3U);
  ASSERT_FALSE(jobs[0].job);
  EXPECT_EQ(jobs[0].job.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(jobs[0].job.error().message, HasSubstr("jobs.yaml, document 2"));
  EXPECT_THAT(jobs[0].job.error().message, HasSubstr("spec.training.batchSizePerTrainer"));
  EXPECT_EQ(jobs[1].name, "mine/(no name)");
  EXPECT_FALSE(jobs[1].job);
  EXPECT_TRUE(jobs[2].job) << "the others are answered";
}

TEST(ReadJobs, TablesComeFromTheConfigMapOfTheJobsNamespace) {
  std::string requested;
  const std::vector<JobOrError> jobs = read_jobs(
      {job_with_tables_elsewhere()}, "mine", [&](const std::string& namespace_name, const std::string& name) {
        requested = namespace_name + "/" + name;
        Json config_map;
        config_map["data"]["tables.csv"] = "name,rows,dim,pooling_factor\na,10,8,1\nb,20,8,2\n";
        return Result<Json>(config_map);
      });
  EXPECT_EQ(requested, "team/shared");
  ASSERT_TRUE(jobs.at(0).job) << to_string(jobs[0].job.error());
  ASSERT_EQ(jobs[0].job->spec.model.dlrm->tables.size(), 2U);
  EXPECT_EQ(jobs[0].job->spec.model.dlrm->tables[1].rows, 20);
}

TEST(ReadJobs, AConfigMapThatIsAwayOrWrongIsTheJobsError) {
  std::vector<JobOrError> jobs = read_jobs({job_with_tables_elsewhere()}, "mine", no_config_maps);
  ASSERT_FALSE(jobs.at(0).job);
  EXPECT_EQ(jobs[0].job.error().code, ErrorCode::kNotFound);
  for (const char* csv : {"a,10,8", "", "a,10,8,1\na,10,8,1\n"}) {  // the last has a name twice
    jobs = read_jobs({job_with_tables_elsewhere()}, "mine", [&](const std::string&, const std::string&) {
      Json config_map;
      config_map["data"]["tables.csv"] = csv;
      return Result<Json>(config_map);
    });
    EXPECT_FALSE(jobs.at(0).job) << csv;
  }
}

class JobAnswersTest : public ::testing::Test {
 protected:
  std::istringstream in_;
  std::ostringstream out_;
  std::ostringstream err_;
  Console console_{in_, out_, err_};
};

TEST_F(JobAnswersTest, ARefusalIsAnAnswerToo) {
  JobAnswers answers(console_, OutputFormat::kJson);
  Json good;
  good["job"] = "team/ads";
  answers.add(good);
  answers.refuse("team/feed", Error(ErrorCode::kNotFound, "no ConfigMap shared"));
  EXPECT_EQ(answers.finish(), kExitRefused);
  EXPECT_EQ(err_.str(), "plimsoll: team/feed: no ConfigMap shared\n");
  const Json all = *parse_json(out_.str());
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0], good);
  EXPECT_EQ(all[1], *parse_json(R"({"job":"team/feed","code":"NotFound","reason":"no ConfigMap shared"})"));
}

TEST_F(JobAnswersTest, WithoutRefusalsItIsDone) {
  JobAnswers answers(console_, OutputFormat::kTable);
  answers.add(Json("a"));
  EXPECT_EQ(answers.finish(), kExitDone);
  EXPECT_EQ(out_.str(), "") << "tables were printed one by one";
  answers.complain("it does not fit");
  EXPECT_EQ(answers.finish(), kExitRefused);
}

}  // namespace
}  // namespace plimsoll::cli
