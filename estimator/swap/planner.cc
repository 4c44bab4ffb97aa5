#include "estimator/swap/planner.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "estimator/swap/bound.h"
#include "estimator/swap/partition.h"
#include "estimator/swap/simulator.h"
#include "estimator/swap/task_loads.h"

namespace plimsoll::estimator::inline swap {
namespace {

constexpr double kEventsOfAHundredLayers = 8e6;  // about half a second
constexpr double kSharedLinks = 6;               // how much longer an event takes where links are shared
constexpr double kEventsOfAMicrobatch = 5;
constexpr std::size_t kClimbed = 6;  // plans that are improved
constexpr double kLess = 1 - 1e-9;

bool faster(double seconds, double than) {
  return seconds < than * kLess;
}

class Planner {
 public:
  explicit Planner(const SwapRequest& request)
      : request_(request),
        costs_(*request.profile),
        pack_capacity_(request.capacity),
        limit_(kEventsOfAHundredLayers * std::max(1.0, static_cast<double>(costs_.layers()) / 100)) {
    if (layers_may_stay(request.machine)) {
      collect_candidates_to_stay();
    }
  }

  Result<PlannedSwap> plan() {
    // Gradients and optimizer of layers that stay are not there.
    const SwapHostMemory of_model = host_memory_of_model(*request_.profile);
    const bool some_may_stay = !may_stay_.empty() && request_.mode != SwapMode::kVDP;
    if ((some_may_stay ? of_model.model : of_model.total()) > request_.host_memory) {
      return exceeds_host(of_model.total(), "the model, its gradients and its optimizer take");
    }
    collect_kinds();
    if (kinds_.empty()) {
      return unfittable();
    }
    const double bound = kinds_.front().least.seconds();
    if (!faster(bound, request_.seconds_to_beat)) {
      return Error{ErrorCode::kUnfittable,
                   "no plan takes less than " + std::to_string(request_.seconds_to_beat) + " s"};
    }
    for (std::size_t i = 0; i < kinds_.size(); ++i) {
      if (!faster(kinds_[i].least.seconds(), best_.seconds)) {
        break;
      }
      seed(kinds_[i].kind);
      report(0.5 * static_cast<double>(i) / static_cast<double>(kinds_.size()));
    }
    if (!found()) {
      return least_on_host_ < Bytes::max()
                 ? exceeds_host(least_on_host_, "the plan with the fewest stashes takes")
                 : unfittable();
    }
    if (request_.machine.principles.balance) {
      climb();
    }
    without_residents();
    with_stashes();
    PlannedSwap planned;
    planned.plan = best_.plan;
    planned.seconds = best_.seconds;
    planned.bound_seconds = bound;
    planned.simulated = simulated_;
    planned.device_memory = device_memory(best_.plan, costs_, request_.machine.runtime);
    planned.host = host_memory(best_.plan, *request_.profile);
    planned.volumes = packed_volumes(best_.plan, *request_.profile, request_.machine.runtime);
    planned.weights = request_.profile->weights;
    planned.inputs = request_.profile->input;
    planned.considered = std::move(kinds_);
    return planned;
  }

 private:
  struct Candidate {
    SwapPlan plan;
    double seconds = std::numeric_limits<double>::infinity();
  };

  // What is saved for each byte that a layer holds: its transfers, and the host's update.
  void collect_candidates_to_stay() {
    const SwapProfile& profile = *request_.profile;
    std::vector<std::pair<double, std::size_t>> worth;
    for (std::size_t layer = 0; layer < costs_.layers(); ++layer) {
      if (!std::ranges::binary_search(profile.tied, layer) && profile.weights[layer] > Bytes{}) {
        const auto transfers = static_cast<double>((profile.moved(layer) * 2 + profile.weights[layer]).count);
        const double seconds =
            transfers / request_.machine.host_bandwidth + costs_.update_seconds(layer, layer + 1);
        worth.emplace_back(-seconds / static_cast<double>(resident_bytes(profile, layer).count), layer);
      }
    }
    std::ranges::sort(worth);  // of equal ones the first layers, whose updates end the iteration
    for (const auto& [_, layer] : worth) {
      may_stay_.push_back(layer);
    }
  }

