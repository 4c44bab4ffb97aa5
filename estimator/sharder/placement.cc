#include "estimator/sharder/placement.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace plimsoll::estimator {

namespace {

constexpr std::size_t kTime = static_cast<std::size_t>(Measure::kTime);
constexpr std::size_t kMemory = static_cast<std::size_t>(Measure::kMemory);

// An exchange must lower the fuller rank by this share of its load: smaller gains are rounding, and could go
// in circles.
constexpr double kLeastGain = 1e-9;
// Emptiest ranks that are tried first, before all others are.
constexpr std::size_t kPartners = 16;
// Shards tried on either side of the ideal one to take in return, when the other measure refuses it.
constexpr std::int64_t kNeighbours = 4;

double share(const Amount& amount, const Amount& unit) {
  return std::max(amount[kTime] / unit[kTime], amount[kMemory] / unit[kMemory]);
}

// The index that makes the fuller of both measures least; `time` and `memory` are loads in units.
std::size_t emptiest(const std::vector<double>& time, const std::vector<double>& memory, double more_time,
                     double more_memory) {
  std::size_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < time.size(); ++i) {
    const double fuller = std::max(time[i] + more_time, memory[i] + more_memory);
    if (fuller < least) {
      least = fuller;
      best = i;
    }
  }
  return best;
}

}  // namespace

Placement::Placement(std::int64_t ranks) {
  for (std::vector<double>& load : load_) {
    load.assign(static_cast<std::size_t>(ranks), 0.0);
  }
  pieces_.resize(static_cast<std::size_t>(ranks));
}

void Placement::add_everywhere(Amount amount) {
  for (std::size_t measure : {kTime, kMemory}) {
    for (double& load : load_[measure]) {
      load += amount[measure];
    }
  }
}

void Placement::add(std::int64_t rank, Amount amount) {
  load_[kTime][static_cast<std::size_t>(rank)] += amount[kTime];
  load_[kMemory][static_cast<std::size_t>(rank)] += amount[kMemory];
}

void Placement::place(std::vector<Piece> pieces, Amount unit) {
  std::vector<double> time(load_[kTime]);
  std::vector<double> memory(load_[kMemory]);
  for (double& load : time) {
    load /= unit[kTime];
  }
  for (double& load : memory) {
    load /= unit[kMemory];
  }
  std::stable_sort(pieces.begin(), pieces.end(), [&](const Piece& a, const Piece& b) {
    return share(a.amount, unit) > share(b.amount, unit);
  });
  effort_ += static_cast<std::int64_t>(pieces.size() * time.size());
  for (const Piece& piece : pieces) {
    const double more_time = piece.amount[kTime] / unit[kTime];
    const double more_memory = piece.amount[kMemory] / unit[kMemory];
    const std::size_t rank = emptiest(time, memory, more_time, more_memory);
    time[rank] += more_time;
    memory[rank] += more_memory;
    add(static_cast<std::int64_t>(rank), piece.amount);
    pieces_[rank].push_back(piece);
  }
}

void Placement::consider(std::size_t from, std::size_t to, Measure measure, double other_limit, double target,
                         Exchange* best) {
  const std::size_t main = static_cast<std::size_t>(measure);
  const std::size_t other = 1 - main;
  const std::vector<Piece>& giver = pieces_[from];
  const std::vector<Piece>& taker = pieces_[to];
  const double high = load_[main][from];
  const double low = load_[main][to];
  const double half = (high - low) / 2;

  const auto offer = [&](std::size_t given, std::int64_t taken) {
    ++effort_;
    const Piece* back = taken < 0 ? nullptr : &taker[static_cast<std::size_t>(taken)];
    const double flow = giver[given].amount[main] - (back == nullptr ? 0 : back->amount[main]);
    const double highest = std::max(high - flow, low + flow);
    if (highest >= best->highest) {
      return;
    }
    const double swap = giver[given].amount[other] - (back == nullptr ? 0 : back->amount[other]);
    if ((swap < 0 && load_[other][from] - swap > other_limit) ||
        (swap > 0 && load_[other][to] + swap > other_limit)) {
      return;
    }
    *best = {.partner = to, .given = given, .taken = taken, .highest = highest};
  };

  for (std::size_t given = giver.size(); given-- > 0 && best->highest > target;) {
    const double value = giver[given].amount[main];
    if (value <= 0) {
      break;
    }
    if (value < 2 * half) {
      offer(given, -1);
    }
    // What comes back should be smaller by half the difference between the two ranks.
    const auto ideal =
        std::lower_bound(taker.begin(), taker.end(), value - half,
                         [&](const Piece& piece, double wanted) { return piece.amount[main] < wanted; });
    const std::int64_t middle = ideal - taker.begin();
    const std::int64_t first = std::max<std::int64_t>(0, middle - kNeighbours);
    const std::int64_t last =
        std::min<std::int64_t>(static_cast<std::int64_t>(taker.size()), middle + kNeighbours);
    for (std::int64_t taken = first; taken < last; ++taken) {
      offer(given, taken);
    }
  }
}

