#include "tests/e2e/training_stage.h"

#include <algorithm>

#include "tests/testing/eventually.h"

namespace plimsoll::testing {
namespace {

const kube::Resource kTrainingJobs{.group = "plimsoll.dev", .version = "v1alpha1", .plural = "trainingjobs"};
const kube::Resource kJobs{.group = "batch", .version = "v1", .plural = "jobs"};
const kube::Resource kPods{.group = "", .version = "v1", .plural = "pods"};

kube::Reflector::Options all_of(const kube::Resource& resource, kube::Reflector::Handler handler) {
  kube::Reflector::Options options;
  options.resource = resource;
  options.on_change = std::move(handler);
  return options;
}

}  // namespace

const char* const kOutOfMemoryText =
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB. GPU 0 has a total capacity of "
    "79.15 GiB of which 3.65 GiB is free. Including non-PyTorch memory, this process has 75.50 GiB memory in "
    "use. Of the allocated memory 73.10 GiB is allocated by PyTorch, and 210.50 MiB is reserved by PyTorch "
    "but unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory "
    "Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)";

std::string TrainingJobManifest::text() const {
  std::string made;
  for (const auto& [key, value] : annotations) {
    Json text = value;
    made += "        test.plimsoll.dev/" + key + ": " + write_json(text) + "\n";
  }
  return "apiVersion: plimsoll.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: " + name +
         ", namespace: default}\nspec:\n  model:\n" + (family.empty() ? "" : "    family: " + family + "\n") +
         "    dlrm:\n      denseFeatures: 13\n      bottomMLP: [512, 256, 64]\n      topMLP: [512, 256, 1]\n"
         "      interaction: Dot\n      tables:\n        - {name: item, count: 32, rows: 25000000, dim: 64}\n"
         "  training: {batchSizePerTrainer: 1024}\n  provisioning: {maxTrainers: " +
         std::to_string(max_trainers) + "}\n  trainers: {replicas: " + std::to_string(replicas) +
         ", perNode: 1, gpuModel: A100-80GB}\n" + more + "  template:\n    metadata:\n      annotations:\n" +
         "        test.plimsoll.dev/any: \"\"\n" + made +
         "    spec:\n      terminationGracePeriodSeconds: " + std::to_string(grace_seconds) +
         "\n      containers:\n"
         "        - {name: trainer, image: none, resources: {limits: {nvidia.com/gpu: 1}}}\n";
}

ApiServerOptions TrainingTest::server_options() const {
  return {.controller_manager = true, .scheduler = true, .kwok = true};
}

void TrainingTest::SetUp() {
  MainJobTest::SetUp();
  if (!IsSkipped() && !HasFatalFailure()) {
    client_ = server_->make_client();
  }
}

void TrainingTest::add_node(const std::string& name, int gpus) {
  std::string node = node_manifest(name, "NVIDIA-A100-SXM4-80GB", 81920, gpus);
  const std::string before = "\n  labels:";
  node.insert(node.find(before), "\n  annotations: {kwok.x-k8s.io/node: fake}");
  must({"create", "-f", "-"}, node);
}

void TrainingTest::wait_for_gpus(int count) {
  wait_until_counted("a100-80gb", count);
}

Json TrainingTest::live(const std::string& name) {
  const Result<Json> job = client_->get(kTrainingJobs, "default", name);
  return job ? *job : Json();
}

Json TrainingTest::wait_for(const std::string& name, const Condition& condition,
                            std::chrono::seconds patience) {
  Json job;
  const auto look = [&] {
    job = live(name);
    return condition(job);
  };
  EXPECT_TRUE(eventually("the condition of " + name, look, true, patience)) << story(name);
  return job;
}

Json TrainingTest::wait_for_end(const std::string& name, std::chrono::seconds patience) {
  return wait_for(
      name, [](const Json& job) { return is_true(job, "Succeeded") || is_true(job, "Failed"); }, patience);
}

void TrainingTest::set_suspended(const std::string& name, bool suspended) {
  must({"patch", "tj", name, "--type=merge", "-p",
        std::string(R"({"spec":{"suspend":)") + (suspended ? "true" : "false") + "}}"});
}

std::vector<Json> TrainingTest::pods_of(const std::string& child) {
  kube::ListOptions what;
  what.label_selector = "batch.kubernetes.io/job-name=" + child;
  const Result<Json> pods = client_->list(kPods, "default", what);
  return pods ? std::vector<Json>((*pods)["items"].begin(), (*pods)["items"].end()) : std::vector<Json>();
}

void TrainingTest::evict(const std::string& pod) {
  must({"create", "--raw", "/api/v1/namespaces/default/pods/" + pod + "/eviction", "-f", "-"},
       R"({"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":")" + pod +
           R"(","namespace":"default"}})");
}