  bool may_keep(SwapMode mode) const { return mode == SwapMode::kVPP && !may_stay_.empty(); }

  // The plan with as many layers that stay as its packs leave memory for.
  SwapPlan with_residents(SwapPlan plan) {
    plan.resident.clear();
    plan.resident_stashes.clear();
    if (!keeps_) {
      return plan;
    }
    charge(request_.budget, costs_.layers() + plan.forward_packs.size() + plan.backward_packs.size());
    TaskLoads loads(plan, costs_, request_.machine.runtime);
    for (const std::size_t layer : may_stay_) {
      if (loads.keep_within(layer, request_.capacity)) {
        plan.resident.push_back(layer);
      }
    }
    std::ranges::sort(plan.resident);
    keep_stashes(plan, loads);
    return plan;
  }

  // Those that are made last, and so are there for the shortest time, first.
  void keep_stashes(SwapPlan& plan, TaskLoads& loads) const {
    const std::vector<StashSpan>& stashes = loads.stashes();
    charge(request_.budget, stashes.size() + loads.tasks());
    for (auto stash = stashes.rbegin(); stash != stashes.rend(); ++stash) {
      if (loads.keep_stash_within(*stash, request_.capacity)) {
        plan.resident_stashes.push_back(stash->head);
      }
    }
    std::ranges::reverse(plan.resident_stashes);
  }

  // The search without layers that stay leaves memory, too.
  void with_stashes() {
    if (!stashes_may_stay(request_.machine) || !best_.plan.resident_stashes.empty()) {
      return;
    }
    SwapPlan plan = best_.plan;
    TaskLoads loads(plan, costs_, request_.machine.runtime);
    keep_stashes(plan, loads);
    if (!plan.resident_stashes.empty()) {
      take_within(std::move(plan),
                  best_.seconds / kLess);  // no slower, it takes less of the host and its links
    }
  }

  void take_within(SwapPlan plan, double seconds) {
    const Result<SwapTimes> times = simulate_swap(plan, costs_, request_.machine, nullptr, request_.budget);
    if (times && times->seconds < seconds) {
      note_best_of_kind(plan, times->seconds);
      best_ = {std::move(plan), times->seconds};
    }
  }

  // Updates on a GPU that has much to compute may cost more than they save.
  void without_residents() {
    SwapPlan plan = best_.plan;
    plan.resident.clear();
    if (best_.plan.resident.empty() || !fits_host(plan)) {
      return;
    }
    take_within(std::move(plan), best_.seconds * kLess);
  }

  bool found() const { return best_.seconds < std::numeric_limits<double>::infinity(); }

  // By their bounds.
  void collect_kinds() {
    for (const SwapMode mode : {SwapMode::kVPP, SwapMode::kVDP}) {
      const bool copies = mode == SwapMode::kVDP;
      if ((request_.mode && mode != *request_.mode) || (copies && request_.samples % request_.gpus != 0)) {
        continue;
      }
      const std::vector<std::int64_t> sizes =
          microbatches(request_.samples / (copies ? request_.gpus : 1), request_.profile->backward);
      for (const bool prefetch : {false, true}) {
        for (const std::int64_t backward : sizes) {
          for (const std::int64_t forward :
               microbatches(request_.samples / (copies ? request_.gpus : 1), request_.profile->forward)) {
            if (forward == backward || !one_microbatch()) {
              add_kind({mode, request_.gpus, request_.samples, forward, backward, prefetch});
            }
          }
        }
      }
    }
    std::stable_sort(kinds_.begin(), kinds_.end(), [](const ConsideredKind& a, const ConsideredKind& b) {
      return a.least.seconds() < b.least.seconds();
    });
    for (std::size_t i = 0; i < kinds_.size(); ++i) {
      const SwapKind& kind = kinds_[i].kind;
      place_of_kind_[{kind.mode, kind.prefetch, kind.forward_microbatch, kind.backward_microbatch}] = i;
    }
  }

  // Our runtime runs both passes in the smaller microbatch (trainer/plimsoll/harmony).
  bool one_microbatch() const { return request_.machine.runtime == SwapRuntime::kPlimsoll; }

