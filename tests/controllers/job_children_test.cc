#include "controllers/job_children.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/base64.h"
#include "base/gzip.h"
#include "base/yaml.h"

namespace plimsoll::controllers {
namespace {

using ::testing::HasSubstr;

crds::TrainingJob job_of(const std::string& name, const std::string& pod_spec,
                         const std::string& more_metadata = {}) {
  const std::string text = "apiVersion: plimsoll.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: " + name +
                           ", namespace: ads, uid: u-1" + more_metadata +
                           "}\nspec:\n  model: {graph: {configMapKeyRef: {name: g, key: k}}}\n"
                           "  training: {batchSizePerTrainer: 8}\n  template:\n    spec: " +
                           pod_spec + "\n";
  const Result<std::vector<Json>> documents = parse_yaml_documents(text);
  EXPECT_TRUE(documents.ok()) << text;
  Result<crds::TrainingJob> job = crds::decode_training_job(JsonView(documents->front()));
  EXPECT_TRUE(job.ok()) << to_string(job.error());
  return *std::move(job);
}

crds::Attempt attempt_of(std::int64_t trainers, std::int64_t per_node, std::int64_t number = 0) {
  crds::Attempt attempt;
  attempt.number = number;
  attempt.trainers = trainers;
  attempt.per_node = per_node;
  return attempt;
}

AttemptInputs inputs_of(const std::string& plan) {
  return {.plan = plan, .swap_plan = {}, .host_memory = {}, .shared_memory = {}};
}

AttemptChildren children_of(const crds::TrainingJob& job, const crds::Attempt& attempt,
                            const AttemptInputs& inputs) {
  Result<AttemptChildren> children = make_children(job, attempt, inputs);
  EXPECT_TRUE(children.ok()) << to_string(children.error());
  return *std::move(children);
}

AttemptChildren children_of(const crds::TrainingJob& job, const crds::Attempt& attempt,
                            const std::string& plan = "{}") {
  return children_of(job, attempt, inputs_of(plan));
}

const Json& pod_of(const AttemptChildren& children) {
  return children.job["spec"]["template"]["spec"];
}

std::string variable(const Json& container, const std::string& name) {
  for (const Json& entry : container["env"]) {
    if (text_member(entry, {"name"}) == name) {
      return entry.isMember("value") ? entry["value"].asString() : write_json(entry["valueFrom"]);
    }
  }
  return "(none)";
}

constexpr const char* kPlainPod = "{containers: [{name: trainer, image: i}]}";

TEST(ChildName, IsTheJobsAndTheAttempts) {
  EXPECT_EQ(child_name("ads", 0), "ads-0");
  EXPECT_EQ(child_name("ads", 12), "ads-12");
}

// Pods of an Indexed Job have a host name of 63 bytes at most, and Services begin with a letter.
TEST(ChildName, FitsADnsLabelAndStaysTheJobsOwn) {
  std::set<std::string> names;
  for (const std::string& job :
       {std::string(200, 'a'), std::string(199, 'a') + "b", std::string("7b-pretrain"),
        std::string("j7b-pretrain"), std::string("team.model"), std::string("team-model"),
        "x" + std::string(60, '-') + "y"}) {
    for (const std::int64_t attempt : {0, 7, 1234567}) {
      const std::string name = child_name(job, attempt);
      EXPECT_LE((name + "-65535").size(), 63U) << name;
      EXPECT_TRUE(std::islower(static_cast<unsigned char>(name.front())) != 0) << name;
      EXPECT_EQ(name.find('.'), std::string::npos) << name;
      EXPECT_TRUE(names.insert(name).second) << name;
    }
  }
}

TEST(Children, AreOwnedByTheJob) {
  const AttemptChildren children = children_of(job_of("ads", kPlainPod), attempt_of(8, 8));
  for (const Json* child : {&children.plan, &children.service, &children.job}) {
    const Json& owner = (*child)["metadata"]["ownerReferences"][0];
    EXPECT_EQ(owner["uid"].asString(), "u-1");
    EXPECT_TRUE(owner["controller"].asBool());
    EXPECT_EQ((*child)["metadata"]["namespace"].asString(), "ads");
    EXPECT_EQ((*child)["metadata"]["labels"][kAttemptLabel].asString(), "0");
  }
}

TEST(Children, CarryTheIdOfTheRequestThatSizedTheJob) {
  const char* kPod = "{containers: [{name: trainer, image: i}]}";
  const auto id_of = [](const Json& object) {
    return text_member(object, {"metadata", "annotations", "plimsoll.dev/request-id"});
  };
  const AttemptChildren with = children_of(
      job_of("j", kPod, ", annotations: {plimsoll.dev/request-id: r-1, other: x}"), attempt_of(8, 8));
  for (const Json* child : {&with.plan, &with.service, &with.job, &with.job["spec"]["template"]}) {
    EXPECT_EQ(id_of(*child), "r-1") << write_json(*child);
    EXPECT_EQ(text_member(*child, {"metadata", "annotations", "other"}), "");
  }
  const AttemptChildren without = children_of(job_of("j", kPod), attempt_of(8, 8));
  for (const Json* child : {&without.plan, &without.service, &without.job}) {
    EXPECT_TRUE((*child)["metadata"]["annotations"].isNull()) << "no empty annotation";
  }
  EXPECT_EQ(id_of(without.job["spec"]["template"]), "");
}

TEST(Children, AJobOfOnePodANode) {
  const AttemptChildren children = children_of(job_of("ads", kPlainPod), attempt_of(24, 8, 3));
  const Json& spec = children.job["spec"];
  EXPECT_EQ(spec["completionMode"].asString(), "Indexed");
  EXPECT_EQ(spec["completions"].asInt(), 3);
  EXPECT_EQ(spec["parallelism"].asInt(), 3);
  EXPECT_EQ(spec["backoffLimit"].asInt(), 0);
  EXPECT_EQ(spec["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["type"].asString(),
            "DisruptionTarget");
  const Json& container = pod_of(children)["containers"][0];
  EXPECT_EQ(variable(container, "WORLD_SIZE"), "24");
  EXPECT_EQ(variable(container, "NNODES"), "3");
  EXPECT_EQ(variable(container, "NPROC_PER_NODE"), "8");
  EXPECT_EQ(variable(container, "MASTER_ADDR"), "ads-3-0.ads-3");
  EXPECT_THAT(variable(container, "NODE_RANK"), HasSubstr("job-completion-index"));
  EXPECT_EQ(container["resources"]["limits"]["nvidia.com/gpu"].asString(), "8");
  EXPECT_EQ(container["terminationMessagePolicy"].asString(), "FallbackToLogsOnError");
  EXPECT_EQ(pod_of(children)["subdomain"].asString(), "ads-3");
  EXPECT_EQ(children.service["spec"]["clusterIP"].asString(), "None");
  const Json& labels = spec["template"]["metadata"]["labels"];
  for (const std::string& name : children.service["spec"]["selector"].getMemberNames()) {
    EXPECT_EQ(labels[name], children.service["spec"]["selector"][name]) << name;
  }
}

TEST(Children, TrainersReadTheirShareOfTheBatch) {
  crds::Attempt attempt = attempt_of(24, 8);
  attempt.batch_size = 64;
  attempt.accumulation = 4;
  const AttemptChildren children = children_of(job_of("ads", kPlainPod), attempt);
  const Json& container = pod_of(children)["containers"][0];
  EXPECT_EQ(variable(container, "PLIMSOLL_BATCH_SIZE_PER_TRAINER"), "64");
  EXPECT_EQ(variable(container, "PLIMSOLL_GRADIENT_ACCUMULATION"), "4");
}

TEST(Children, FewTrainersShareOnePod) {
  const AttemptChildren children = children_of(job_of("ads", kPlainPod), attempt_of(3, 8));
  EXPECT_EQ(children.job["spec"]["completions"].asInt(), 1);
  EXPECT_EQ(variable(pod_of(children)["containers"][0], "NPROC_PER_NODE"), "3");
}

TEST(Children, WhatTheUserWroteStays) {
  const AttemptChildren children = children_of(
      job_of("ads",
             "{restartPolicy: OnFailure, schedulerName: volcano, schedulingGates: [{name: g}], containers: ["
             "{name: log, image: l, terminationMessagePolicy: File},"
             "{name: trainer, image: i, env: [{name: MASTER_PORT, value: '1234'}, {name: MINE, value: x}],"
             " volumeMounts: [{name: own, mountPath: /etc/plimsoll}],"
             " resources: {limits: {nvidia.com/mig-3g.40gb: 1}}}]}"),
      attempt_of(8, 8));
  const Json& pod = pod_of(children);
  EXPECT_EQ(pod["restartPolicy"].asString(), "Never");  // what the Job's failure policy needs
  EXPECT_EQ(pod["schedulerName"].asString(), "volcano");
  EXPECT_EQ(pod["schedulingGates"].size(), 1U);
  EXPECT_EQ(pod["containers"][0]["terminationMessagePolicy"].asString(), "File");
  EXPECT_FALSE(pod["containers"][0].isMember("env"));
  const Json& trainer = pod["containers"][1];
  EXPECT_EQ(variable(trainer, "MASTER_PORT"), "1234");
  EXPECT_EQ(variable(trainer, "MINE"), "x");
  EXPECT_FALSE(trainer["resources"]["limits"].isMember("nvidia.com/gpu"));
  EXPECT_EQ(trainer["volumeMounts"].size(), 1U);
  EXPECT_FALSE(pod.isMember("volumes"));
}

std::string terms_of(const std::string& pod_spec, const std::vector<std::string>& avoided) {
  crds::Attempt attempt = attempt_of(8, 8);
  attempt.avoid_nodes = avoided;
  const AttemptChildren children = children_of(job_of("ads", pod_spec), attempt);
  return write_json(member(
      pod_of(children),
      {"affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"}));
}

// The scheduler takes one value for metadata.name, all requirements of a term, and any of the terms.
TEST(Children, PodsAreKeptOffNodesWhoseCardsOthersFill) {
  const std::string not_a = R"({"key":"metadata.name","operator":"NotIn","values":["node-a"]})";
  const std::string not_b = R"({"key":"metadata.name","operator":"NotIn","values":["node-b"]})";
  EXPECT_EQ(terms_of(kPlainPod, {}), "null");
  EXPECT_EQ(terms_of(kPlainPod, {"node-a", "node-b"}), R"([{"matchFields":[)" + not_a + "," + not_b + "]}]");
  const std::string zones =
      "{affinity: {podAntiAffinity: {}, nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: "
      "{nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: Exists}]}, {}]}}}, containers: "
      "[{name: trainer, image: i}]}";
  EXPECT_EQ(terms_of(zones, {"node-a"}),
            R"([{"matchExpressions":[{"key":"zone","operator":"Exists"}],"matchFields":[)" + not_a + "]},{}]")
      << "an empty term holds on no node, and must not begin to";
}

TEST(Children, PodsThatAreBoundToANodeStayBound) {
  EXPECT_EQ(terms_of("{nodeName: node-a, containers: [{name: trainer, image: i}]}", {"node-a"}), "null");
  EXPECT_EQ(
      terms_of("{nodeSelector: {kubernetes.io/hostname: node-a}, containers: [{name: trainer, image: i}]}",
               {"node-a"}),
      "null");
}

TEST(Children, ATemplateWhoseAffinityIsNoneIsRefusedAndNotOverwritten) {
  crds::Attempt attempt = attempt_of(8, 8);
  attempt.avoid_nodes = {"node-a"};
  const Result<AttemptChildren> children =
      make_children(job_of("ads", "{affinity: {nodeAffinity: [1]}, containers: [{name: trainer, image: i}]}"),
                    attempt, inputs_of("{}"));
  ASSERT_FALSE(children.ok());
  EXPECT_EQ(children.error().code, ErrorCode::kInvalid);
}

TEST(Children, QueueLabelsArePassedToTheJob) {
  const AttemptChildren children = children_of(
      job_of("ads", kPlainPod,
             ", labels: {kueue.x-k8s.io/queue-name: research, kueue.x-k8s.io/priority-class: high, "
             "team: ads}"),
      attempt_of(8, 8));
  const Json& labels = children.job["metadata"]["labels"];
  EXPECT_EQ(labels["kueue.x-k8s.io/queue-name"].asString(), "research");
  EXPECT_EQ(labels["kueue.x-k8s.io/priority-class"].asString(), "high");
  EXPECT_FALSE(labels.isMember("team"));
  EXPECT_FALSE(children.job["spec"].isMember("suspend"));  // the queue's own webhook sets it
}

TEST(Children, ExpandableSegmentsJoinTheUsersOwnSettings) {
  crds::Attempt attempt = attempt_of(8, 8);
  attempt.expandable_segments = true;
  const auto setting = [&](const std::string& environment, const char* name) {
    return variable(
        pod_of(children_of(job_of("ads", "{containers: [{name: t, image: i, env: [" + environment + "]}]}"),
                           attempt))["containers"][0],
        name);
  };
  EXPECT_EQ(setting("", "PYTORCH_CUDA_ALLOC_CONF"), "expandable_segments:True");
  EXPECT_EQ(
      setting("{name: PYTORCH_CUDA_ALLOC_CONF, value: 'max_split_size_mb:512'}", "PYTORCH_CUDA_ALLOC_CONF"),
      "max_split_size_mb:512,expandable_segments:True");
  EXPECT_EQ(setting("{name: PYTORCH_ALLOC_CONF, value: 'backend:native'}", "PYTORCH_ALLOC_CONF"),
            "backend:native,expandable_segments:True");
  EXPECT_EQ(setting("{name: PYTORCH_CUDA_ALLOC_CONF, value: 'expandable_segments:False'}",
                    "PYTORCH_CUDA_ALLOC_CONF"),
            "expandable_segments:False");
}

TEST(Children, ALargePlanIsCompressed) {
  std::string plan = "[";
  for (int i = 0; i < 300'000; ++i) {
    plan += std::to_string(i % 977) + ",";
  }
  plan += "0]";
  const AttemptChildren children = children_of(job_of("ads", kPlainPod), attempt_of(8, 8), plan);
  EXPECT_FALSE(children.plan.isMember("data"));
  const Result<std::string> packed = base64_decode(children.plan["binaryData"]["plan.json.gz"].asString());
  ASSERT_TRUE(packed.ok());
  EXPECT_TRUE(is_gzip(*packed));
}

TEST(Children, APlanThatNoConfigMapHoldsIsRefused) {
  std::string noise;
  std::uint64_t state = 88172645463325252U;  // xorshift: nothing that could be compressed
  while (noise.size() < (3U << 20U)) {
    state ^= state << 13U;
    state ^= state >> 7U;
    state ^= state << 17U;
    noise.append(reinterpret_cast<const char*>(&state), sizeof state);
  }
  const Result<AttemptChildren> children =
      make_children(job_of("ads", kPlainPod), attempt_of(8, 8), inputs_of(noise));
  ASSERT_FALSE(children.ok());
  EXPECT_EQ(children.error().code, ErrorCode::kTooLarge);
}

TEST(Children, SelectorAndLabelsAgree) {
  const AttemptChildren children = children_of(job_of(std::string(180, 'n'), kPlainPod), attempt_of(8, 8, 5));
  const Json& labels = children.job["spec"]["template"]["metadata"]["labels"];
  EXPECT_EQ(pods_selector(std::string(180, 'n'), 5),
            std::string(kJobNameLabel) + "=" + labels[kJobNameLabel].asString() + "," + kAttemptLabel + "=5");
  EXPECT_LE(labels[kJobNameLabel].asString().size(), 63U);
}

// One process drives all GPUs of a swap plan, and asks for what the plan keeps on the host.
TEST(JobChildren, ASwapPlanHasOneProcessAndItsHostMemory) {
  const AttemptInputs inputs{
      .plan = "{}", .swap_plan = R"({"mode": "vPP"})", .host_memory = 200_GiB, .shared_memory = 2_GiB};
  const AttemptChildren children = children_of(job_of("ads", kPlainPod), attempt_of(4, 4), inputs);
  EXPECT_EQ(children.plan["data"]["swap.json"].asString(), R"({"mode": "vPP"})");
  EXPECT_EQ(children.job["spec"]["completions"].asInt(), 1);
  const Json& pod = pod_of(children);
  const Json& trainer = pod["containers"][0];
  EXPECT_EQ(variable(trainer, "PLIMSOLL_SWAP_PLAN"), "/etc/plimsoll/swap.json");
  EXPECT_EQ(variable(trainer, "WORLD_SIZE"), "1");
  EXPECT_EQ(variable(trainer, "PET_NPROC_PER_NODE"), "1");
  EXPECT_EQ(trainer["resources"]["limits"][crds::kGpuResource].asString(), "4");
  EXPECT_EQ(trainer["resources"]["limits"]["memory"].asString(), "200Gi");
  EXPECT_EQ(trainer["resources"]["requests"]["memory"].asString(), "200Gi");
  EXPECT_EQ(trainer["volumeMounts"][1]["mountPath"].asString(), "/dev/shm");
  EXPECT_EQ(write_json(pod["volumes"][1]["emptyDir"]), R"({"medium":"Memory","sizeLimit":"2Gi"})");
}

TEST(JobChildren, AJobInGpuMemoryHasNeither) {
  const AttemptChildren children = children_of(job_of("ads", kPlainPod), attempt_of(4, 4));
  const Json& trainer = pod_of(children)["containers"][0];
  EXPECT_EQ(variable(trainer, "PLIMSOLL_SWAP_PLAN"), "(none)");
  EXPECT_EQ(variable(trainer, "WORLD_SIZE"), "4");
  EXPECT_FALSE(trainer["resources"]["limits"].isMember("memory"));
  EXPECT_FALSE(children.plan["data"].isMember("swap.json"));
}

TEST(JobChildren, WhatTheTemplateGivesIsKeptWhereItIsEnough) {
  const AttemptInputs inputs{.plan = "{}", .swap_plan = "{}", .host_memory = 200_GiB, .shared_memory = 2_GiB};
  const std::string pod =
      "{volumes: [{name: mine, emptyDir: {medium: Memory}}], containers: [{name: trainer, image: i, "
      "volumeMounts: [{name: mine, mountPath: /dev/shm}], "
      "resources: {requests: {memory: 100Gi}, limits: {memory: 300Gi}}}]}";
  const AttemptChildren children = children_of(job_of("ads", pod), attempt_of(4, 4), inputs);
  const Json& trainer = pod_of(children)["containers"][0];
  EXPECT_EQ(trainer["resources"]["requests"]["memory"].asString(), "200Gi");
  EXPECT_EQ(trainer["resources"]["limits"]["memory"].asString(), "300Gi");
  EXPECT_EQ(pod_of(children)["volumes"].size(), 2U) << "its own, and the plan's";
}

AttemptChildren with_shared_memory(const std::string& pod) {
  const AttemptInputs inputs{.plan = "{}", .swap_plan = {}, .host_memory = {}, .shared_memory = 16_GiB};
  return children_of(job_of("ads", pod), attempt_of(8, 8), inputs);
}

TEST(JobChildren, ALargerShmIsMountedWhereTheTemplateHasNone) {
  const AttemptChildren children =
      with_shared_memory("{containers: [{name: logs, image: i}, {name: trainer, image: i}]}");
  const Json& pod = pod_of(children);
  EXPECT_EQ(pod["containers"][1]["volumeMounts"][1]["mountPath"].asString(), "/dev/shm");
  EXPECT_EQ(write_json(pod["volumes"][1]["emptyDir"]), R"({"medium":"Memory","sizeLimit":"16Gi"})");
  EXPECT_FALSE(pod["containers"][0].isMember("volumeMounts"));
}

// A pod with two mounts of one path is refused by the API server.
TEST(JobChildren, TheTemplatesOwnShmIsEnlargedAndNeverMountedTwice) {
  struct Case {
    const char* volume;
    const char* path;
    const char* then;
  };
  for (const Case& one : {Case{"emptyDir: {medium: Memory, sizeLimit: 1Gi}", "/dev/shm",
                               R"({"medium":"Memory","sizeLimit":"16Gi"})"},
                          Case{"emptyDir: {medium: Memory, sizeLimit: 1Gi}", "/dev/shm/",
                               R"({"medium":"Memory","sizeLimit":"16Gi"})"},
                          Case{"emptyDir: {medium: Memory, sizeLimit: 1024}", "/dev/shm",
                               R"({"medium":"Memory","sizeLimit":"16Gi"})"},
                          Case{"emptyDir: {medium: Memory, sizeLimit: 64Gi}", "/dev/shm",
                               R"({"medium":"Memory","sizeLimit":"64Gi"})"},
                          Case{"emptyDir: {medium: Memory}", "/dev/shm", R"({"medium":"Memory"})"},
                          Case{"emptyDir: {sizeLimit: 1Gi}", "/dev/shm", R"({"sizeLimit":"1Gi"})"},
                          Case{"hostPath: {path: /dev/shm}", "/dev/shm", "null"}}) {
    const AttemptChildren children = with_shared_memory(
        std::string("{volumes: [{name: a, emptyDir: {sizeLimit: 1Gi}}, {name: mine, ") + one.volume +
        "}], containers: [{name: trainer, image: i, volumeMounts: [{name: mine, mountPath: " + one.path +
        "}]}]}");
    const Json& pod = pod_of(children);
    EXPECT_EQ(pod["containers"][0]["volumeMounts"].size(), 2U) << "its own, and the plan's";
    EXPECT_EQ(write_json(pod["volumes"][0]["emptyDir"]), R"({"sizeLimit":"1Gi"})") << one.volume;
    EXPECT_EQ(write_json(pod["volumes"][1]["emptyDir"]), one.then) << one.volume;
  }
}

TEST(JobChildren, TheShmOfTheNodeIsNotHidden) {
  const AttemptChildren children =
      with_shared_memory("{hostIPC: true, containers: [{name: trainer, image: i}]}");
  EXPECT_EQ(pod_of(children)["volumes"].size(), 1U) << "the plan's";
}

}  // namespace
}  // namespace plimsoll::controllers
