// Chooses an option for each table, before shards are placed.
//
//   Selection chosen = select(options, Caps{.ms = bound.milliseconds, .bytes = cap, .prices = bound.prices});
//   Choices choices(options, caps);  // for many caps on bytes
//   Selection finer = choices.select(cap / 2);
//   std::optional<Selection> smaller = Savings(options, caps).within(bytes);
//
// Pure; any thread; Selections refer to the options, which must outlive them.
#pragma once

#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "estimator/sharder/options.h"

namespace plimsoll::estimator::inline sharder {

// The price of a byte, in milliseconds.
struct Prices {
  double card = 0;
  double host = 0;

  double of(const Option& option) const {
    return option.total_ms + card * option.total_bytes + host * option.total_host;
  }
};

// Limits of a single shard (above 0), and prices.
struct Caps {
  double ms = std::numeric_limits<double>::infinity();
  double bytes = std::numeric_limits<double>::infinity();
  double compute_ms = std::numeric_limits<double>::infinity();
  Prices prices = {};

  // Work that every rank does is level already.
  bool allow(const Option& option) const {
    return option.everywhere() ||
           (option.ms <= ms && option.bytes <= bytes && option.compute_ms <= compute_ms);
  }
};

struct Selection {
  std::vector<const Option*> options;  // by table
  double total_ms = 0;
  double total_bytes = 0;
  double total_compute = 0;  // milliseconds, part of total_ms
  double total_host = 0;

  void add(const Option& option, double sign = 1);
};

// For each table the cheapest option within the caps; if there is none, the one that exceeds them least.
Selection select(const Options& options, const Caps& caps);

// Makes the fastest selection within the caps take fewer bytes of GPU memory: one table after the other gets a
// smaller option, first those with the lowest cost in time for each byte saved. This is the greedy solution of
// the relaxed multiple-choice knapsack problem (Sinha and Zoltners 1979): no selection of as few bytes is faster,
// except for the last table changed. Ignores the caps' price of GPU memory. Refers to the options.
class Savings {
 public:
  Savings(const Options& options, const Caps& caps);

  // Nothing when even the smallest options take more.
  std::optional<Selection> within(double bytes) const;

 private:
  struct Step {
    double price = 0;  // of a byte less, in milliseconds
    std::size_t table = 0;
    const Option* option = nullptr;
  };
  void append_steps(std::size_t table, const std::vector<const Option*>& smaller, const Prices& prices);

  Budget* budget_;
  Selection fastest_;
  std::vector<Step> steps_;  // the cheapest first
  double saved_ = 0;         // by all of them
};

// select() for many caps on bytes, at the same prices and caps on time: scans all options once, then a few per
// table for each cap. Refers to the options.
class Choices {
 public:
  Choices(const Options& options, const Caps& caps);  // ignores the cap on bytes

  // Equal, to the last bit, to select() with the cap.
  Selection select(double bytes) const;

  // The smallest cap on the bytes of a shard, from `least` to `most`, with which the selection's totals are
  // within those allowed. Smaller shards balance better, but cost time and sometimes bytes. Caches totals.
  struct Totals {
    double ms = 0;
    double bytes = 0;
  };
  double smallest_cap(double least, double most, const Totals& allowed);

 private:
  struct Step {
    double bytes = 0;  // of the largest shard; 0 for an option that no cap forbids
    double total_ms = 0;
    double total_bytes = 0;
    const Option* option = nullptr;
  };
  struct Open {
    double value = 0;  // at the prices
    double bytes = 0;
    const Option* option = nullptr;
  };
  void append_steps(const std::vector<Open>& open);
  const Step* within(std::size_t table, double bytes) const;
  const Option& beyond(std::size_t table, double bytes) const;
  Totals totals(double bytes);

  const Options* options_;
  Caps caps_;
  std::vector<Step> steps_;  // by table: the cheapest first, then ever smaller ones
  std::vector<std::size_t> first_;
  std::vector<std::pair<double, Totals>> known_;  // by cap
};

}  // namespace plimsoll::estimator::sharder