  void add_kind(const SwapKind& kind) {
    charge(request_.budget, 10);
    if (request_.prefetch && kind.prefetch != *request_.prefetch) {
      return;
    }
    if (const auto least = least_work(kind, costs_, request_.machine, request_.capacity)) {
      kinds_.push_back({kind, *least});
    }
  }

  static std::vector<std::int64_t> microbatches(std::int64_t samples, const std::vector<SwapPass>& measured) {
    std::vector<std::int64_t> sizes;
    const std::int64_t largest = std::min(samples, measured.back().microbatch);
    for (std::int64_t size = measured.front().microbatch; size <= largest && sizes.size() < kMaxMicrobatches;
         ++size) {
      if (samples % size == 0) {
        sizes.push_back(size);
      }
    }
    return sizes;
  }

  SwapPlan plan_of(const SwapKind& kind) const {
    return {.mode = kind.mode,
            .gpus = kind.gpus,
            .samples = kind.samples,
            .forward_microbatch = kind.forward_microbatch,
            .backward_microbatch = kind.backward_microbatch,
            .forward_packs = {},
            .backward_packs = {},
            .prefetch = kind.prefetch,
            .peer_to_peer = hands_over_by_p2p(request_.machine)};
  }

  // ---- seeds ----

  PackFits fits(const SwapPlan& plan, bool forward) {
    const PassCosts* const pass =
        forward ? costs_.forward(plan.forward_microbatch) : costs_.backward(plan.backward_microbatch);
    const bool ahead = plan.prefetch && request_.machine.runtime == SwapRuntime::kPlimsoll;
    return [this, &plan, pass, forward, ahead](std::size_t first, std::size_t end) {
      const PackedTask task{.forward = forward, .first = first, .end = end, .gpu = 0};
      const Bytes beside = ahead ? costs_.moved(first, end) : Bytes{};
      if (pass->memory(first, end) + beside > pack_capacity_) {
        return PackFit::kTooLarge;
      }
      const Bytes all = task_memory(plan, costs_, pass, task, request_.machine.runtime) + beside;
      // The next forward pack begins here, and would be handed more than fits.
      const bool is_border = forward && end < plan.backward_packs.back();
      const PackedTask next{.forward = true, .first = end, .end = end + 1, .gpu = 0};
      const bool ends_well =
          !is_border || task_memory(plan, costs_, pass, next, request_.machine.runtime) <= pack_capacity_;
      return all <= pack_capacity_ && ends_well ? PackFit::kFits : PackFit::kNotHere;
    };
  }

  // What a task keeps its GPU busy with, without prefetch.
  PackCost seconds(const SwapPlan& plan, bool forward) {
    const PassCosts& pass =
        *(forward ? costs_.forward(plan.forward_microbatch) : costs_.backward(plan.backward_microbatch));
    const bool copies = plan.mode == SwapMode::kVDP;
    const std::int64_t share = plan.samples / (copies ? plan.gpus : 1);
    const auto samples = static_cast<double>(share);
    const double runs =
        samples / static_cast<double>(forward ? plan.forward_microbatch : plan.backward_microbatch);
    const double rate = request_.machine.host_bandwidth / static_cast<double>(plan.gpus);
    return [this, &pass, samples, runs, rate, forward](std::size_t first, std::size_t end) {
      const double weights = static_cast<double>(costs_.moved(first, end).count) * (forward ? 1 : 2);
      const double inputs =
          static_cast<double>(request_.profile->input[first].count) * samples * (forward ? 1 : 3);
      return runs * pass.seconds(first, end) + (weights + inputs) / rate + request_.machine.task_seconds;
    };
  }

  static PackCost memory(const PassCosts& pass) {
    return [&pass](std::size_t first, std::size_t end) {
      return static_cast<double>(pass.memory(first, end).count);
    };
  }
  static PackCost compute(const PassCosts& pass) {
    return [&pass](std::size_t first, std::size_t end) { return pass.seconds(first, end); };
  }

