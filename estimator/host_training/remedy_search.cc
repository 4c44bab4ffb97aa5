#include "estimator/host_training/remedy_search.h"

#include <algorithm>
#include <array>
#include <string>
#include <tuple>
#include <utility>

#include "crds/global_batch.h"
#include "estimator/estimate/estimate.h"
#include "estimator/speed/iteration_time.h"

namespace plimsoll::estimator::inline host_training {
namespace {

using crds::ActivationCheckpointing;
using crds::Offload;

constexpr std::int64_t kAll = 100;
constexpr std::size_t kMostMultiples = 64;     // numbers of GPUs
constexpr std::size_t kMostMicroBatches = 16;  // sizes

// What a setting changes of the request.
constexpr unsigned kCheckpoints = 1;
constexpr unsigned kOffloads = 2;
constexpr unsigned kGrows = 4;
constexpr unsigned kSplits = 8;
constexpr unsigned kAnything = 15;

// A setting. With `part`, those with 1 to 100 % of the optimizer on the host, of which the least that fits is taken.
struct Family {
  RemedySetting setting;
  unsigned changes = 0;
  bool part = false;
  double seconds = 0;  // with `part`, of the least percentage
  bool resolved = false;
  std::optional<Remedy> found = std::nullopt;  // if it fits

  // The cheaper one first; of equal ones the faster one, then that which changes less.
  auto rank() const {
    return std::tuple(seconds * static_cast<double>(setting.trainers), seconds, setting.trainers,
                      setting.offload_percent, setting.accumulation, setting.checkpointing);
  }
};

constexpr std::array kCheckpointings = {ActivationCheckpointing::kNone,
                                        ActivationCheckpointing::kSelectiveHalf,
                                        ActivationCheckpointing::kSelective, ActivationCheckpointing::kFull};

// Rising, of a number up to 2^24 by its square root.
std::vector<std::int64_t> divisors_of(std::int64_t number, std::int64_t most) {
  std::vector<std::int64_t> divisors;
  for (std::int64_t small = 1; small * small <= number; ++small) {
    if (number % small == 0) {
      divisors.push_back(small);
      divisors.push_back(number / small);
    }
  }
  std::ranges::sort(divisors);
  divisors.erase(std::unique(divisors.begin(), divisors.end()), divisors.end());
  std::erase_if(divisors, [&](std::int64_t each) { return each > most; });
  return divisors;
}

class Search {
 public:
  explicit Search(const RemedySearch& search) : search_(search), training_(*search.job.training) {}

  Result<RemedyAnswer> answer() {
    if (search_.job.model->has_tables() ||
        (search_.job.graph != nullptr && !search_.job.graph->embeddings.empty())) {
      return Error(
          ErrorCode::kUnsupported,
          "the model has embedding tables: plimsoll provision counts its GPUs, and places the tables");
    }
    requested_ = requested_setting();
    const Result<double> seconds = seconds_of(requested_);
    if (!seconds) {
      return seconds.error();
    }
    const Result<Remedy> as_requested = remedy_of(requested_, *seconds);
    if (!as_requested) {
      return as_requested.error();
    }
    RemedyAnswer answer;
    answer.as_requested = *as_requested;
    answer.fits_as_requested = fits(*as_requested);
    collect();
    for (const auto& [may_change, into] :
         {std::pair{kCheckpoints, &answer.recomputation}, std::pair{kOffloads, &answer.offload},
          std::pair{kGrows, &answer.more_gpus}, std::pair{kSplits, &answer.smaller_micro_batches},
          std::pair{kAnything, &answer.best}}) {
      *into = cheapest(may_change);
    }
    answer.considered = static_cast<std::int64_t>(families_.size());
    answer.estimated = estimated_;
    return answer;
  }

