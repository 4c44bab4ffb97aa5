#include "remediation/host_memory.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/json/edit.h"
#include "base/json/view.h"
#include "base/quantity.h"
#include "estimator/provisioner/json_patch.h"

namespace plimsoll::remediation {
namespace {

// 0 when it is absent or not a quantity.
Bytes memory_of(const Json& container, const char* kind) {
  const Json& amount = member(container, {"resources", kind, "memory"});
  if (const std::optional<std::int64_t> count = JsonView(amount).integer()) {
    return std::max(Bytes{*count}, Bytes{});
  }
  const Result<Bytes> bytes = parse_bytes(text_member(amount, {}));
  return bytes ? *bytes : Bytes{};
}

Bytes in_mebibytes(double bytes) {
  constexpr std::int64_t kMiB = 1 << 20;
  return (Bytes::ceil(bytes) + Bytes{kMiB - 1}).count / kMiB * 1_MiB;
}

struct Place {
  const char* list = "containers";
  Json::ArrayIndex index = 0;
};

std::optional<Place> place_of(const crds::TrainingJob& job, const std::string& name) {
  if (name.empty()) {
    const int trainer = crds::trainer_container(member(job.raw, {"spec", "template", "spec", "containers"}));
    return trainer < 0 ? std::nullopt : std::optional(Place{.index = static_cast<Json::ArrayIndex>(trainer)});
  }
  for (const char* list : {"containers", "initContainers"}) {
    const Json& containers = member(job.raw, {"spec", "template", "spec", list});
    for (Json::ArrayIndex i = 0; i < containers.size(); ++i) {
      if (text_member(element(containers, i), {"name"}) == name) {
        return Place{.list = list, .index = i};
      }
    }
  }
  return std::nullopt;
}

}  // namespace

HostMemory raise_host_memory(const crds::TrainingJob& job, Bytes most, const std::string& name, Bytes asked) {
  HostMemory raised;
  const std::optional<Place> place = place_of(job, name);
  if (!place) {
    return raised;
  }
  const Json& container = element(member(job.raw, {"spec", "template", "spec", place->list}), place->index);
  const std::optional<Place> trainer = place_of(job, {});
  const bool trains =
      trainer && trainer->index == place->index && trainer->list == std::string_view(place->list);
  const Bytes least = trains ? asked : Bytes{};
  const Bytes limit = std::max(memory_of(container, "limits"), least);
  const Bytes request = std::max(memory_of(container, "requests"), least);
  raised.before = limit > Bytes{} ? limit : request;
  if (raised.before == Bytes{}) {
    return raised;
  }
  const crds::FailurePolicy& policy = job.spec.failure_policy;
  const auto before = static_cast<double>(raised.before.count);
  raised.now = in_mebibytes(
      std::max(before * policy.oom_bump_up_ratio,
               before + static_cast<double>(policy.oom_min_bump_up.value_or(crds::kOomMinBumpUp).count)));
  if (most > Bytes{}) {
    raised.now = std::min(raised.now, most);
  }
  if (raised.now <= raised.before) {
    raised.change = HostMemory::Change::kAtLimit;
    raised.now = raised.before;
    return raised;
  }
  raised.change = HostMemory::Change::kRaised;
  const double share = static_cast<double>(raised.now.count) / before;
  estimator::JsonPatchBuilder patch(job.raw, {{"spec", "template"}});
  const auto set = [&](const char* kind, Bytes was) {
    if (was > Bytes{}) {
      const Bytes now = std::min(in_mebibytes(static_cast<double>(was.count) * share), raised.now);
      patch.set({"spec", "template", "spec", place->list, place->index, "resources", kind, "memory"},
                format_bytes(now));
    }
  };
  set("limits", limit);
  set("requests", request);
  raised.patch = std::move(patch).take();
  return raised;
}

}  // namespace plimsoll::remediation