  // Packs of the first `layers`.
  std::vector<Packs> ways_to_cut(const SwapPlan& plan, bool forward, std::size_t layers) {
    charge(request_.budget, layers);
    const PackFits fit = fits(plan, forward);
    const PassCosts& pass =
        *(forward ? costs_.forward(plan.forward_microbatch) : costs_.backward(plan.backward_microbatch));
    std::vector<Packs> ways;
    const auto add = [&](std::optional<Packs> packs) {
      if (packs && std::find(ways.begin(), ways.end(), *packs) == ways.end()) {
        ways.push_back(*std::move(packs));
      }
    };
    const std::optional<Packs> filled = filled_packs(layers, fit);
    add(filled);
    if (!filled || !request_.machine.principles.balance) {
      return ways;
    }
    const std::size_t fewest = filled->size();
    add(equal_packs(layers, fit, memory(pass), fewest));
    add(equal_packs(layers, fit, compute(pass), fewest));
    const PackCost busy = seconds(plan, forward);
    add(cheapest_packs(layers, fit, busy));
    const std::size_t step = static_cast<std::size_t>(plan.gpus);
    for (const std::size_t packs :
         {fewest, fewest + 1, fewest + step, fewest + fewest / 4, fewest + fewest / 2}) {
      add(even_packs(layers, fit, busy, packs));
    }
    return ways;
  }

  void seed(const SwapKind& kind) {
    seed_with_all(kind);
    if (may_keep(kind.mode)) {
      const double before = events_;
      keeps_ = true;
      seed_with_room(kind);
      keeps_ = false;
      events_ = before;  // the others are improved as far as without these
    }
  }

  // Small packs leave room for layers that stay.
  void seed_with_room(const SwapKind& kind) {
    SwapPlan plan = plan_of(kind);
    plan.mirrored = kind.gpus > 1;
    for (const double share : {1.0, 0.75, 0.5, 0.25, 0.125}) {
      pack_capacity_ = Bytes{static_cast<std::int64_t>(share * static_cast<double>(request_.capacity.count))};
      const PackFits fit = fits(plan, false);
      const PassCosts& pass = *costs_.backward(plan.backward_microbatch);
      const std::optional<Packs> filled = filled_packs(costs_.layers(), fit);
      if (!filled) {
        break;
      }
      for (const std::optional<Packs>& packs :
           {filled, equal_packs(costs_.layers(), fit, memory(pass), filled->size()),
            cheapest_packs(costs_.layers(), fit, seconds(plan, false))}) {
        if (packs) {
          plan.backward_packs = *packs;
          plan.forward_packs.assign(packs->begin(), packs->end() - 1);
          consider(plan);
        }
      }
    }
    pack_capacity_ = request_.capacity;
  }

  void seed_with_all(const SwapKind& kind) {
    SwapPlan plan = plan_of(kind);
    for (const Packs& backward : ways_to_cut(plan, false, costs_.layers())) {
      plan.backward_packs = backward;
      plan.forward_packs.clear();
      const std::size_t last = backward.back();
      if (last == 0) {
        consider(plan);
        continue;
      }
      std::vector<Packs> forwards = ways_to_cut(plan, true, last);
      forwards.emplace_back(backward.begin(), backward.end() - 1);  // the same as backward
      for (const Packs& forward : forwards) {
        plan.forward_packs = forward;
        consider(plan);
      }
    }
  }

  // ---- trying ----

  bool fits_whole(const SwapPlan& plan) {
    return device_memory(plan, costs_, request_.machine.runtime) <= request_.capacity && fits_host(plan);
  }

  bool fits_host(const SwapPlan& plan) {
    if (request_.host_memory == Bytes::max()) {
      return true;
    }
    const Bytes taken = host_memory(plan, *request_.profile).total();
    least_on_host_ = std::min(least_on_host_, taken);
    return taken <= request_.host_memory;
  }

  double work_of(const SwapPlan& plan) const {
    const std::int64_t share = plan.samples / (plan.mode == SwapMode::kVDP ? plan.gpus : 1);
    const auto samples = static_cast<double>(share);
    const double runs = static_cast<double>(plan.forward_packs.size()) * samples /
                            static_cast<double>(plan.forward_microbatch) +
                        static_cast<double>(plan.backward_packs.size()) * samples /
                            static_cast<double>(plan.backward_microbatch);
    const bool shared = !request_.machine.fixed_shares && plan.mode == SwapMode::kVPP && plan.gpus > 1;
    return runs * kEventsOfAMicrobatch * (shared ? kSharedLinks : 1);
  }

