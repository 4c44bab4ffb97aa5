#include "estimator/host_training/offload_search.h"

#include <algorithm>
#include <string>
#include <utility>

#include "estimator/estimate/estimate.h"
#include "estimator/speed/iteration_time.h"

namespace plimsoll::estimator::inline host_training {
namespace {

using crds::Offload;
using crds::ParallelStrategy;

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
    answer.least = first_that_fits(answer.points);
    if (answer.least && *answer.least > 0 && crds::can_offload_in_part(with(answer.points[*answer.least]))) {
      return refined(std::move(answer));
    }
    return answer;
  }

 private:
  static std::optional<std::size_t> first_that_fits(const std::vector<OffloadPoint>& points) {
    const auto found =
        std::find_if(points.begin(), points.end(), [](const OffloadPoint& point) { return point.fits; });
    return found == points.end()
               ? std::nullopt
               : std::optional<std::size_t>(static_cast<std::size_t>(found - points.begin()));
  }

  crds::Parallelism with(const OffloadPoint& point) const {
    crds::Parallelism parallelism = training_.parallelism;
    parallelism.offload = point.offload;
    return parallelism;
  }

  // The least whole percentage that fits. Memory falls with the percentage, but for whole parameters and the allocator.
  Result<OffloadAnswer> refined(OffloadAnswer answer) {
    std::int64_t exceeds = answer.points[*answer.least - 1].percent;
    std::optional<OffloadPoint> least;
    std::int64_t fits = answer.points[*answer.least].percent;
    while (fits - exceeds > 1) {
      const std::int64_t middle = exceeds + (fits - exceeds) / 2;
      const Result<OffloadPoint> point = point_of({.offload = Offload::kOptimizer, .percent = middle});
      if (!point) {
        return point.error();
      }
      if (point->fits) {
        least = *point;
        fits = middle;
      } else {
        exceeds = middle;
      }
    }
    if (least) {
      answer.points.insert(answer.points.begin() + static_cast<std::ptrdiff_t>(*answer.least), *least);
    }
    return answer;
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
                        .fits = estimated->peak.upper_bound <= search_.capacity};
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
    const std::optional<double> all = search_.measured.all ? predicted(most) : std::nullopt;
    if (!all || !ours_) {
      return {};
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
