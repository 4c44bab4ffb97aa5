#include "controllers/learning.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>

#include "base/json/edit.h"
#include "base/json/view.h"
#include "base/quantity.h"
#include "base/stable_hash.h"
#include "estimator/provisioner/size_exclusion.h"

namespace plimsoll::controllers {
namespace {

using crds::Attempt;
using crds::Outcome;
using crds::ProfileSample;

// Upper bounds hold for this share of the jobs: for all of a few, but one job has no effect once five others
// have been measured.
constexpr double kQuantile = 0.95;
constexpr std::size_t kOutvotedBy = 5;

// Missing memory that fewer jobs of a family than this report counts up to this share of the card that they
// ran on; that of more jobs counts up to the whole card.
constexpr std::size_t kAgreeing = 3;
constexpr double kMaxAlone = 0.6;

// An estimate is lowered only when this many jobs have been measured and none ran out of memory; the peak
// during training at most to half (the schema's minimum), and 5% is always added.
constexpr std::size_t kJobsToLower = 5;
constexpr double kMarginWhenLowered = 0.05;
constexpr double kMinCorrection = 0.5;

// Fixed costs are learned from three jobs, with 5% added, within these bounds.
constexpr double kMarginOfFixedCosts = 1.05;
constexpr Bytes kMinContext = 128_MiB;
constexpr Bytes kMaxContext = 4_GiB;
constexpr Bytes kMinCommunication = 256_MiB;
constexpr Bytes kMaxCommunication = 16_GiB;

// Rates of a node, in bytes a second: the median of the jobs that report them, within the rates of today's hosts.
constexpr Bytes kMinHostBandwidth = 1_GiB;
constexpr Bytes kMaxHostBandwidth = 512_GiB;

// What the attempt needed beyond its estimate, without what was learned; and whether it can show that it
// needed less.
struct Measured {
  Bytes estimated;
  Bytes needed;
};

std::optional<Measured> measure(const Attempt& attempt, Bytes capacity, const crds::FailurePolicy& policy) {
  // A peak that is start-up's does not show what training takes.
  if (!attempt.estimated || attempt.swap_plan || attempt.ended_in_startup ||
      (attempt.observed_startup && attempt.observed_startup == attempt.observed_peak)) {
    return std::nullopt;
  }
  const Bytes estimated = std::max(Bytes{}, *attempt.estimated - attempt.learned);
  const Bytes observed = attempt.observed_peak.value_or(Bytes{});
  if (attempt.outcome == Outcome::kCudaOutOfMemory) {
    const Bytes card = attempt.out_of_memory.capacity.value_or(capacity);
    const std::optional<Bytes>& needed = attempt.out_of_memory.needed;
    const std::optional<Bytes>& fragments = attempt.out_of_memory.fragmentation;
    // Messages that do not speak of fragments do not see all that the process held, either.
    if (needed && fragments && *needed - *fragments <= card) {
      // It ran out because of fragments, not because of its size.
      return Measured{estimated, std::max(observed, *needed - *fragments)};
    }
    return Measured{estimated, estimator::needed_at_least(attempt, capacity, policy)};
  }
  // An attempt that was stopped early shows a lower bound.
  const bool complete = attempt.outcome == Outcome::kSucceeded;
  if (attempt.observed_peak && (complete || observed > estimated)) {
    return Measured{estimated, observed};
  }
  return std::nullopt;
}

// The most that start-up took, as far as the attempt shows it.
std::optional<Bytes> startup_of(const Attempt& attempt) {
  if (attempt.swap_plan) {
    return std::nullopt;  // nothing of the model is on its GPUs then
  }
  return attempt.ended_in_startup && attempt.outcome == Outcome::kCudaOutOfMemory
             ? std::max(attempt.observed_startup, attempt.out_of_memory.needed)
             : attempt.observed_startup;
}

Bytes lack_of(const ProfileSample& sample) {
  return *sample.needed - *sample.estimated;
}

// Activations and temporaries of the attempt's estimate, without what was learned.
std::optional<Bytes> transient_of(const Json& estimate, const Attempt& attempt) {
  const std::optional<std::int64_t> activations =
      JsonView(member(estimate, {"breakdown", "activationsBytes"})).integer();
  const std::optional<std::int64_t> temporaries =
      JsonView(member(estimate, {"breakdown", "temporariesBytes"})).integer();
  if (member(estimate, {"trainers"}) != Json(attempt.trainers) ||
      text_member(estimate, {"gpuModel"}) != attempt.gpu_model || !activations || !temporaries) {
    return std::nullopt;
  }
  const Bytes now = Bytes{*activations} + Bytes{*temporaries};
  return std::max(Bytes{}, now - std::min(Bytes{}, attempt.learned));
}

// The largest value, without those above kQuantile of the jobs.
Bytes upper_bound_of(std::vector<Bytes> votes) {
  const auto above = static_cast<std::size_t>(static_cast<double>(votes.size()) * (1 - kQuantile));
  const std::size_t outvoted = votes.size() <= kOutvotedBy ? 0 : std::max<std::size_t>(1, above);
  std::sort(votes.begin(), votes.end(), std::greater<>());
  return votes[outvoted];
}

Bytes whole_mebibytes(Bytes bytes) {
  return Bytes{(bytes + 1_MiB - 1_B).count / (1_MiB).count} * (1_MiB).count;
}

std::optional<Bytes> shortfall_of(const std::vector<const ProfileSample*>& measured) {
  std::vector<Bytes> lacks;
  lacks.reserve(measured.size());
  for (const ProfileSample* sample : measured) {
    lacks.push_back(sample->capacity > Bytes{} ? std::min(lack_of(*sample), sample->capacity)
                                               : lack_of(*sample));
  }
  if (lacks.empty()) {
    return std::nullopt;
  }
  Bytes lack = upper_bound_of(lacks);
  if (lack <= Bytes{}) {
    return std::nullopt;
  }
  const Bytes half{lack.count / 2};
  const auto agreeing = static_cast<std::size_t>(
      std::count_if(lacks.begin(), lacks.end(), [&](Bytes other) { return other >= half; }));
  if (agreeing < kAgreeing) {
    Bytes card;
    for (const ProfileSample* sample : measured) {
      card = lack_of(*sample) >= half ? std::max(card, sample->capacity) : card;
    }
    lack = std::min(lack, Bytes::ceil(static_cast<double>(card.count) * kMaxAlone));
  }
  return whole_mebibytes(lack);
}

std::optional<double> correction_of(const std::vector<const ProfileSample*>& measured) {
  double most = 0;
  for (const ProfileSample* sample : measured) {
    if (sample->out_of_memory || !sample->transient || *sample->transient <= Bytes{}) {
      return std::nullopt;
    }
    most = std::max(most, 1 + static_cast<double>(lack_of(*sample).count) /
                                  static_cast<double>(sample->transient->count));
  }
  const double factor = std::ceil(std::max(most + kMarginWhenLowered, kMinCorrection) * 100) / 100;
  return measured.size() >= kJobsToLower && factor < 1 ? std::optional(factor) : std::nullopt;
}

std::vector<Bytes> reported_by(const std::vector<const ProfileSample*>& samples,
                               std::optional<Bytes> ProfileSample::*figure) {
  std::vector<Bytes> reported;
  for (const ProfileSample* sample : samples) {
    if (sample->*figure) {
      reported.push_back(*(sample->*figure));
    }
  }
  return reported;
}

// Of a figure that at least three jobs have reported.
std::optional<Bytes> fixed_cost(const std::vector<const ProfileSample*>& samples,
                                std::optional<Bytes> ProfileSample::*figure, Bytes min, Bytes max) {
  const std::vector<Bytes> reported = reported_by(samples, figure);
  if (reported.size() < kAgreeing) {
    return std::nullopt;
  }
  const Bytes bound = Bytes::ceil(static_cast<double>(upper_bound_of(reported).count) * kMarginOfFixedCosts);
  return whole_mebibytes(std::clamp(bound, min, max));
}

std::optional<Bytes> host_rate(const std::vector<const ProfileSample*>& samples,
                               std::optional<Bytes> ProfileSample::*figure) {
  std::vector<Bytes> reported = reported_by(samples, figure);
  if (reported.empty()) {
    return std::nullopt;
  }
  std::sort(reported.begin(), reported.end());
  const Bytes median = reported[(reported.size() - 1) / 2];
  return whole_mebibytes(std::clamp(median, kMinHostBandwidth, kMaxHostBandwidth));
}

// What start-up takes of a card at most, from jobs on any number of trainers. One or two jobs count up to a share of
// their card, as with the shortfall.
std::optional<Bytes> startup_bound(const std::vector<const ProfileSample*>& samples) {
  std::vector<Bytes> reported;
  Bytes card;
  for (const ProfileSample* sample : samples) {
    if (sample->startup) {
      reported.push_back(*sample->startup);
      card = std::max(card, sample->capacity);
    }
  }
  if (reported.empty()) {
    return std::nullopt;
  }
  const Bytes bound = upper_bound_of(reported);
  const auto agreeing = static_cast<std::size_t>(std::count_if(
      reported.begin(), reported.end(), [&](Bytes other) { return other >= Bytes{bound.count / 2}; }));
  const double most = agreeing < kAgreeing ? kMaxAlone : 1;
  return whole_mebibytes(std::min(bound, Bytes::ceil(static_cast<double>(card.count) * most)));
}

std::vector<const ProfileSample*> measured_of(const std::vector<ProfileSample>& samples) {
  std::vector<const ProfileSample*> measured;
  for (const ProfileSample& sample : samples) {
    if (sample.estimated && sample.needed) {
      measured.push_back(&sample);
    }
  }
  return measured;
}

template <class Number>
std::string formatted(const char* format, Number value) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string percentage(double share) {
  return formatted("%.1f%%", std::min(share, 999.0) * 100);
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

}  // namespace

std::optional<ProfileSample> sample_of(const LearnedJob& job, const ProfileSample* known,
                                       const std::vector<estimator::AvailableGpu>& gpus) {
  ProfileSample sample = known == nullptr ? ProfileSample{.job_uid = job.uid, .last_attempt = -1} : *known;
  sample.job = job.name;
  bool news = false;
  for (const Attempt& attempt : job.status.attempts) {
    if (attempt.outcome == Outcome::kRunning || attempt.number <= sample.last_attempt) {
      continue;
    }
    news = true;
    sample.last_attempt = attempt.number;
    sample.time = attempt.completion_time.empty() ? sample.time : attempt.completion_time;
    if (attempt.out_of_memory.others_filled_card()) {
      continue;  // what was measured of the card is theirs, too
    }
    sample.out_of_memory = sample.out_of_memory || attempt.outcome == Outcome::kCudaOutOfMemory;
    sample.context = std::max(sample.context, attempt.observed_context);
    sample.startup = std::max(sample.startup, startup_of(attempt));
    if (attempt.trainers > 1) {
      sample.communication = std::max(sample.communication, attempt.observed_communication);
    }
    const Bytes capacity = estimator::capacity_of(attempt, gpus).value_or(Bytes{});
    sample.capacity = sample.capacity > Bytes{} ? sample.capacity : capacity;
    const std::optional<Measured> measured = measure(attempt, capacity, job.failure_policy);
    if (measured &&
        (!sample.needed || !sample.estimated || measured->needed - measured->estimated > lack_of(sample))) {
      if (sample.gpu_model != attempt.gpu_model) {
        sample.host_bandwidth = sample.host_update_bandwidth = std::nullopt;
      }
      sample.gpu_model = attempt.gpu_model;
      sample.trainers = std::max<std::int64_t>(attempt.trainers, 0);
      sample.capacity = capacity;
      sample.estimated = measured->estimated;
      sample.needed = measured->needed;
      sample.transient = transient_of(job.status.estimate, attempt);
    } else if (sample.gpu_model.empty()) {
      sample.gpu_model = attempt.gpu_model;
    }
    if (sample.gpu_model != attempt.gpu_model) {
      continue;  // its nodes are of another kind
    }
    if (attempt.observed_host_bandwidth) {
      sample.host_bandwidth = attempt.observed_host_bandwidth;
    }
    if (attempt.observed_host_update_bandwidth) {
      sample.host_update_bandwidth = attempt.observed_host_update_bandwidth;
    }
  }
  return news ? std::optional(sample) : std::nullopt;
}

std::vector<ProfileSample> with_sample(std::vector<ProfileSample> samples, ProfileSample sample) {
  std::erase_if(samples, [&](const ProfileSample& one) { return one.job_uid == sample.job_uid; });
  samples.push_back(std::move(sample));
  std::sort(samples.begin(), samples.end(), [](const ProfileSample& a, const ProfileSample& b) {
    return std::tie(b.time, b.job_uid) < std::tie(a.time, a.job_uid);
  });
  samples.resize(std::min(samples.size(), crds::kMaxSamples));
  return samples;
}

std::vector<crds::LearnedBounds> bounds_of(const std::vector<ProfileSample>& samples) {
  // What estimates lack is the same on any card; fixed costs differ by card.
  const std::vector<const ProfileSample*> measured = measured_of(samples);
  const std::optional<Bytes> shortfall = shortfall_of(measured);
  const std::optional<double> correction = shortfall ? std::nullopt : correction_of(measured);
  std::map<std::string, std::vector<const ProfileSample*>> by_model = {{"", {}}};
  for (const ProfileSample& sample : samples) {
    if (by_model.size() < crds::kMaxSamples) {
      by_model[lower(sample.gpu_model)].push_back(&sample);
    }
  }
  std::vector<crds::LearnedBounds> bounds;
  for (const auto& [model, reported] : by_model) {
    crds::LearnedBounds entry;
    entry.gpu_model = model;
    entry.shortfall = shortfall;
    entry.peak_correction = correction;
    if (!model.empty()) {
      entry.startup = startup_bound(reported);
      entry.cuda_context = fixed_cost(reported, &ProfileSample::context, kMinContext, kMaxContext);
      entry.communication =
          fixed_cost(reported, &ProfileSample::communication, kMinCommunication, kMaxCommunication);
      entry.host_bandwidth = host_rate(reported, &ProfileSample::host_bandwidth);
      entry.host_update_bandwidth = host_rate(reported, &ProfileSample::host_update_bandwidth);
    }
    if (entry.startup || entry.shortfall || entry.peak_correction || entry.cuda_context ||
        entry.communication || entry.host_bandwidth || entry.host_update_bandwidth) {
      bounds.push_back(std::move(entry));
    }
  }
  return bounds;
}

Json encode(const std::vector<crds::LearnedBounds>& bounds) {
  JsonArray list;
  for (const crds::LearnedBounds& entry : bounds) {
    const JsonPlace json = list.append(Json(::Json::objectValue));
    json["gpuModel"] = entry.gpu_model;
    const auto put = [&](const char* name, const std::optional<Bytes>& bytes) {
      if (bytes) {
        json[name] = format_bytes(*bytes);
      }
    };
    put("cudaContext", entry.cuda_context);
    put("communication", entry.communication);
    put("startup", entry.startup);
    put("shortfall", entry.shortfall);
    put("hostBandwidth", entry.host_bandwidth);
    put("hostUpdateBandwidth", entry.host_update_bandwidth);
    if (entry.peak_correction) {
      json["peakCorrection"] = formatted("%.2f", *entry.peak_correction);
    }
  }
  return list;
}

Json statistics_of(const std::vector<ProfileSample>& samples) {
  const std::vector<const ProfileSample*> measured = measured_of(samples);
  std::vector<double> errors;
  std::int64_t under = 0;
  for (const ProfileSample* sample : measured) {
    under += lack_of(*sample) > Bytes{} ? 1 : 0;
    if (*sample->needed > Bytes{}) {
      errors.push_back(std::abs(static_cast<double>(lack_of(*sample).count)) /
                       static_cast<double>(sample->needed->count));
    }
  }
  const auto out_of_memory = std::count_if(samples.begin(), samples.end(),
                                           [](const ProfileSample& sample) { return sample.out_of_memory; });
  const auto count = static_cast<std::int64_t>(measured.size());
  Json statistics = json_object({{"jobs", static_cast<std::int64_t>(samples.size())},
                                 {"measured", count},
                                 {"outOfMemory", static_cast<std::int64_t>(out_of_memory)},
                                 {"underEstimated", under},
                                 {"overEstimated", count - under}});
  if (!errors.empty()) {
    std::sort(errors.begin(), errors.end());
    const auto last = static_cast<double>(errors.size());
    const double sum = std::accumulate(errors.begin(), errors.end(), 0.0);
    set_member(statistics, "meanError", percentage(sum / last));
    set_member(statistics, "p95Error",
               percentage(errors[static_cast<std::size_t>(std::ceil(last * kQuantile)) - 1]));
  }
  return statistics;
}

std::optional<double> relative_error(const Attempt& attempt) {
  std::optional<Bytes> needed = attempt.observed_peak;
  if (attempt.out_of_memory.others_filled_card()) {
    return std::nullopt;
  }
  if (attempt.outcome == Outcome::kCudaOutOfMemory) {
    needed = std::max(needed, attempt.out_of_memory.needed);
  } else if (attempt.outcome != Outcome::kSucceeded) {
    return std::nullopt;
  }
  if (!attempt.estimated || !needed || *needed <= Bytes{}) {
    return std::nullopt;
  }
  return static_cast<double>((*attempt.estimated - *needed).count) / static_cast<double>(needed->count);
}

std::string profile_name(const std::string& family, bool taken) {
  std::string name = lower(family);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return std::isalnum(c) != 0 ? static_cast<char>(c) : '-'; });
  if (taken || name != family) {
    name += formatted("-%08x", static_cast<unsigned>(stable_hash(family) & 0xffffffffU));
  }
  return name;
}

}  // namespace plimsoll::controllers
