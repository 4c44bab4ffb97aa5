#include "tests/controllers/job_world.h"

#include "base/file.h"
#include "base/yaml.h"
#include "controllers/job_children.h"
#include "tests/checkout.h"
#include "tests/controlplane/api_server.h"

namespace plimsoll::testing {
namespace {

using controllers::kJobs;
using controllers::kPods;
using controllers::kTrainingJobs;

constexpr const char* kNamespace = "default";
const kube::Resource kCrdResource{"apiextensions.k8s.io", "v1", "customresourcedefinitions", false};

Json yaml(const std::string& text) {
  const Result<std::vector<Json>> documents = parse_yaml_documents(text);
  EXPECT_TRUE(documents.ok()) << text;
  return documents ? documents->front() : Json();
}

Json json(const std::string& text) {
  const Result<Json> parsed = parse_json(text);
  EXPECT_TRUE(parsed.ok()) << text;
  return parsed ? *parsed : Json();
}

std::string quoted(const std::string& text) {
  return write_json(Json(text));
}

Error dead() {
  return {ErrorCode::kUnavailable, "the process has died"};
}

}  // namespace

template <class T, class Call>
Result<T> DyingClient::write(Call call) {
  if (died_) {
    return dead();
  }
  if (writes_-- > 0) {
    return call();
  }
  died_ = true;
  if (loses_answer_) {
    (void)call();
  }
  return dead();
}

Result<Json> DyingClient::get(const kube::Resource& resource, const std::string& ns, const std::string& name,
                              const kube::CallOptions& options) {
  return died_ ? Result<Json>(dead()) : to_.get(resource, ns, name, options);
}
Result<Json> DyingClient::list(const kube::Resource& resource, const std::string& ns,
                               const kube::ListOptions& what, const kube::CallOptions& options) {
  return died_ ? Result<Json>(dead()) : to_.list(resource, ns, what, options);
}
Result<Json> DyingClient::create(const kube::Resource& resource, const std::string& ns, const Json& object,
                                 const kube::CallOptions& options) {
  return write<Json>([&] { return to_.create(resource, ns, object, options); });
}
Result<Json> DyingClient::update(const kube::Resource& resource, const std::string& ns, const Json& object,
                                 const std::string& subresource, const kube::CallOptions& options) {
  return write<Json>([&] { return to_.update(resource, ns, object, subresource, options); });
}
Result<Json> DyingClient::patch(const kube::Resource& resource, const std::string& ns,
                                const std::string& name, kube::PatchType type, const Json& patch,
                                const std::string& subresource, const kube::CallOptions& options) {
  return write<Json>([&] { return to_.patch(resource, ns, name, type, patch, subresource, options); });
}
Result<void> DyingClient::remove(const kube::Resource& resource, const std::string& ns,
                                 const std::string& name, const kube::CallOptions& options) {
  return write<void>([&] { return to_.remove(resource, ns, name, options); });
}
Result<void> DyingClient::watch(const kube::Resource&, const std::string&, const kube::WatchOptions&,
                                const std::function<void(const kube::WatchEvent&)>&, std::stop_token) {
  return dead();
}
Result<std::string> DyingClient::get_raw(const std::string& path, const kube::CallOptions& options) {
  return died_ ? Result<std::string>(dead()) : to_.get_raw(path, options);
}

JobWorld::JobWorld() {
  Result<std::unique_ptr<FakeApiServer>> server = FakeApiServer::start();
  EXPECT_TRUE(server.ok());
  server_ = *std::move(server);
  client_ = server_->make_client();
  for (const char* kind : {"trainingjobs", "gpumodels", "memoryprofiles"}) {
    const Json crd =
        yaml(*read_file(PLIMSOLL_SOURCE_DIR "/crds/plimsoll.dev_" + std::string(kind) + ".yaml"));
    EXPECT_TRUE(client_->create(kCrdResource, "", crd).ok()) << kind;
  }
  set_gpus({{"A100-80GB", 64, 64}});
}

void JobWorld::set_gpus(const std::vector<Gpus>& gpus) {
  std::vector<Json> models;
  for (const Gpus& gpu : gpus) {
    models.push_back(yaml("apiVersion: plimsoll.dev/v1alpha1\nkind: GPUModel\nmetadata: {name: " + gpu.model +
                          "}\nspec: {}\nstatus: {totalGPUs: " + std::to_string(gpu.total) +
                          ", freeGPUs: " + std::to_string(gpu.free) +
                          ", nodeShapes: [{gpusPerNode: 8, nodes: " + std::to_string(gpu.total / 8) +
                          "}], productLabels: [PRODUCT-" + gpu.model + "]}\n"));
  }
  cluster_.set(estimator::make_cluster_view(estimator::GpuCatalog::built_in(), models, {}));
}

void JobWorld::create(const std::string& text) {
  const Result<Json> made = client_->create(kTrainingJobs, kNamespace, yaml(text));
  ASSERT_TRUE(made.ok()) << to_string(made.error());
}

Json JobWorld::job(const std::string& name) {
  const Result<Json> found = client_->get(kTrainingJobs, kNamespace, name);
  return found ? *found : Json();
}

Json JobWorld::child(const std::string& name) {
  const Result<Json> found = client_->get(kJobs, kNamespace, name);
  if (!found) {
    return {};
  }
  const std::string uid = text_member(*found, {"metadata", "uid"});
  if (uids_[name] != uid) {
    uids_[name] = uid;
    ++made_[name];
  }
  return *found;
}

void JobWorld::patch(const std::string& name, const std::string& merge_patch) {
  const Result<Json> patched =
      client_->patch(kTrainingJobs, kNamespace, name, kube::PatchType::kMerge, json(merge_patch));
  ASSERT_TRUE(patched.ok()) << to_string(patched.error());
}

void JobWorld::erase_child(const std::string& name) {
  ASSERT_TRUE(client_->remove(kJobs, kNamespace, name).ok());
}

void JobWorld::erase(const std::string& name) {
  ASSERT_TRUE(client_->remove(kTrainingJobs, kNamespace, name).ok());
}

void JobWorld::label_namespace(const std::string& mode) {
  const Json patch = *parse_json(R"({"metadata":{"labels":{"plimsoll.dev/mode":")" + mode + R"("}}})");
  const Result<Json> changed =
      client_->patch(controllers::kNamespaces, "", kNamespace, kube::PatchType::kMerge, patch);
  ASSERT_TRUE(changed.ok()) << to_string(changed.error());
}

Result<controllers::RequeueAfter> JobWorld::look(const std::string& name, kube::Client* through) {
  controllers::PassContext with;
  with.client = through == nullptr ? client_.get() : through;
  with.cluster = &cluster_;
  with.clock = &clock_;
  with.find_job = [this](const std::string& key) {
    Json found = child(key.substr(key.find('/') + 1));
    return found.isNull() ? kube::SharedObject() : kube::SharedObject(found);
  };
  with.find_pods = [](const std::string&) { return std::vector<Json>(); };
  with.departed_pods = [this](const std::string&) { return departed; };
  with.policy = policy;
  with.patterns = patterns;
  return controllers::reconcile(with, job(name));
}

void JobWorld::settle(const std::string& name) {
  // A look that wants another after a while may be a back-off that has just begun, or one of the looks that
  // a job whose pods do not start gets again and again.
  int idle = 0;
  for (int i = 0; i < 40; ++i) {
    const std::string before = write_json(job(name));
    const Result<controllers::RequeueAfter> next = look(name);
    ASSERT_TRUE(next.ok()) << to_string(next.error());
    idle = write_json(job(name)) == before ? idle + 1 : 0;
    if (idle > (*next ? 1 : 0)) {
      return;
    }
    if (*next) {
      pass(std::chrono::duration_cast<std::chrono::seconds>(**next) + std::chrono::seconds(1));
    }
  }
  FAIL() << "it does not settle: " << write_json(job(name)["status"]);
}

void JobWorld::set_status(const kube::Resource& resource, Json object, const Json& status) {
  object["status"] = status;
  const Result<Json> updated = client_->update(resource, kNamespace, object, "status");
  ASSERT_TRUE(updated.ok()) << to_string(updated.error());
}

Json JobWorld::put_pod(const std::string& child_name, const Json& status) {
  const Json owner = child(child_name);
  Json pod(::Json::objectValue);
  pod["apiVersion"] = "v1";
  pod["kind"] = "Pod";
  pod["metadata"]["name"] = child_name + "-0-abcde";
  pod["metadata"]["labels"] = owner["spec"]["template"]["metadata"]["labels"];
  Json& reference = pod["metadata"]["ownerReferences"][0];
  reference["apiVersion"] = "batch/v1";
  reference["kind"] = "Job";
  reference["name"] = child_name;
  reference["uid"] = owner["metadata"]["uid"];
  reference["controller"] = true;
  pod["spec"]["nodeName"] = "gpu-7";
  pod["spec"]["containers"] = owner["spec"]["template"]["spec"]["containers"];
  Result<Json> made = client_->create(kPods, kNamespace, pod);
  if (!made) {
    made = client_->get(kPods, kNamespace, child_name + "-0-abcde");
  }
  EXPECT_TRUE(made.ok()) << to_string(made.error());
  if (made) {
    set_status(kPods, *made, status);
    pod = *made;
    pod["status"] = status;
  }
  return pod;
}

void JobWorld::run_pods(const std::string& child_name) {
  set_status(kJobs, child(child_name), json(R"({"active":1,"ready":1})"));
}

void JobWorld::complete(const std::string& child_name) {
  put_pod(child_name, json(R"({"phase":"Succeeded"})"));
  set_status(kJobs, child(child_name),
             json(R"({"succeeded":1,"conditions":[{"type":"Complete","status":"True"}]})"));
}

void JobWorld::fail_child(const std::string& child_name, const std::string& reason,
                          const std::string& message) {
  set_status(kJobs, child(child_name),
             json(R"({"failed":1,"conditions":[{"type":"Failed","status":"True","reason":)" + quoted(reason) +
                  R"(,"message":)" + quoted(message) + "}]}"));
}

void JobWorld::fail_pods(const std::string& child_name, const std::string& termination_message,
                         int exit_code) {
  put_pod(child_name,
          json(R"({"phase":"Failed","containerStatuses":[{"name":"trainer","ready":false,"restartCount":0,)"
               R"("image":"i","imageID":"","state":{"terminated":{"exitCode":)" +
               std::to_string(exit_code) + R"(,"reason":"Error","message":)" + quoted(termination_message) +
               R"(,"finishedAt":"2026-11-21T08:30:00Z"}}}]})"));
  fail_child(child_name, "BackoffLimitExceeded", "Job has reached the specified backoff limit");
}

void JobWorld::preempt(const std::string& child_name, bool pod_is_gone) {
  const Json pod = put_pod(
      child_name,
      json(
          R"({"phase":"Failed","conditions":[{"type":"DisruptionTarget","status":"True",)"
          R"("reason":"PreemptionByScheduler","message":"preempting to accommodate a higher priority pod"}]})"));
  if (pod_is_gone) {
    ASSERT_TRUE(client_->remove(kPods, kNamespace, text_member(pod, {"metadata", "name"})).ok());
  }
  fail_child(child_name, "PodFailurePolicy",
             "Pod default/x has condition DisruptionTarget matching FailJob rule at index 0");
}

void JobWorld::start_slow_pod(const std::string& child_name) {
  const Json owner = child(child_name);
  const std::string uid = text_member(owner, {"metadata", "uid"});
  Json pod(::Json::objectValue);
  pod["apiVersion"] = "v1";
  pod["kind"] = "Pod";
  pod["metadata"]["name"] = child_name + "-0-" + uid.substr(0, 5);
  pod["metadata"]["labels"] = owner["spec"]["template"]["metadata"]["labels"];
  pod["metadata"]["finalizers"].append("test.plimsoll.dev/slow");
  Json& reference = pod["metadata"]["ownerReferences"][0];
  reference["apiVersion"] = "batch/v1";
  reference["kind"] = "Job";
  reference["name"] = child_name;
  reference["uid"] = uid;
  reference["controller"] = true;
  pod["spec"]["nodeName"] = "gpu-7";
  pod["spec"]["containers"] = owner["spec"]["template"]["spec"]["containers"];
  const Result<Json> made = client_->create(kPods, kNamespace, pod);
  ASSERT_TRUE(made.ok()) << to_string(made.error());
  set_status(kPods, *made, json(R"({"phase":"Running"})"));
}

int JobWorld::end_pods() {
  const Result<Json> pods = client_->list(kPods, kNamespace);
  EXPECT_TRUE(pods.ok());
  int ended = 0;
  for (const Json& pod : (*pods)["items"]) {
    if (!member(pod, {"metadata", "deletionTimestamp"}).isNull()) {
      const Result<Json> released =
          client_->patch(kPods, kNamespace, text_member(pod, {"metadata", "name"}), kube::PatchType::kMerge,
                         json(R"({"metadata":{"finalizers":null}})"));
      EXPECT_TRUE(released.ok()) << to_string(released.error());
      ++ended;
    }
  }
  return ended;
}

std::map<std::string, int> JobWorld::live_pods() {
  const Result<Json> pods = client_->list(kPods, kNamespace);
  EXPECT_TRUE(pods.ok());
  std::map<std::string, int> live;
  for (const Json& pod : (*pods)["items"]) {
    const std::string phase = text_member(pod, {"status", "phase"});
    if (phase != "Succeeded" && phase != "Failed") {
      ++live[text_member(pod["metadata"]["ownerReferences"][0], {"uid"})];
    }
  }
  return live;
}

std::vector<Json> JobWorld::children() {
  const Result<Json> jobs = client_->list(kJobs, kNamespace);
  EXPECT_TRUE(jobs.ok());
  return {(*jobs)["items"].begin(), (*jobs)["items"].end()};
}

std::string job_yaml(const std::string& name, int replicas, const std::string& more) {
  return "apiVersion: plimsoll.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: " + name +
         ", namespace: default, labels: {kueue.x-k8s.io/queue-name: research}}\nspec:\n"
         "  model:\n    family: ads\n    dlrm:\n      bottomMLP: [512, 128]\n      topMLP: [512, 1]\n"
         "      tables:\n"
         "        - {name: user, rows: 200000000, dim: 128}\n"
         "        - {name: item, rows: 50000000, dim: 128, poolingFactor: \"20\"}\n"
         "  training: {batchSizePerTrainer: 1024}\n"
         "  trainers: {replicas: " +
         std::to_string(replicas) + ", perNode: 8, gpuModel: A100-80GB}\n" + more +
         "  template:\n    spec:\n      containers:\n        - {name: trainer, image: "
         "\"registry.example/t:1\"}\n";
}

}  // namespace plimsoll::testing