  std::optional<double> time(const SwapPlan& plan) {
    if (!fits_whole(plan)) {
      return std::nullopt;
    }
    const double work = work_of(plan);
    events_ += work;
    ++simulated_;
    charge(request_.budget, static_cast<std::uint64_t>(work / 20));
    const Result<SwapTimes> times = simulate_swap(plan, costs_, request_.machine, nullptr, request_.budget);
    if (!times) {
      return std::nullopt;
    }
    note_best_of_kind(plan, times->seconds);
    return times->seconds;
  }

  void note_best_of_kind(const SwapPlan& plan, double seconds) {
    const auto found =
        place_of_kind_.find({plan.mode, plan.prefetch, plan.forward_microbatch, plan.backward_microbatch});
    if (found != place_of_kind_.end()) {
      double& best = kinds_[found->second].seconds;
      best = std::min(best, seconds);
    }
  }

  // Whether it is a plan that was not tried before.
  bool is_new(const SwapPlan& plan) {
    return seen_
        .insert({plan.mode, plan.prefetch, keeps_, plan.mirrored, plan.forward_microbatch,
                 plan.backward_microbatch, plan.forward_packs, plan.backward_packs})
        .second;
  }

  void consider(const SwapPlan& packs) {
    if (!is_new(packs)) {
      return;
    }
    SwapPlan plan = with_residents(packs);
    const std::optional<double> seconds = time(plan);
    if (!seconds) {
      return;
    }
    Candidate candidate{plan, *seconds};
    if (faster(*seconds, best_.seconds)) {
      best_ = candidate;
    }
    std::vector<Candidate>& starts = starts_[(keeps_ ? kKeeping : 0) + (plan.prefetch ? 1 : 0)];
    const auto place =
        std::upper_bound(starts.begin(), starts.end(), *seconds,
                         [](double value, const Candidate& each) { return value < each.seconds; });
    starts.insert(place, std::move(candidate));
    if (starts.size() > kClimbed) {
      starts.pop_back();
    }
  }

  // ---- improving ----

  // Which kind is the fastest shows only in plans that were improved: each may take as many events as the first one.
  void climb() {
    const double each = limit_ - events_;
    const auto kinds = std::ranges::count_if(starts_, [](const auto& starts) { return !starts.empty(); });
    const double all = events_ + each * static_cast<double>(kinds);
    double until = events_;
    for (std::size_t i = 0; i < starts_.size(); ++i) {
      if (!starts_[i].empty()) {
        until += each;
        keeps_ = i >= kKeeping;
        climb(starts_[i], until, all);
      }
    }
    keeps_ = false;
  }

  void climb(const std::vector<Candidate>& starts, double limit, double all) {
    for (std::size_t i = 0; i < starts.size() && events_ < limit; ++i) {
      // The best start may take half of what is left, and each of the others half of the rest.
      const double until = events_ + (limit - events_) / (i + 1 < starts.size() ? 2 : 1);
      Candidate current = starts[i];
      while (events_ < until && improve(current, until)) {
        report(0.5 + 0.5 * events_ / all);
      }
      if (faster(current.seconds, best_.seconds)) {
        best_ = current;
      }
    }
  }

  // One round of all steps, each from what the ones before it have reached.
  bool improve(Candidate& current, double until) {
    const double before = current.seconds;
    for (const bool forward : {false, true}) {
      for (std::size_t i = 1; i <= packs_of(current.plan, forward).size() && events_ < until; ++i) {
        move_border(current, forward, i);
      }
    }
    for (const bool forward : {false, true}) {
      for (std::size_t i = 1; i < packs_of(current.plan, forward).size() && events_ < until; ++i) {
        move_borders_from(current, forward, i);
        merge(current, forward, i);
      }
      for (std::size_t i = 0; i < packs_of(current.plan, forward).size() && events_ < until; ++i) {
        split(current, forward, i);
      }
    }
    other_microbatches(current);
    other_order(current);
    return faster(current.seconds, before);
  }