 private:
  RemedySetting requested_setting() const {
    const crds::Parallelism& parallelism = training_.parallelism;
    const bool offloads = parallelism.offload != Offload::kNone;
    return {.trainers = search_.job.trainers,
            .batch_size = training_.batch_size_per_trainer,
            .accumulation = training_.gradient_accumulation,
            .checkpointing = training_.activation_checkpointing,
            .offload = parallelism.offload,
            .offload_percent = offloads ? parallelism.offload_percent : 0};
  }

  crds::TrainingSpec training_of(const RemedySetting& setting) const {
    crds::TrainingSpec training = training_;
    training.batch_size_per_trainer = setting.batch_size;
    training.gradient_accumulation = setting.accumulation;
    training.activation_checkpointing = setting.checkpointing;
    if (setting.checkpointing != training_.activation_checkpointing) {
      training.checkpoint_modules.clear();
    }
    crds::Parallelism& parallelism = training.parallelism;
    parallelism.offload = setting.offload;
    parallelism.offload_percent = setting.offload == Offload::kNone ? kAll : setting.offload_percent;
    parallelism.overlap_offload =
        training_.parallelism.overlap_offload && crds::can_offload_in_part(parallelism);
    return training;
  }

  EstimateRequest request_of(const RemedySetting& setting, const crds::TrainingSpec& training) const {
    EstimateRequest job = search_.job;
    job.training = &training;
    job.trainers = setting.trainers;
    if (setting.trainers != requested_.trainers) {
      job.per_node = std::min(std::max(search_.gpus_of_node, job.per_node), setting.trainers);
    }
    return job;
  }

  Result<double> seconds_of(const RemedySetting& setting) const {
    const crds::TrainingSpec training = training_of(setting);
    const Result<IterationTime> time = iteration_time({.job = request_of(setting, training)});
    return time ? Result<double>(time->seconds) : time.error();
  }

  Result<Remedy> remedy_of(const RemedySetting& setting, double seconds) {
    ++estimated_;
    const crds::TrainingSpec training = training_of(setting);
    const Result<Estimate> estimated = estimate_memory(request_of(setting, training));
    if (!estimated) {
      return estimated.error();
    }
    return Remedy{.setting = setting,
                  .device = estimated->peak.upper_bound,
                  .host = estimated->host.total(),
                  .seconds = seconds};
  }

  bool fits(const Remedy& remedy) const {
    const crds::TrainingSpec training = training_of(remedy.setting);
    const std::int64_t per_node = request_of(remedy.setting, training).per_node;
    return remedy.device <= search_.capacity && remedy.host * per_node <= search_.node_memory;
  }

  // ---- the settings ----

  void collect() {
    const std::int64_t most = std::max<std::int64_t>(1, search_.most_trainers / requested_.trainers);
    std::vector<std::int64_t> multiples = divisors_of(requested_.batch_size, most);
    multiples.resize(std::min(multiples.size(), kMostMultiples));
    for (const std::int64_t times : multiples) {
      RemedySetting setting = requested_;
      setting.trainers = requested_.trainers * times;
      setting.batch_size = requested_.batch_size / times;
      add_micro_batches(setting, times > 1 ? kGrows : 0);
    }
  }

  void add_micro_batches(RemedySetting setting, unsigned changes) {
    std::vector<std::int64_t> sizes = divisors_of(setting.batch_size, requested_.micro_batch());
    if (sizes.size() > kMostMicroBatches) {  // the largest ones, and one sample
      sizes.erase(sizes.begin() + 1, sizes.end() - static_cast<std::ptrdiff_t>(kMostMicroBatches - 1));
    }
    for (const std::int64_t size : sizes) {
      setting.accumulation = setting.batch_size / size;
      const unsigned with_split = changes | (size != sizes.back() ? kSplits : 0);
      if (requested_.checkpointing == ActivationCheckpointing::kPerModule) {
        setting.checkpointing = requested_.checkpointing;
        add_offloads(setting, with_split);
      }
      for (const ActivationCheckpointing checkpointing : kCheckpointings) {
        setting.checkpointing = checkpointing;
        add_offloads(setting, with_split | (checkpointing != requested_.checkpointing ? kCheckpoints : 0));
      }
    }
  }

