// Collector: gathers the groups of a workload's pods that request GPUs, for the kinds' functions in workload.cc and train_job.cc.
//
//   Collector collector;
//   collector.add("Worker", place.at("template"), count_at(place.at("replicas"), 1), {{place.at("replicas").pointer}});
//   return std::move(collector).take();
//
// The first error is kept and returned by take(). One thread. Inside workloads/ only.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "base/json/view.h"
#include "base/result.h"
#include "workloads/workload.h"

namespace plimsoll::workloads {

// A value of an object, and where it is.
struct Place {
  JsonView value;
  std::string pointer;

  Place at(std::string_view name) const;
};

// A count; `otherwise` where it is absent. Errors: kInvalid for what is no number of pods.
Result<std::int64_t> count_at(const Place& place, std::int64_t otherwise);

// The product of two counts; the first error.
Result<std::int64_t> product(const Result<std::int64_t>& a, const Result<std::int64_t>& b);

// A number as the API spells it, 8 or "8".
std::optional<std::int64_t> number_of(const JsonView& value);

class Collector {
 public:
  // `pods` pods of the template at this place.
  void add(std::string role, const Place& pod_template, Result<std::int64_t> pods,
           std::vector<CountField> counts);
  // The same of a template that is not a part of the object.
  void add(std::string role, Json pod_template, Result<std::int64_t> pods, std::vector<CountField> counts);

  void fail(const Error& error);
  // The number of pods stays, because of this.
  void fix(std::string why) { workload_.fixed = std::move(why); }
  // The place may repeat the GPUs of a pod. Another number there keeps the size.
  void may_repeat_gpus(Place place) { processes_ = std::move(place); }

  Result<Workload> take() &&;

 private:
  void add(PodGroup group);

  Workload workload_;
  Place processes_;
  std::optional<Error> problem_;
};

}  // namespace plimsoll::workloads