  static Packs& packs_of(SwapPlan& plan, bool forward) {
    return forward ? plan.forward_packs : plan.backward_packs;
  }

  bool attempt(Candidate& current, SwapPlan plan) {
    plan.resident.clear();
    plan.resident_stashes.clear();
    mend_forward(plan);
    if (!check_plan(plan, costs_.layers())) {
      return false;
    }
    if (!is_new(plan)) {
      return false;
    }
    plan = with_residents(std::move(plan));
    const std::optional<double> seconds = time(plan);
    if (!seconds || !faster(*seconds, current.seconds)) {
      return false;
    }
    current = {std::move(plan), *seconds};
    return true;
  }

  // The forward packs end where the last backward pack begins.
  static void mend_forward(SwapPlan& plan) {
    const std::size_t last = plan.backward_packs.back();
    while (!plan.forward_packs.empty() && plan.forward_packs.back() >= last) {
      plan.forward_packs.pop_back();
    }
    if (plan.forward_packs.empty() && last > 0) {
      plan.forward_packs = {0};
    }
  }

  void move_border(Candidate& current, bool forward, std::size_t index) {
    for (const std::ptrdiff_t step : {1, -1, 2, -2, 4, -4, 8, -8}) {
      SwapPlan plan = current.plan;
      Packs& packs = packs_of(plan, forward);
      if (index < packs.size()) {
        packs[index] += static_cast<std::size_t>(step);
        attempt(current, std::move(plan));
      }
    }
  }

  void move_borders_from(Candidate& current, bool forward, std::size_t index) {
    for (const std::ptrdiff_t step : {1, -1}) {
      SwapPlan plan = current.plan;
      Packs& packs = packs_of(plan, forward);
      for (std::size_t i = index; i < packs.size(); ++i) {
        packs[i] += static_cast<std::size_t>(step);
      }
      attempt(current, std::move(plan));
    }
  }

  void merge(Candidate& current, bool forward, std::size_t index) {
    SwapPlan plan = current.plan;
    Packs& packs = packs_of(plan, forward);
    if (index >= packs.size()) {  // a step before this one has removed packs
      return;
    }
    packs.erase(packs.begin() + static_cast<std::ptrdiff_t>(index));
    attempt(current, std::move(plan));
  }

  void split(Candidate& current, bool forward, std::size_t index) {
    const Packs& now = packs_of(current.plan, forward);
    const std::size_t end = index + 1 < now.size() ? now[index + 1]
                            : forward              ? current.plan.backward_packs.back()
                                                   : costs_.layers();
    const std::size_t first = now[index];
    for (const std::size_t at : {(first + end) / 2, first + 1, end - 1}) {
      if (at > first && at < end) {
        SwapPlan plan = current.plan;
        Packs& packs = packs_of(plan, forward);
        packs.insert(packs.begin() + static_cast<std::ptrdiff_t>(index) + 1, at);
        if (attempt(current, std::move(plan))) {
          return;
        }
      }
    }
  }

  void other_order(Candidate& current) {
    if (keeps_ && current.plan.gpus > 1) {
      SwapPlan plan = current.plan;
      plan.mirrored = !plan.mirrored;
      attempt(current, std::move(plan));
    }
  }

  void other_microbatches(Candidate& current) {
    for (const bool forward : {false, true}) {
      if (forward && one_microbatch()) {
        return;
      }
      for (const bool larger : {false, true}) {
        SwapPlan plan = current.plan;
        const std::int64_t size = forward ? plan.forward_microbatch : plan.backward_microbatch;
        const std::int64_t samples = plan.mode == SwapMode::kVDP ? plan.samples / plan.gpus : plan.samples;
        std::vector<std::int64_t> sizes =
            microbatches(samples, forward ? request_.profile->forward : request_.profile->backward);
        if (one_microbatch()) {
          const std::vector<std::int64_t> both = microbatches(samples, request_.profile->forward);
          std::erase_if(sizes, [&](std::int64_t each) { return !std::ranges::count(both, each); });
        }
        const auto at = std::find(sizes.begin(), sizes.end(), size);
        if (larger ? std::next(at) == sizes.end() : at == sizes.begin()) {
          continue;
        }
        const std::int64_t other = larger ? *std::next(at) : *std::prev(at);
        if (one_microbatch()) {
          plan.forward_microbatch = plan.backward_microbatch = other;
        } else {
          (forward ? plan.forward_microbatch : plan.backward_microbatch) = other;
        }
        attempt(current, std::move(plan));
      }
    }
  }

