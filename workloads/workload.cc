#include "workloads/workload.h"

#include <algorithm>
#include <utility>

#include "base/json/edit.h"
#include "workloads/description.h"
#include "workloads/pod_groups.h"
#include "workloads/train_job.h"

namespace plimsoll::workloads {
namespace {

// batch/v1: an Indexed Job of as many completions as pods at a time is one training job. Of others, pods are tasks, of which there
// are as many as there is work.
void add_job(Collector& collector, std::string role, const Place& spec, bool only) {
  const Place parallelism = spec.at("parallelism");
  const Place completions = spec.at("completions");
  const bool indexed = member(spec.value, {"completionMode"}).text() == "Indexed";
  const bool together =
      !completions.value.is_null() && completions.value.integer() == parallelism.value.integer();
  std::vector<CountField> counts;
  if (only && indexed && together) {
    counts = {{parallelism.pointer}, {completions.pointer}};
  }
  collector.add(std::move(role), spec.at("template"), count_at(parallelism, 1), std::move(counts));
}

Result<Workload> read_job(const JsonView& object, const References&) {
  Collector collector;
  add_job(collector, "the Job", Place{object, {}}.at("spec"), true);
  return std::move(collector).take();
}

// jobset.x-k8s.io: each of spec.replicatedJobs is `replicas` Jobs of one template.
Result<Workload> read_job_set(const JsonView& object, const References&) {
  Collector collector;
  const Place jobs = Place{object, {}}.at("spec").at("replicatedJobs");
  std::size_t index = 0;
  for (const JsonView& each : jobs.value.elements()) {
    const Place job{each, jobs.pointer + '/' + std::to_string(index++)};
    const Place replicas = job.at("replicas");
    const Place spec = job.at("template").at("spec");
    const std::string role(member(each, {"name"}).text().value_or("a replicated job"));
    const Result<std::int64_t> jobs_of_it = count_at(replicas, 1);
    if (jobs_of_it && *jobs_of_it == 1) {
      add_job(collector, role, spec, true);
      continue;
    }
    const Place parallelism = spec.at("parallelism");
    const Result<std::int64_t> pods_of_each = count_at(parallelism, 1);
    std::vector<CountField> counts;
    if (pods_of_each && *pods_of_each == 1) {
      counts = {{replicas.pointer}};
    }
    collector.add(role, spec.at("template"), product(jobs_of_it, pods_of_each), std::move(counts));
  }
  return std::move(collector).take();
}

// kubeflow.org/v1, training-operator 1.9: the Master is one pod, there are `replicas` Workers.
Result<Workload> read_pytorch_job(const JsonView& object, const References&) {
  Collector collector;
  const Place spec = Place{object, {}}.at("spec");
  const Place roles = spec.at("pytorchReplicaSpecs");
  for (const char* role : {"Master", "Worker"}) {
    const Place place = roles.at(role);
    if (!place.value.is_object()) {
      continue;
    }
    const Place replicas = place.at("replicas");
    std::vector<CountField> counts;
    if (std::string_view(role) == "Worker") {
      counts = {{replicas.pointer}};
    }
    collector.add(role, place.at("template"), count_at(replicas, 1), std::move(counts));
  }
  collector.may_repeat_gpus(spec.at("nprocPerNode"));
  if (!spec.at("elasticPolicy").value.is_null()) {
    collector.fix("it has an elasticPolicy, by which its number of workers changes");
  }
  return std::move(collector).take();
}

// ray.io/v1: the application asks for workers in its own code, which cannot be seen, so their number stays.
Result<Workload> read_ray_cluster_spec(const Place& spec) {
  Collector collector;
  const Place groups = spec.at("workerGroupSpecs");
  collector.add("the head", spec.at("headGroupSpec").at("template"), 1, {});
  std::size_t index = 0;
  for (const JsonView& each : groups.value.elements()) {
    const Place group{each, groups.pointer + '/' + std::to_string(index++)};
    collector.add(std::string(member(each, {"groupName"}).text().value_or("a group of workers")),
                  group.at("template"),
                  product(count_at(group.at("replicas"), 1), count_at(group.at("numOfHosts"), 1)), {});
  }
  collector.fix("a Ray application asks for its workers in its own code");
  return std::move(collector).take();
}

Result<Workload> read_ray_cluster(const JsonView& object, const References&) {
  return read_ray_cluster_spec(Place{object, {}}.at("spec"));
}

Result<Workload> read_ray_job(const JsonView& object, const References&) {
  return read_ray_cluster_spec(Place{object, {}}.at("spec").at("rayClusterSpec"));
}

// leaderworkerset.x-k8s.io/v1: each of `replicas` groups is a job of its own, of `size` pods. The first is made of leaderTemplate where
// there is one.
Result<Workload> read_leader_worker_set(const JsonView& object, const References&) {
  Collector collector;
  const Place group = Place{object, {}}.at("spec").at("leaderWorkerTemplate");
  const Place size = group.at("size");
  const Place leader = group.at("leaderTemplate");
  const std::int64_t leaders = leader.value.is_object() ? 1 : 0;
  collector.add("the leader", leader, leaders, {});
  Result<std::int64_t> workers = count_at(size, 1);
  if (workers && *workers >= leaders) {
    *workers -= leaders;
  }
  collector.add("the workers", group.at("workerTemplate"), workers,
                {{.pointer = size.pointer, .others = leaders}});
  if (group.at("subGroupPolicy").value.is_object()) {
    collector.fix("it has a subGroupPolicy, which divides its size");
  }
  return std::move(collector).take();
}

// The last resort: how many pods there are, and who makes them, is not known.
Result<Workload> read_pod(const JsonView& object, const References&) {
  Collector collector;
  JsonObject pod_template;
  pod_template["spec"] = tree_of(member(object, {"spec"}));
  collector.add("the pod", std::move(pod_template).take(), 1, {});
  collector.fix("a pod cannot tell its number to others");
  Result<Workload> workload = std::move(collector).take();
  if (workload) {
    workload->partial = true;
  }
  return workload;
}

constexpr Kind kKinds[] = {
    {"", "Pod", read_pod},
    {"batch", "Job", read_job},
    {"jobset.x-k8s.io", "JobSet", read_job_set},
    {"kubeflow.org", "PyTorchJob", read_pytorch_job},
    {"leaderworkerset.x-k8s.io", "LeaderWorkerSet", read_leader_worker_set},
    {"ray.io", "RayCluster", read_ray_cluster},
    {"ray.io", "RayJob", read_ray_job},
    {kTrainerGroup, "TrainJob", read_train_job},
};

}  // namespace

std::int64_t Workload::pods() const {
  std::int64_t pods = 0;
  for (const PodGroup& group : groups) {
    pods += group.pods;
  }
  return pods;
}

std::span<const Kind> kinds() {
  return kKinds;
}

const Kind* find_kind(std::string_view group, std::string_view kind) {
  const auto* found = std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& each) {
    return each.group == group && each.kind == kind;
  });
  return found == std::end(kKinds) ? nullptr : found;
}

Result<Workload> read_workload(const Kind& kind, const JsonView& object, const References& references) {
  return kind.read(object, references);
}

bool opts_in(const Kind& kind, const JsonView& object) {
  return !text_member(object, {"metadata", "labels", kFamilyLabel}).empty() ||
         (kind.group == kTrainerGroup &&
          text_member(object, {"metadata", "annotations", kPluginAnnotation}) == kPlugin);
}

bool has_controller(const JsonView& object) {
  for (const JsonView& owner : member(object, {"metadata", "ownerReferences"}).elements()) {
    if (member(owner, {"controller"}).boolean() == true) {
      return true;
    }
  }
  return false;
}

}  // namespace plimsoll::workloads
