// Workload: what sizing reads of a workload of another kind than TrainingJob: its pods that request GPUs, how many there are, and
// which of its fields say so.
//
//   const Kind* kind = find_kind("kubeflow.org", "PyTorchJob");
//   Result<Workload> workload = read_workload(*kind, object, {});   // {groups: Master 1 x 8 GPUs, Worker 3 x 8 GPUs}
//
// The kinds are rows of a table in workload.cc; each has a function that knows where that kind keeps its pod templates and
// counts. A TrainJob keeps them in a runtime, which References has (references.h). Objects are untrusted: every value is checked before
// it is used. Pure; any thread; a Workload looks into the objects that it was read from.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "base/json/view.h"
#include "base/result.h"
#include "workloads/arguments.h"
#include "workloads/references.h"

namespace plimsoll::workloads {

// A field that holds a number of pods: those of one group, and `others`.
struct CountField {
  std::string pointer;  // JSON pointer
  std::int64_t others = 0;
};

// Pods of one template that each request GPUs.
struct PodGroup {
  std::string role;  // "Worker"; for messages
  std::string
      template_path;  // JSON pointer of its PodTemplateSpec: "/spec/pytorchReplicaSpecs/Worker/template"
  JsonView pod_template;
  std::int64_t pods = 0;
  std::int64_t gpus = 0;           // that the container requests
  std::size_t container = 0;       // index of the container that requests them
  std::vector<CountField> counts;  // empty: the number of these pods cannot be changed
  // What `pod_template` shows, where it is not a part of the object.
  std::shared_ptr<const Json> made;
};

struct Workload {
  std::vector<PodGroup> groups;  // at least one; each requests as many GPUs a pod as the others
  // JSON pointer of the field that repeats the GPUs of a pod, as text (PyTorchJob's nprocPerNode); empty: none does.
  std::string processes_path;
  // Why the number of pods cannot be changed; empty: it can.
  std::string fixed;
  // The pods are some of a job's, whose other pods are not known.
  bool partial = false;
  // For a kind whose object has no pod template: the patch of the object that has the effect of a patch of the first group's template
  // ("/spec/nodeSelector"...), and this size. Empty: the templates are in the object.
  std::function<Result<Json>(const Json& template_patch, const JobSize& next)> write;

  std::int64_t pods() const;
  std::int64_t gpus_per_pod() const { return groups.front().gpus; }
  std::int64_t gpus() const { return pods() * gpus_per_pod(); }
};

struct Kind {
  std::string_view group;
  std::string_view kind;
  Result<Workload> (*read)(const JsonView& object, const References& references);
};

std::span<const Kind> kinds();

// Null for a kind that is not supported.
const Kind* find_kind(std::string_view group, std::string_view kind);

// Errors: kInvalid where a field has the wrong type or the numbers of pods are out of bounds, kUnsupported where no pod requests
// GPUs, or where pods request different numbers of them.
Result<Workload> read_workload(const Kind& kind, const JsonView& object, const References& references);

// Whether its user wants it sized: by the label plimsoll.dev/family, and for a TrainJob also by Trainer's annotation that names the plugin
// which configures its resources (kubeflow/trainer, docs/proposals/3328-automatic-resource-configuration).
bool opts_in(const Kind& kind, const JsonView& object);

// Whether another object made this one, which is then sized, and not what it makes.
bool has_controller(const JsonView& object);

}  // namespace plimsoll::workloads