  // ---- reports ----

  void report(double share) const {
    if (request_.progress) {
      request_.progress(std::min(share, 1.0), best_.seconds);
    }
  }

  Error exceeds_host(Bytes taken, const std::string& what) const {
    return Error{ErrorCode::kUnfittable, "no plan fits the host: " + what + " " + to_string(taken) +
                                             ", and it has " + to_string(request_.host_memory) + ": " +
                                             to_string(taken - request_.host_memory) + " are missing"};
  }

  Error unfittable() {
    std::size_t worst = 0;
    Bytes most{};
    const SwapPass& smallest = request_.profile->backward.front();
    const PassCosts* const pass = costs_.backward(smallest.microbatch);
    for (std::size_t i = 0; i < costs_.layers(); ++i) {
      if (const Bytes bytes = pass->memory(i, i + 1); bytes > most) {
        most = bytes;
        worst = i;
      }
    }
    return Error{ErrorCode::kUnfittable,
                 "no plan fits: layer " + std::to_string(worst) + " alone takes " + to_string(most) +
                     " with microbatches of " + std::to_string(smallest.microbatch) + ", and a GPU has " +
                     to_string(request_.capacity) + " (a task takes its layers, and what it is handed)"};
  }

  static constexpr std::size_t kMaxMicrobatches = 64;

  const SwapRequest& request_;
  SwapCosts costs_;
  Bytes pack_capacity_;                // of a task, without layers that stay beside it
  std::vector<std::size_t> may_stay_;  // layers, the most worth first
  std::vector<ConsideredKind> kinds_;
  std::map<std::tuple<SwapMode, bool, std::int64_t, std::int64_t>, std::size_t> place_of_kind_;
  double limit_;
  double events_ = 0;
  std::int64_t simulated_ = 0;
  Bytes least_on_host_ = Bytes::max();  // of plans that fit the GPUs
  Candidate best_;
  // The best seeds: without prefetch and with it, and the same with layers that stay.
  static constexpr std::size_t kKeeping = 2;
  std::array<std::vector<Candidate>, 4> starts_;
  bool keeps_ = false;  // whether plans that are tried get layers that stay
  std::set<std::tuple<SwapMode, bool, bool, bool, std::int64_t, std::int64_t, Packs, Packs>> seen_;
};

Result<void> check(const SwapRequest& request) {
  const SwapProfile& profile = *request.profile;
  if (profile.forward.empty() || profile.backward.empty()) {
    return invalid("the profile has no times (tf, tb, mf, mb, upd), and a plan needs them");
  }
  if (profile.layers() > kMaxPlannedLayers) {
    return Error{ErrorCode::kTooLarge, "the profile has " + std::to_string(profile.layers()) +
                                           " layers, and plans are made for at most " +
                                           std::to_string(kMaxPlannedLayers) +
                                           ": join layers in the profile"};
  }
  if (request.gpus < 1 || request.gpus > kMaxSwapGpus) {
    return invalid("gpus must be from 1 to " + std::to_string(kMaxSwapGpus));
  }
  if (request.samples < 1 || request.samples > kMaxSwapSamples) {
    return invalid("the batch must have from 1 to " + std::to_string(kMaxSwapSamples) + " samples");
  }
  if (request.mode == SwapMode::kVDP && request.samples % request.gpus != 0) {
    return invalid("vDP needs a batch that is a multiple of the " + std::to_string(request.gpus) + " GPUs");
  }
  if (!(request.machine.host_bandwidth > 0)) {
    return invalid("the machine needs a bandwidth between host and GPUs above 0");
  }
  return {};
}

}  // namespace

Result<PlannedSwap> plan_swap(const SwapRequest& request) {
  if (Result<void> checked = check(request); !checked) {
    return checked.error();
  }
  return Planner(request).plan();
}

}  // namespace plimsoll::estimator::swap
