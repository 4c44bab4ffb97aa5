// Which option each table takes, before any shard has a place.
//
//   Selection chosen = select(options, Caps{.ms = bound.milliseconds, .bytes = cap, .prices = bound.prices});
//
// Pure functions; any thread; a Selection refers to the options, which must outlive it.
#pragma once

#include <limits>
#include <vector>

#include "estimator/sharder/options.h"

namespace plimsoll::estimator {

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

// The smallest cap on the bytes of a shard, not below `least`, that keeps the selection's totals within those
// allowed; smaller shards balance better, and cost time, and some of them bytes.
struct Allowed {
  double ms = 0;
  double bytes = 0;
};
double smallest_cap(const Options& options, Caps caps, double least, double most, const Allowed& allowed);

}  // namespace plimsoll::estimator
