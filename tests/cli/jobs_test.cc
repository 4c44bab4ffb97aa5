#include "cli/jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/yaml.h"
#include "cli/command.h"
#include "tests/cli/run_command.h"

namespace plimsoll::cli {
namespace {

using plimsoll::testing::kDescription;
using plimsoll::testing::kJob;
using plimsoll::testing::kPyTorchJob;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

std::vector<JobOrError> read(const std::vector<Document>& documents,
                             const ConfigMapReader& config_maps = no_config_maps) {
  JobSources sources;
  sources.default_namespace = "mine";
  sources.config_maps = config_maps;
  return read_jobs(documents, sources).jobs;
}

TEST(ReadJobs, TakesTheTrainingJobsInTheirOrder) {
  Document second = document(kJob);
  second.object["metadata"]["name"] = "feed";
  second.object["metadata"].removeMember("namespace");
  const std::vector<JobOrError> jobs =
      read({document(kJob), document("{apiVersion: v1, kind: ConfigMap}"), second});
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
  const std::vector<JobOrError> jobs = read({wrong, document("{kind: TrainingJob}"), document(kJob)});
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
  const std::vector<JobOrError> jobs =
      read({job_with_tables_elsewhere()}, [&](const std::string& namespace_name, const std::string& name) {
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
  std::vector<JobOrError> jobs = read({job_with_tables_elsewhere()});
  ASSERT_FALSE(jobs.at(0).job);
  EXPECT_EQ(jobs[0].job.error().code, ErrorCode::kNotFound);
  for (const char* csv : {"a,10,8", "", "a,10,8,1\na,10,8,1\n"}) {  // the last has a name twice
    jobs = read({job_with_tables_elsewhere()}, [&](const std::string&, const std::string&) {
      Json config_map;
      config_map["data"]["tables.csv"] = csv;
      return Result<Json>(config_map);
    });
    EXPECT_FALSE(jobs.at(0).job) << csv;
  }
}

// The input of one command: files as `kubectl apply -f` takes them.
JobsOfInput read_all(const std::string& yaml) {
  std::vector<Document> documents;
  const Result<std::vector<Json>> objects = parse_yaml_documents(yaml);
  for (const Json& object : *objects) {
    documents.push_back({object, "all.yaml, document " + std::to_string(documents.size() + 1)});
  }
  const Result<ClusterState> state = cluster_from_documents(documents);
  EXPECT_TRUE(state) << to_string(state.error());
  JobsOfInput input = read_jobs(documents, sources_of(documents, *state));
  for (JobOrError& job : input.jobs) {
    job.workload = nullptr;  // it looks into the documents
  }
  return input;
}

TEST(ReadJobs, AWorkloadOfAnotherKindThatIsDescribedIsAJob) {
  const JobsOfInput input = read_all(std::string(kPyTorchJob) + kDescription);
  ASSERT_EQ(input.jobs.size(), 1U);
  const JobOrError& job = input.jobs.front();
  EXPECT_EQ(job.name, "PyTorchJob team/tuned");
  ASSERT_TRUE(job.job) << to_string(job.job.error());
  EXPECT_EQ(job.job->spec.trainers.replicas, 16) << "the Master counts";
  EXPECT_EQ(job.job->spec.trainers.per_node, 8);
  EXPECT_THAT(input.notes, ElementsAre(HasSubstr("no label plimsoll.dev/family")));
}

TEST(ReadJobs, AWorkloadThatNothingDescribesIsRefusedWithItsSizeAndWhatIsMissing) {
  const JobsOfInput input = read_all(kPyTorchJob);
  ASSERT_EQ(input.jobs.size(), 1U);
  ASSERT_FALSE(input.jobs.front().job);
  const std::string& why = input.jobs.front().job.error().message;
  EXPECT_THAT(why, HasSubstr("all.yaml, document 1: 2 pods of 8 GPUs: "));
  EXPECT_THAT(why, HasSubstr("ConfigMap team/described is not among the files"));
  std::string without = kPyTorchJob;
  without.replace(without.find("  annotations:"),
                  std::string("  annotations: {plimsoll.dev/model: described/model}\n").size(), "");
  const JobsOfInput undescribed = read_all(without);
  ASSERT_EQ(undescribed.jobs.size(), 1U);
  ASSERT_FALSE(undescribed.jobs.front().job);
  EXPECT_THAT(undescribed.jobs.front().job.error().message, HasSubstr("plimsoll.dev/model"));
}

TEST(ReadJobs, AnObjectThatRequestsGpusAndCannotBeSizedIsRefusedByKind) {
  const JobsOfInput input = read_all(R"(
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: ring, namespace: team}
spec: {mpiReplicaSpecs: {Worker: {template: {spec: {containers: [{resources: {limits: {nvidia.com/gpu: 4}}}]}}}}}
---
apiVersion: plimsoll.dev/v1alpha1
kind: TrainingJobs
metadata: {name: ads}
---
{model_type: llama, hidden_size: 64}
---
{metadata: {name: [1]}}
)");
  ASSERT_EQ(input.jobs.size(), 4U);
  EXPECT_EQ(input.jobs[0].name, "MPIJob team/ring");
  EXPECT_THAT(input.jobs[0].job.error().message, AllOf(HasSubstr("does not size MPIJob objects"),
                                                       HasSubstr("PyTorchJob"), HasSubstr("docs/jobs.md")));
  EXPECT_THAT(input.jobs[1].job.error().message, HasSubstr("did you mean TrainingJob?"));
  EXPECT_THAT(input.jobs[2].job.error().message, HasSubstr("--config"));
  EXPECT_THAT(input.jobs[3].job.error().message, HasSubstr("has no kind"));
}

TEST(ReadJobs, NothingIsPassedOverWithoutANote) {
  const JobsOfInput input = read_all(R"(
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: team}
---
apiVersion: batch/v1
kind: Job
metadata: {name: load, namespace: team}
spec: {template: {spec: {containers: [{name: load}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: child, namespace: team, ownerReferences: [{kind: JobSet, controller: true}]}
spec: {template: {spec: {containers: [{resources: {limits: {nvidia.com/gpu: 1}}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: running, namespace: team}
spec: {nodeName: n1, containers: [{resources: {limits: {nvidia.com/gpu: 1}}}]}
)");
  EXPECT_THAT(input.jobs, IsEmpty());
  EXPECT_THAT(input.notes,
              ElementsAre(HasSubstr("Deployment team/web is passed over: it requests no GPUs"),
                          HasSubstr("Job team/load is passed over: there is nothing to size: no container"),
                          HasSubstr("Job team/child is passed over: another object made it")))
      << "a pod that runs holds GPUs of the cluster";
}

TEST(ReadJobs, FieldsOfATemplateThatPodsDoNotHaveAreNoted) {
  std::string misspelt = kJob;
  misspelt.insert(misspelt.find("containers:"), "contaners: [], ");
  const JobsOfInput input = read_all(misspelt);
  ASSERT_EQ(input.jobs.size(), 1U);
  EXPECT_TRUE(input.jobs.front().job) << "a newer cluster may know it";
  EXPECT_THAT(input.notes, ElementsAre(HasSubstr("spec.template.spec.contaners: unknown field")));
}

TEST(ReadJobs, ATrainJobTakesItsRuntimeFromTheFiles) {
  const std::string runtime = R"(
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: torch}
spec:
  mlPolicy: {numNodes: 1, torch: {}}
  template:
    spec:
      replicatedJobs:
        - name: node
          template:
            metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
            spec: {template: {spec: {containers: [{name: node}]}}}
)";
  const std::string job = R"(---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: tuned, namespace: team, annotations: {plimsoll.dev/model: described/model}}
spec:
  runtimeRef: {name: torch}
  trainer: {numNodes: 2, resourcesPerNode: {limits: {nvidia.com/gpu: 2}}}
)";
  const JobsOfInput found = read_all(runtime + job + kDescription);
  ASSERT_EQ(found.jobs.size(), 1U);
  ASSERT_TRUE(found.jobs.front().job) << to_string(found.jobs.front().job.error());
  EXPECT_EQ(found.jobs.front().job->spec.trainers.replicas, 4);
  const JobsOfInput missing = read_all(job + kDescription);
  ASSERT_EQ(missing.jobs.size(), 1U);
  ASSERT_FALSE(missing.jobs.front().job);
  EXPECT_THAT(missing.jobs.front().job.error().message, HasSubstr("torch is not among the files"));
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