void Placement::apply(std::size_t from, const Exchange& exchange, Measure measure) {
  const std::size_t main = static_cast<std::size_t>(measure);
  const auto insert = [&](std::vector<Piece>& into, const Piece& piece) {
    into.insert(
        std::upper_bound(into.begin(), into.end(), piece,
                         [&](const Piece& a, const Piece& b) { return a.amount[main] < b.amount[main]; }),
        piece);
  };
  const auto hand_over = [&](std::size_t giver, std::size_t taker, std::size_t index) {
    const Piece piece = pieces_[giver][index];
    pieces_[giver].erase(pieces_[giver].begin() + static_cast<std::ptrdiff_t>(index));
    for (std::size_t i : {kTime, kMemory}) {
      load_[i][giver] -= piece.amount[i];
      load_[i][taker] += piece.amount[i];
    }
    return piece;
  };
  const Piece given = hand_over(from, exchange.partner, exchange.given);
  if (exchange.taken >= 0) {
    insert(pieces_[from], hand_over(exchange.partner, from, static_cast<std::size_t>(exchange.taken)));
  }
  insert(pieces_[exchange.partner], given);
}

void Placement::level(Measure measure, double target, double other_limit, std::int64_t steps) {
  const std::size_t main = static_cast<std::size_t>(measure);
  for (std::vector<Piece>& held : pieces_) {
    std::stable_sort(held.begin(), held.end(),
                     [&](const Piece& a, const Piece& b) { return a.amount[main] < b.amount[main]; });
  }
  const std::vector<double>& load = load_[main];
  std::vector<std::size_t> order(load.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto emptier = [&](std::size_t a, std::size_t b) {
    return load[a] != load[b] ? load[a] < load[b] : a < b;
  };
  const std::size_t first = std::min(kPartners, order.size());
  for (; steps > 0; --steps) {
    const std::size_t fullest =
        static_cast<std::size_t>(std::max_element(load.begin(), load.end()) - load.begin());
    if (load[fullest] <= target) {
      return;
    }
    const double start = load[fullest] * (1 - kLeastGain);
    effort_ += 2 * static_cast<std::int64_t>(load.size());
    Exchange best{.highest = start};
    std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(first - 1), order.end(),
                     emptier);
    std::sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(first), emptier);
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (best.highest <= target || (i >= first && best.highest < start)) {
        break;
      }
      if (i == first) {
        std::sort(order.begin() + static_cast<std::ptrdiff_t>(first), order.end(), emptier);
      }
      if (order[i] != fullest) {
        consider(fullest, order[i], measure, other_limit, target, &best);
      }
    }
    if (best.highest >= start) {
      return;
    }
    apply(fullest, best, measure);
  }
}

double Placement::highest(Measure measure) const {
  const std::vector<double>& load = load_[static_cast<std::size_t>(measure)];
  return *std::max_element(load.begin(), load.end());
}

std::int64_t Placement::fullest(Measure measure) const {
  const std::vector<double>& load = load_[static_cast<std::size_t>(measure)];
  return std::max_element(load.begin(), load.end()) - load.begin();
}

}  // namespace plimsoll::estimator
