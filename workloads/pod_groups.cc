#include "workloads/pod_groups.h"

#include <algorithm>
#include <utility>

#include "base/number.h"
#include "crds/training_job.h"

namespace plimsoll::workloads {
namespace {

// Of all pods of a workload, and of the GPUs of one.
constexpr std::int64_t kMaxPods = 65536;
constexpr std::int64_t kMaxGpusPerPod = 1024;
constexpr std::size_t kMaxGroups = 64;

// A key as a step of a JSON pointer (RFC 6901, section 3).
std::string escaped(std::string_view key) {
  std::string text;
  for (const char each : key) {
    text += each == '~' ? "~0" : each == '/' ? "~1" : std::string(1, each);
  }
  return text;
}

// 0 for none.
std::int64_t gpus_of(const JsonView& container) {
  for (const char* kind : {"limits", "requests"}) {
    const std::optional<std::int64_t> count =
        number_of(member(container, {"resources", kind, crds::kGpuResource}));
    if (count && *count > 0) {
      return *count;
    }
  }
  return 0;
}

}  // namespace

Place Place::at(std::string_view name) const {
  return {member(value, {name}), pointer + '/' + escaped(name)};
}

std::optional<std::int64_t> number_of(const JsonView& value) {
  const std::optional<std::string_view> text = value.text();
  return text ? parse_number<std::int64_t>(*text) : value.integer();
}

Result<std::int64_t> count_at(const Place& place, std::int64_t otherwise) {
  if (place.value.is_null()) {
    return otherwise;
  }
  const std::optional<std::int64_t> count = place.value.integer();
  if (!count || *count < 0 || *count > kMaxPods) {
    return Error(ErrorCode::kInvalid,
                 place.pointer + " must be a whole number from 0 to " + std::to_string(kMaxPods));
  }
  return *count;
}

Result<std::int64_t> product(const Result<std::int64_t>& a, const Result<std::int64_t>& b) {
  if (!a || !b) {
    return a ? b.error() : a.error();
  }
  return *a * *b;  // each at most kMaxPods
}

void Collector::add(std::string role, const Place& pod_template, Result<std::int64_t> pods,
                    std::vector<CountField> counts) {
  if (!pods) {
    return fail(pods.error());
  }
  add({.role = std::move(role),
       .template_path = pod_template.pointer,
       .pod_template = pod_template.value,
       .pods = *pods,
       .counts = std::move(counts),
       .made = nullptr});
}

void Collector::add(std::string role, Json pod_template, Result<std::int64_t> pods,
                    std::vector<CountField> counts) {
  if (!pods) {
    return fail(pods.error());
  }
  const auto made = std::make_shared<const Json>(std::move(pod_template));
  add({.role = std::move(role),
       .template_path = {},
       .pod_template = JsonView(*made),
       .pods = *pods,
       .counts = std::move(counts),
       .made = made});
}

void Collector::add(PodGroup group) {
  if (problem_ || group.pods == 0) {
    return;
  }
  int with_gpus = 0;
  std::size_t index = 0;
  for (const JsonView& container : member(group.pod_template, {"spec", "containers"}).elements()) {
    if (const std::int64_t gpus = gpus_of(container); gpus > 0) {
      ++with_gpus;
      group.gpus = gpus;
      group.container = index;
    }
    ++index;
  }
  if (with_gpus > 1) {
    fail(Error(ErrorCode::kUnsupported, "several containers of " + group.role + " request GPUs"));
  } else if (group.gpus > kMaxGpusPerPod) {
    fail(Error(ErrorCode::kInvalid,
               "a pod of " + group.role + " requests " + std::to_string(group.gpus) + " GPUs"));
  } else if (with_gpus == 1) {
    workload_.groups.push_back(std::move(group));
  }
}

void Collector::fail(const Error& error) {
  problem_ = problem_ ? problem_ : std::optional(error);
}

Result<Workload> Collector::take() && {
  if (problem_) {
    return *problem_;
  }
  if (workload_.groups.empty()) {
    return Error(ErrorCode::kUnsupported, std::string("no container requests ") + crds::kGpuResource);
  }
  if (workload_.groups.size() > kMaxGroups || workload_.pods() > kMaxPods) {
    return Error(ErrorCode::kInvalid, "more than " + std::to_string(kMaxGroups) + " groups or " +
                                          std::to_string(kMaxPods) + " pods request GPUs");
  }
  for (const PodGroup& group : workload_.groups) {
    if (group.gpus != workload_.gpus_per_pod()) {
      return Error(ErrorCode::kUnsupported, "pods of " + workload_.groups.front().role + " and " +
                                                group.role + " request different numbers of GPUs");
    }
  }
  if (const std::optional<std::int64_t> processes = number_of(processes_.value)) {
    if (*processes == workload_.gpus_per_pod()) {
      workload_.processes_path = processes_.pointer;
    } else {
      const std::int64_t idle = workload_.gpus_per_pod() - std::max<std::int64_t>(0, *processes);
      fix(processes_.pointer + " is " + std::to_string(*processes) + ", and a pod requests " +
          std::to_string(workload_.gpus_per_pod()) + " GPUs" +
          (idle > 0 ? ", of which " + std::to_string(idle) + " have no process" : std::string()));
    }
  }
  const auto can_change = std::count_if(workload_.groups.begin(), workload_.groups.end(),
                                        [](const PodGroup& group) { return !group.counts.empty(); });
  if (workload_.fixed.empty() && can_change != 1) {
    fix("not one group of its pods, but " + std::to_string(can_change) + ", can have another number");
  }
  return std::move(workload_);
}

}  // namespace plimsoll::workloads