  void add_offloads(RemedySetting setting, unsigned changes) {
    for (const Offload offload : {Offload::kNone, Offload::kOptimizer, Offload::kParameters}) {
      crds::Parallelism parallelism = training_.parallelism;
      parallelism.offload = offload;
      const bool part = crds::can_offload_in_part(parallelism);
      setting.offload = offload;
      setting.offload_percent = offload == Offload::kNone ? 0 : part ? 1 : kAll;
      const bool as_requested =
          offload == requested_.offload && setting.offload_percent == requested_.offload_percent;
      if (offload == Offload::kNone || part || crds::can_offload(parallelism)) {
        add({.setting = setting, .changes = changes | (as_requested ? 0 : kOffloads), .part = part});
      }
    }
    if (crds::can_offload_in_part(training_.parallelism)) {
      setting.offload = requested_.offload;
      setting.offload_percent = requested_.offload_percent;
      add({.setting = setting, .changes = changes});
    }
  }

  // What the library or the card cannot do is no remedy.
  void add(Family family) {
    charge(search_.job.budget, 10);
    if (const Result<double> seconds = seconds_of(family.setting)) {
      family.seconds = *seconds;
      families_.push_back(family);
    }
  }

  // ---- the cheapest one ----

  std::optional<Remedy> cheapest(unsigned may_change) {
    while (true) {
      charge(search_.job.budget, families_.size());
      Family* first = nullptr;
      for (Family& family : families_) {
        const bool is_out = (family.changes & ~may_change) != 0 || (family.resolved && !family.found);
        if (!is_out && (first == nullptr || family.rank() < first->rank())) {
          first = &family;
        }
      }
      if (first == nullptr) {
        return std::nullopt;
      }
      if (first->resolved) {
        return first->found;
      }
      resolve(*first);
    }
  }

  void resolve(Family& family) {
    family.resolved = true;
    const std::optional<Remedy> found =
        family.part ? least_part(family.setting) : fitting(family.setting, family.seconds);
    if (found) {
      family.setting = found->setting;
      family.seconds = found->seconds;
      family.found = found;
    }
  }

  std::optional<Remedy> fitting(const RemedySetting& setting, double seconds) {
    const Result<Remedy> remedy = remedy_of(setting, seconds);
    return remedy && fits(*remedy) ? std::optional<Remedy>(*remedy) : std::nullopt;
  }

  // The least percentage that fits a GPU. Memory of a GPU falls with it, and that of the host rises.
  std::optional<Remedy> least_part(RemedySetting setting) {
    const auto on_gpu = [&](std::int64_t percent) -> std::optional<Remedy> {
      setting.offload_percent = percent;
      const Result<Remedy> remedy = remedy_of(setting, 0);
      return remedy && remedy->device <= search_.capacity ? std::optional<Remedy>(*remedy) : std::nullopt;
    };
    std::int64_t exceeds = 0;
    std::int64_t enough = kAll;
    std::optional<Remedy> least = on_gpu(enough);
    while (least && enough - exceeds > 1) {
      const std::int64_t middle = exceeds + (enough - exceeds) / 2;
      if (const std::optional<Remedy> less = on_gpu(middle)) {
        least = less;
        enough = middle;
      } else {
        exceeds = middle;
      }
    }
    if (!least || !fits(*least)) {
      return std::nullopt;
    }
    const Result<double> seconds = seconds_of(least->setting);
    if (!seconds) {
      return std::nullopt;
    }
    least->seconds = *seconds;
    return least;
  }

  const RemedySearch& search_;
  const crds::TrainingSpec training_;
  RemedySetting requested_;
  std::vector<Family> families_;
  std::int64_t estimated_ = 0;
};

}  // namespace

Result<RemedyAnswer> search_remedies(const RemedySearch& search) {
  return Search(search).answer();
}

}  // namespace plimsoll::estimator::host_training
