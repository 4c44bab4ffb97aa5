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
  return quantity_of(member(container, {"resources", kind, "memory"})).value_or(Bytes{});
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

// What a container may have.
struct Given {
  Place place;
  bool trains = false;
  Bytes limit, request;

  Bytes memory() const { return limit > Bytes{} ? limit : request; }
};

std::optional<Given> given_to(const crds::TrainingJob& job, const std::string& name, Bytes asked) {
  const std::optional<Place> place = place_of(job, name);
  if (!place) {
    return std::nullopt;
  }
  const Json& container = element(member(job.raw, {"spec", "template", "spec", place->list}), place->index);
  const std::optional<Place> trainer = place_of(job, {});
  const bool trains =
      trainer && trainer->index == place->index && trainer->list == std::string_view(place->list);
  const Bytes least = trains ? asked : Bytes{};
  return Given{.place = *place,
               .trains = trains,
               .limit = std::max(memory_of(container, "limits"), least),
               .request = std::max(memory_of(container, "requests"), least)};
}

// `now`: instead of given.memory(), at most `most`; `request`: instead of given.request, at most that.
HostMemory raised(const crds::TrainingJob& job, const Given& given, Bytes now, Bytes request, Bytes most) {
  HostMemory more;
  more.before = given.memory();
  more.now = most > Bytes{} ? std::min(now, most) : now;
  if (more.now <= more.before) {
    more.change = HostMemory::Change::kAtLimit;
    more.now = more.before;
    return more;
  }
  more.change = HostMemory::Change::kRaised;
  estimator::JsonPatchBuilder patch(job.raw, {{"spec", "template"}});
  const auto set = [&](const char* kind, Bytes was, Bytes amount) {
    if (was > Bytes{}) {
      patch.set(
          {"spec", "template", "spec", given.place.list, given.place.index, "resources", kind, "memory"},
          format_bytes(amount));
    }
  };
  set("limits", given.limit, more.now);
  set("requests", given.request, std::min(request, more.now));
  more.patch = std::move(patch).take();
  return more;
}

}  // namespace

HostMemory raise_host_memory(const crds::TrainingJob& job, Bytes most, const std::string& name, Bytes asked,
                             Bytes predicted) {
  const std::optional<Given> given = given_to(job, name, asked);
  if (!given || given->memory() == Bytes{}) {
    return {};
  }
  const crds::FailurePolicy& policy = job.spec.failure_policy;
  const auto before = static_cast<double>(given->memory().count);
  Bytes now = in_mebibytes(
      std::max(before * policy.oom_bump_up_ratio,
               before + static_cast<double>(policy.oom_min_bump_up.value_or(crds::kOomMinBumpUp).count)));
  now = given->trains ? std::max(now, predicted) : now;
  now = most > Bytes{} ? std::min(now, most) : now;
  const double share = static_cast<double>(now.count) / before;
  return raised(job, *given, now, in_mebibytes(static_cast<double>(given->request.count) * share), most);
}

Bytes trainer_memory(const crds::TrainingJob& job, Bytes asked) {
  const std::optional<Given> given = given_to(job, {}, asked);
  return given ? given->memory() : Bytes{};
}

HostMemory add_host_memory(const crds::TrainingJob& job, Bytes more, Bytes most, Bytes asked) {
  const std::optional<Given> given = given_to(job, {}, asked);
  return given && given->memory() > Bytes{}
             ? raised(job, *given, given->memory() + more, given->request + more, most)
             : HostMemory();
}

}  // namespace plimsoll::remediation
