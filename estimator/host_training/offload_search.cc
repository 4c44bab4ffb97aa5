#include "estimator/host_training/offload_search.h"

#include <algorithm>
#include <string>
#include <utility>

#include "estimator/estimate/estimate.h"
#include "estimator/speed/iteration_time.h"

namespace plimsoll::estimator::inline host_training {
namespace {

using crds::Offload;

constexpr std::int64_t kAll = 100;

struct Setting {
  Offload offload = Offload::kNone;
  std::int64_t percent = 0;
};

// What the strategy can keep in host memory, from the least on.
Result<std::vector<Setting>> settings_of(crds::Parallelism parallelism) {
  std::vector<Setting> settings = {{}};
  for (const Offload offload : {Offload::kOptimizer, Offload::kParameters}) {
    parallelism.offload = offload;
    if (crds::can_offload_in_part(parallelism)) {
      for (const std::int64_t percent : {25, 50, 75}) {
        settings.push_back({.offload = offload, .percent = percent});
      }
    }
    if (crds::can_offload(parallelism)) {
      settings.push_back({.offload = offload, .percent = kAll});
    }
  }
  if (settings.size() == 1) {
    return Error(ErrorCode::kUnsupported,
                 std::string("training.parallelism.strategy ") + crds::name_of(parallelism.strategy) +
                     " keeps nothing in host memory: choose Megatron, ZeRO1, ZeRO2, ZeRO3, FSDP or FSDP2");
  }
  return settings;
}

class Search {
 public:
  explicit Search(const OffloadSearch& search) : search_(search), training_(*search.job.training) {}

  Result<OffloadAnswer> answer() {
    if (search_.job.model->has_tables() ||
        (search_.job.graph != nullptr && !search_.job.graph->embeddings.empty())) {
      return Error(ErrorCode::kUnsupported,
                   "the model has embedding tables, which the sharder places in host memory (plimsoll shard "
                   "--host-memory), and not training.parallelism.offload");
    }
    const Result<std::vector<Setting>> settings = settings_of(training_.parallelism);
    if (!settings) {
      return settings.error();
    }
    if (Result<void> compared = compare_with_measured(settings->back()); !compared) {
      return compared.error();
    }
    OffloadAnswer answer;
    for (const Setting& setting : *settings) {
      Result<OffloadPoint> point = point_of(setting);
      if (!point) {
        return point.error();
      }
      answer.points.push_back(*point);
    }
    // What the host holds rises with what the GPU does not, so that only the least of the latter can fit the former.
    const auto on_gpu = std::find_if(answer.points.begin(), answer.points.end(),
                                     [](const OffloadPoint& point) { return point.fits_device; });
    if (on_gpu != answer.points.begin() && on_gpu != answer.points.end() &&
        crds::can_offload_in_part(with(*on_gpu))) {
      const Result<std::optional<OffloadPoint>> less = less_than(*on_gpu, std::prev(on_gpu)->percent);
      if (!less) {
        return less.error();
      }
      if (*less) {
        answer.points.insert(on_gpu, **less);
      }
    }
    const auto found = std::find_if(answer.points.begin(), answer.points.end(),
                                    [](const OffloadPoint& point) { return point.fits(); });
    if (found != answer.points.end()) {
      answer.least = static_cast<std::size_t>(found - answer.points.begin());
    }
    return answer;
  }

 private:
  crds::Parallelism with(const OffloadPoint& point) const {
    crds::Parallelism parallelism = training_.parallelism;
    parallelism.offload = point.offload;
    return parallelism;
  }

  // The least whole percentage above `exceeds` that fits a GPU; nothing: that of `enough`. Memory falls with the percentage, but
  // for the allocator.
  Result<std::optional<OffloadPoint>> less_than(const OffloadPoint& enough, std::int64_t exceeds) {
    std::optional<OffloadPoint> least;
    std::int64_t fits = enough.percent;
    while (fits - exceeds > 1) {
      const std::int64_t middle = exceeds + (fits - exceeds) / 2;
      const Result<OffloadPoint> point = point_of({.offload = enough.offload, .percent = middle});
      if (!point) {
        return point.error();
      }
      if (point->fits_device) {
        least = *point;
        fits = middle;
      } else {
        exceeds = middle;
      }
    }
    return least;
  }

  Result<OffloadPoint> point_of(const Setting& setting) {
    const crds::TrainingSpec training = at(setting);
    EstimateRequest job = search_.job;
    job.training = &training;
    const Result<Estimate> estimated = estimate_memory(job);
    if (!estimated) {
      return estimated.error();
    }
    return OffloadPoint{.offload = setting.offload,
                        .percent = setting.percent,
                        .device = estimated->peak.upper_bound,
                        .host = estimated->host.total(),
                        .seconds = seconds_of(setting),
                        .fits_device = estimated->peak.upper_bound <= search_.capacity,
                        .fits_host = estimated->host.total() * search_.job.per_node <= search_.node_memory};
  }

  crds::TrainingSpec at(const Setting& setting) const {
    crds::TrainingSpec training = training_;
    training.parallelism.offload = setting.offload;
    training.parallelism.offload_percent = setting.percent > 0 ? setting.percent : kAll;
    training.parallelism.overlap_offload =
        training_.parallelism.overlap_offload && crds::can_offload_in_part(training.parallelism);
    return training;
  }

  std::optional<double> predicted(const Setting& setting) const {
    const crds::TrainingSpec training = at(setting);
    SpeedRequest request{.job = search_.job};
    request.job.training = &training;
    const Result<IterationTime> time = iteration_time(request);
    return time ? std::optional<double>(time->seconds) : std::nullopt;
  }

  // What offloading adds is ours, times the measured over our own of all where that is given.
  Result<void> compare_with_measured(const Setting& most) {
    ours_ = predicted({});
    base_ = search_.measured.none ? search_.measured.none : ours_;
    if (!search_.measured.all) {
      return {};
    }
    const std::optional<double> all = predicted(most);
    if (!all || !ours_) {
      return Error(
          ErrorCode::kUnsupported,
          "the time of an iteration is not known for this model and card, so that one that was measured "
          "with all on the host says nothing of the others");
    }
    if (*search_.measured.all <= *base_) {
      return invalid("an iteration that was measured with all on the host takes " +
                     std::to_string(*search_.measured.all) + " s, and with nothing there " +
                     std::to_string(*base_) + " s" +
                     (search_.measured.none ? "" : " as predicted: measure that, too"));
    }
    scale_ = *all > *ours_ ? (*search_.measured.all - *base_) / (*all - *ours_) : 1;
    return {};
  }

  std::optional<double> seconds_of(const Setting& setting) const {
    if (setting.offload == Offload::kNone) {
      return base_;
    }
    const std::optional<double> here = predicted(setting);
    return base_ && ours_ && here ? std::optional<double>(*base_ + scale_ * (*here - *ours_)) : std::nullopt;
  }

  const OffloadSearch& search_;
  const crds::TrainingSpec training_;
  std::optional<double> ours_;  // with nothing on the host
  std::optional<double> base_;
  double scale_ = 1;
};

}  // namespace

Result<OffloadAnswer> search_offload(const OffloadSearch& search) {
  return Search(search).answer();
}

}  // namespace plimsoll::estimator::host_training