int TrainingTest::end_terminating_pods(const std::string& child) {
  int ended = 0;
  for (const Json& pod : pods_of(child)) {
    if (member(pod, {"metadata", "deletionTimestamp"}).isNull() ||
        text_member(pod, {"status", "phase"}) != "Running") {
      continue;
    }
    Json patch(::Json::objectValue);
    patch["status"]["phase"] = "Failed";
    patch["status"]["containerStatuses"] = member(pod, {"status", "containerStatuses"});
    for (Json& status : patch["status"]["containerStatuses"]) {
      status["ready"] = false;
      status["state"] = Json(::Json::objectValue);
      status["state"]["terminated"]["exitCode"] = 143;
      status["state"]["terminated"]["reason"] = "Error";
    }
    const Result<Json> patched = client_->patch(kPods, "default", text_member(pod, {"metadata", "name"}),
                                                kube::PatchType::kMerge, patch, "status");
    EXPECT_TRUE(patched.ok()) << to_string(patched.error());
    ++ended;
  }
  return ended;
}

std::string TrainingTest::story(const std::string& name) {
  std::string told = write_json_pretty(live(name)["status"]) + "\n";
  told += kubectl({"get", "jobs,pods", "-o", "wide"}).output;
  told += kubectl({"get", "events", "--sort-by=.lastTimestamp"}).output;
  if (operator_ != nullptr) {
    told += operator_->log();
  }
  return told;
}

bool is_true(const Json& job, const std::string& condition) {
  for (const Json& candidate : member(job, {"status", "conditions"})) {
    if (text_member(candidate, {"type"}) == condition) {
      return text_member(candidate, {"status"}) == "True";
    }
  }
  return false;
}

std::string why(const Json& job, const std::string& condition) {
  for (const Json& candidate : member(job, {"status", "conditions"})) {
    if (text_member(candidate, {"type"}) == condition) {
      return text_member(candidate, {"reason"}) + ": " + text_member(candidate, {"message"});
    }
  }
  return {};
}

const Json& attempts_of(const Json& job) {
  return member(job, {"status", "attempts"});
}

std::vector<std::string> outcomes_of(const Json& job) {
  std::vector<std::string> outcomes;
  for (const Json& attempt : attempts_of(job)) {
    outcomes.push_back(text_member(attempt, {"outcome"}));
  }
  return outcomes;
}

PodWatch::PodWatch(std::unique_ptr<kube::Client> client)
    : client_(std::move(client)),
      reflector_(*client_, all_of(kPods, [this](const kube::Reflector::Change& change) {
        seen(change.object.tree(), change.kind == kube::Reflector::Change::Kind::kRemoved);
      })) {
  reflector_.start();
}

void PodWatch::seen(Json pod, bool removed) {
  const std::string job = text_member(pod, {"metadata", "labels", "plimsoll.dev/job-name"});
  const std::string phase = text_member(pod, {"status", "phase"});
  const std::lock_guard lock(mutex_);
  std::map<std::string, std::string>& live = live_[job];
  const std::string name = text_member(pod, {"metadata", "name"});
  if (removed || phase == "Succeeded" || phase == "Failed") {
    live.erase(name);
    return;
  }
  live[name] = text_member(pod["metadata"]["ownerReferences"][0], {"uid"});
  for (const auto& [other, owner] : live) {
    if (!job.empty() && owner != live[name]) {
      overlaps_.push_back(name + " began while " + other + " had not ended");
    }
  }
}

std::vector<std::string> PodWatch::overlaps() const {
  const std::lock_guard lock(mutex_);
  return overlaps_;
}

JobWatch::JobWatch(std::unique_ptr<kube::Client> client)
    : client_(std::move(client)),
      reflector_(*client_, all_of(kJobs, [this](const kube::Reflector::Change& change) {
        seen(change.object.tree());
      })) {
  reflector_.start();
}

void JobWatch::seen(const Json& job) {
  const std::string owner = text_member(job["metadata"]["ownerReferences"][0], {"uid"});
  const std::string uid = text_member(job, {"metadata", "uid"});
  const std::lock_guard lock(mutex_);
  std::vector<std::string>& uids = made_[text_member(job, {"metadata", "name"}) + " of " + owner];
  if (std::find(uids.begin(), uids.end(), uid) == uids.end()) {
    uids.push_back(uid);
  }
}

std::map<std::string, std::vector<std::string>> JobWatch::made() const {
  const std::lock_guard lock(mutex_);
  return made_;
}

std::vector<std::string> JobWatch::made_twice() const {
  std::vector<std::string> twice;
  for (const auto& [name, uids] : made()) {
    if (uids.size() > 1) {
      twice.push_back(name + ": " + std::to_string(uids.size()) + " times");
    }
  }
  return twice;
}

}  // namespace plimsoll::testing
