#include "tests/fuzz/slowest/search.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

namespace plimsoll::testing {
namespace {

std::string kind_of(const crds::TrainingJobSpec& spec, const Measured& measured) {
  std::string kind = measured.reason;
  if (spec.model.dlrm) {
    kind += std::string(" dlrm ") + crds::name_of(spec.model.dlrm->interaction) +
            (spec.model.dlrm->tables_from ? " from" : "");
  } else if (spec.model.transformer) {
    kind += " transformer " + std::to_string(static_cast<int>(spec.model.transformer->architecture)) +
            (spec.model.transformer->config.empty() ? "" : " config") +
            (spec.model.transformer->experts > 0 ? " experts" : "");
  } else {
    kind += " graph " + (spec.model.graph ? spec.model.graph->key : "");
  }
  const crds::Parallelism& ways = spec.training.parallelism;
  kind += std::string(" ") + crds::name_of(spec.training.activation_checkpointing) + " " +
          crds::name_of(ways.strategy);
  kind += ways.tensor > 1 ? " tensor" : "";
  kind += ways.pipeline > 1 ? " pipeline" : "";
  kind += ways.pipeline_chunks > 1 ? " chunks" : "";
  return kind;
}

// A decision that had to be ended or that crashed is worse than any that ended by itself.
auto badness(const Measured& measured) {
  const bool by_itself = measured.end == Measured::End::kDecided || measured.end == Measured::End::kRefused;
  return std::tuple(!by_itself, measured.overrun, measured.processor_time);
}

}  // namespace

bool is_finding(const Measured& measured) {
  return measured.end == Measured::End::kKilled || measured.end == Measured::End::kCrashed ||
         measured.overrun > kOverrunLimit || measured.peak_heap > kHeapLimit;
}

void SlowestSearch::add(const crds::TrainingJobSpec& spec) {
  // The API server takes no larger request (k8s.io/apiserver, MaxRequestBodyBytes).
  constexpr std::size_t kLargestRequest = 3 << 20;
  const Json job = job_of(spec);
  if (write_json(job).size() > kLargestRequest) {
    ++refused_;
    return;
  }
  Found found{spec, measure_decision(job, options_.limits)};
  if (found.measured.end == Measured::End::kRefused) {
    ++refused_;
    return;
  }
  ++decisions_;
  findings_ += is_finding(found.measured) ? 1 : 0;
  const auto [place, is_new] =
      kept_.try_emplace(kind_of(spec, found.measured), Kept{.slowest = found, .largest = found});
  if (is_new) {
    return;
  }
  Kept& kept = place->second;
  if (found.measured.peak_heap > kept.largest.measured.peak_heap) {
    kept.largest = found;
  }
  if (badness(found.measured) > badness(kept.slowest.measured)) {
    kept.slowest = std::move(found);
  }
}

const crds::TrainingJobSpec& SlowestSearch::any_kept() {
  const auto any = [&](std::size_t size) {
    return std::uniform_int_distribution<std::size_t>(0, size - 1)(random_);
  };
  // Of three, the worst: some haste, but every kind has its turn.
  const bool by_time = any(3) != 0;
  const Found* chosen = nullptr;
  for (int i = 0; i < 3; ++i) {
    const Kept& kept = std::next(kept_.begin(), static_cast<std::ptrdiff_t>(any(kept_.size())))->second;
    const Found& found = by_time ? kept.slowest : kept.largest;
    const bool is_worse =
        chosen == nullptr || (by_time ? badness(found.measured) > badness(chosen->measured)
                                      : found.measured.peak_heap > chosen->measured.peak_heap);
    chosen = is_worse ? &found : chosen;
  }
  return chosen->spec;
}

void SlowestSearch::step() {
  constexpr std::size_t kFirst = 50;  // at random, before anything is bred
  const auto share = std::uniform_int_distribution<int>(0, 99)(random_);
  if (kept_.empty() || decisions_ < static_cast<std::int64_t>(kFirst) || share < 5) {
    add(random_spec(random_));
    return;
  }
  crds::TrainingJobSpec spec = any_kept();
  if (share < 25) {
    spec = crossed(spec, any_kept(), random_);
  }
  mutate(spec, random_);
  add(spec);
}

std::vector<Found> SlowestSearch::worst(std::size_t most) const {
  std::vector<const Kept*> all;
  for (const auto& [kind, kept] : kept_) {
    all.push_back(&kept);
  }
  std::vector<Found> worst;
  const auto take = [&](auto found_of, auto measure) {
    std::sort(all.begin(), all.end(), [&](const Kept* a, const Kept* b) {
      return measure(found_of(*a).measured) > measure(found_of(*b).measured);
    });
    for (std::size_t i = 0; i < all.size() && i < (most + 1) / 2; ++i) {
      const Found& found = found_of(*all[i]);
      const Json job = job_of(found.spec);
      const bool known = std::any_of(worst.begin(), worst.end(),
                                     [&](const Found& other) { return job_of(other.spec) == job; });
      if (!known) {
        worst.push_back(found);
      }
    }
  };
  take([](const Kept& kept) -> const Found& { return kept.slowest; },
       [](const Measured& measured) { return badness(measured); });
  take([](const Kept& kept) -> const Found& { return kept.largest; },
       [](const Measured& measured) { return measured.peak_heap; });
  return worst;
}

}  // namespace plimsoll::testing
