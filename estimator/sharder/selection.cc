#include "estimator/sharder/selection.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace plimsoll::estimator::inline sharder {

namespace {

// Options that are scanned in the time of one unit of work.
constexpr std::size_t kScannedPerUnit = 64;

const Option& cheapest(std::span<const Option> options, const Caps& caps) {
  const Option* best = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const Option& option : options) {
    const double value = caps.prices.of(option);
    if (value < least && caps.allow(option)) {
      least = value;
      best = &option;
    }
  }
  if (best != nullptr) {
    return *best;
  }
  for (const Option& option : options) {
    const double excess =
        std::max({option.ms / caps.ms, option.bytes / caps.bytes, option.compute_ms / caps.compute_ms});
    if (best == nullptr || excess < least) {
      least = excess;
      best = &option;
    }
  }
  assert(best != nullptr);
  return *best;
}

}  // namespace

void Selection::add(const Option& option, double sign) {
  total_ms += sign * option.total_ms;
  total_bytes += sign * option.total_bytes;
  total_compute += sign * option.compute_ms * (option.total_ms / std::max(option.ms, 1e-300));
  total_host += sign * option.total_host;
}

Selection select(const Options& options, const Caps& caps) {
  options.charge_scan();
  Selection selection;
  selection.options.reserve(options.tables());
  for (std::size_t table = 0; table < options.tables(); ++table) {
    const Option& option = cheapest(options.of(table), caps);
    selection.options.push_back(&option);
    selection.add(option);
  }
  return selection;
}

Savings::Savings(const Options& options, const Caps& caps) : budget_(options.budget()) {
  options.charge_scan();
  Caps within = caps;
  within.prices.card = 0;
  fastest_.options.reserve(options.tables());
  steps_.reserve(options.tables() * 2);
  std::vector<const Option*> smaller;
  for (std::size_t table = 0; table < options.tables(); ++table) {
    const Option& first = cheapest(options.of(table), within);
    fastest_.options.push_back(&first);
    fastest_.add(first);
    smaller.clear();
    for (const Option& option : options.of(table)) {
      if (option.total_bytes < first.total_bytes && within.allow(option)) {
        smaller.push_back(&option);
      }
    }
    append_steps(table, smaller, within.prices);
  }
  std::stable_sort(steps_.begin(), steps_.end(),
                   [](const Step& a, const Step& b) { return a.price < b.price; });
}

// Follows the convex hull: from each option to the one that saves bytes at the lowest price.
void Savings::append_steps(std::size_t table, const std::vector<const Option*>& smaller,
                           const Prices& prices) {
  const Option* from = fastest_.options[table];
  while (true) {
    charge(budget_, smaller.size() / kScannedPerUnit + 1);
    const Option* next = nullptr;
    double least = std::numeric_limits<double>::infinity();
    for (const Option* to : smaller) {
      if (to->total_bytes >= from->total_bytes) {
        continue;
      }
      const double price = (prices.of(*to) - prices.of(*from)) / (from->total_bytes - to->total_bytes);
      if (price < least || (price == least && to->total_bytes < next->total_bytes)) {
        least = price;
        next = to;
      }
    }
    if (next == nullptr) {
      return;
    }
    steps_.push_back({least, table, next});
    saved_ += from->total_bytes - next->total_bytes;
    from = next;
  }
}

std::optional<Selection> Savings::within(double bytes) const {
  if (fastest_.total_bytes - saved_ > bytes) {
    return std::nullopt;
  }
  charge(budget_, (fastest_.options.size() + steps_.size()) / kScannedPerUnit + 1);
  Selection selection = fastest_;
  for (auto step = steps_.begin(); selection.total_bytes > bytes && step != steps_.end(); ++step) {
    const Option*& chosen = selection.options[step->table];
    selection.add(*chosen, -1);
    selection.add(*step->option);
    chosen = step->option;
  }
  return selection;
}

Choices::Choices(const Options& options, const Caps& caps) : options_(&options), caps_(caps) {
  options.charge_scan();
  constexpr std::size_t kUsualSteps = 4;
  steps_.reserve(options.tables() * kUsualSteps);
  first_.reserve(options.tables() + 1);
  first_.push_back(0);
  std::vector<Open> open;  // options of one table that some cap on bytes allows
  for (std::size_t table = 0; table < options.tables(); ++table) {
    open.clear();
    for (const Option& option : options.of(table)) {
      const double value = caps.prices.of(option);
      if (option.everywhere() || (option.ms <= caps.ms && option.compute_ms <= caps.compute_ms)) {
        open.push_back({.value = value, .bytes = option.everywhere() ? 0 : option.bytes, .option = &option});
      }
    }
    append_steps(open);
    first_.push_back(steps_.size());
  }
}

// Appends the cheapest, then the cheapest of those that are smaller, and so on; of equal ones the first.
void Choices::append_steps(const std::vector<Open>& open) {
  double bytes = std::numeric_limits<double>::infinity();
  while (true) {
    charge(options_->budget(), open.size() / kScannedPerUnit + 1);
    const Open* best = nullptr;
    double least = std::numeric_limits<double>::infinity();
    for (const Open& one : open) {
      if (one.value < least && one.bytes < bytes) {
        least = one.value;
        best = &one;
      }
    }
    if (best == nullptr) {
      return;
    }
    bytes = best->bytes;
    steps_.push_back({.bytes = bytes,
                      .total_ms = best->option->total_ms,
                      .total_bytes = best->option->total_bytes,
                      .option = best->option});
  }
}

// The table's choice; null where every option exceeds the caps.
const Choices::Step* Choices::within(std::size_t table, double bytes) const {
  for (std::size_t step = first_[table]; step < first_[table + 1]; ++step) {
    if (steps_[step].bytes <= bytes) {
      return &steps_[step];
    }
  }
  return nullptr;
}

const Option& Choices::beyond(std::size_t table, double bytes) const {
  Caps caps = caps_;
  caps.bytes = bytes;
  return cheapest(options_->of(table), caps);
}

Selection Choices::select(double bytes) const {
  options_->charge_scan();
  Selection selection;
  selection.options.reserve(options_->tables());
  for (std::size_t table = 0; table < options_->tables(); ++table) {
    const Step* step = within(table, bytes);
    const Option& option = step == nullptr ? beyond(table, bytes) : *step->option;
    selection.options.push_back(&option);
    selection.add(option);
  }
  return selection;
}

Choices::Totals Choices::totals(double bytes) {
  for (const auto& [cap, totals] : known_) {
    if (cap == bytes) {
      return totals;
    }
  }
  options_->charge_scan();
  Totals totals;
  for (std::size_t table = 0; table < options_->tables(); ++table) {
    if (const Step* step = within(table, bytes)) {
      totals.ms += step->total_ms;
      totals.bytes += step->total_bytes;
    } else {
      const Option& option = beyond(table, bytes);
      totals.ms += option.total_ms;
      totals.bytes += option.total_bytes;
    }
  }
  known_.emplace_back(bytes, totals);
  return totals;
}

double Choices::smallest_cap(double least, double most, const Totals& allowed) {
  const auto affordable = [&](double bytes) {
    const Totals total = totals(bytes);
    return total.ms <= allowed.ms && total.bytes <= allowed.bytes;
  };
  if (least >= most || affordable(least)) {
    return least;
  }
  constexpr int kHalvings = 7;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = std::sqrt(least * most);
    (affordable(middle) ? most : least) = middle;
  }
  return most;
}

}  // namespace plimsoll::estimator::sharder
