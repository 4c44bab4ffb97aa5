// Which option each table takes, before any shard has a place.
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

// What a byte is worth, in milliseconds.
struct Prices {
  double card = 0;
  double host = 0;

  double of(const Option& option) const {
    return option.total_ms + card * option.total_bytes + host * option.total_host;
  }
};

// What no single shard should exceed (above 0), and prices.
struct Caps {
  double ms = std::numeric_limits<double>::infinity();
  double bytes = std::numeric_limits<double>::infinity();
  double compute_ms = std::numeric_limits<double>::infinity();
  Prices prices = {};

  // Work that is everywhere is level already, however much it is.
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

// The cheapest option within the caps; where a table has none, the one that exceeds them least.
Selection select(const Options& options, const Caps& caps);

// How the fastest selection within the caps is made to take fewer bytes of cards' memory: one table after the
// other turns to a smaller option, first those that save a byte at the lowest price of time. This is the
// greedy solution of the relaxed multiple-choice knapsack problem (Sinha and Zoltners 1979): no selection of
// as few bytes is faster, but for the last table turned. The caps' price of card memory plays no role. Refers
// to the options.
class Savings {
 public:
  Savings(const Options& options, const Caps& caps);

  // None where the smallest options take more.
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

// What `select` chooses at the same prices and caps on time, whatever the cap on bytes: looks at all options
// once, then at few of them a table for each cap that is asked for. Refers to the options.
class Choices {
 public:
  Choices(const Options& options, const Caps& caps);  // its cap on bytes plays no role

  // Equal, to the last bit, to select() with the cap.
  Selection select(double bytes) const;

  // The smallest cap on the bytes of a shard, not below `least`, that keeps the selection's totals within
  // those allowed; smaller shards balance better, and cost time, and some of them bytes. Totals are kept for
  // the next question.
  struct Totals {
    double ms = 0;
    double bytes = 0;
  };
  double smallest_cap(double least, double most, const Totals& allowed);

 private:
  struct Step {
    double bytes = 0;  // of the largest shard; 0 where no cap forbids the option
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
