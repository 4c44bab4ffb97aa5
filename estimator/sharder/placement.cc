#include "estimator/sharder/placement.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace plimsoll::estimator::inline sharder {

namespace {

// An exchange must lower the fuller rank by this share of its load: smaller gains are rounding errors, and the
// loop might not end.
constexpr double kMinGain = 1e-9;
// Emptiest ranks that are tried first, and the most that are tried when none of these helps.
constexpr std::size_t kPartners = 16;
constexpr std::size_t kMaxPartners = 256;
// Shards tried on either side of the ideal one to take in return, when other limits forbid the ideal one.
constexpr std::int64_t kNeighbours = 4;
// Ranks or pieces that are scanned in the time of one unit of work.
constexpr std::size_t kScannedPerUnit = 128;

Bytes times(std::size_t count, std::size_t size) {
  return Bytes{static_cast<std::int64_t>(count)} * static_cast<std::int64_t>(size);
}

}  // namespace

Placement::Placement(std::int64_t ranks, std::size_t measures, Budget* budget)
    : budget_(budget),
      memory_(budget, times(static_cast<std::size_t>(ranks),
                            kMeasures * sizeof(double) + sizeof(std::vector<Piece>))),
      measures_(measures) {
  for (std::vector<double>& load : load_) {
    load.assign(static_cast<std::size_t>(ranks), 0.0);
  }
  pieces_.resize(static_cast<std::size_t>(ranks));
}

std::int32_t Placement::add_zone(std::vector<std::int64_t> ranks) {
  charge(budget_, pieces_.size() / kScannedPerUnit + ranks.size() + 1);
  memory_.resize(memory_.bytes() + times(ranks.size(), sizeof(std::int64_t)) + times(pieces_.size(), 1));
  std::vector<bool> holds(pieces_.size(), false);
  for (const std::int64_t rank : ranks) {
    holds[static_cast<std::size_t>(rank)] = true;
  }
  zones_.push_back(std::move(ranks));
  zone_holds_.push_back(std::move(holds));
  return static_cast<std::int32_t>(zones_.size()) - 1;
}

void Placement::add_everywhere(const Amount& amount) {
  charge(budget_, pieces_.size() / kScannedPerUnit + 1);
  for (std::size_t measure = 0; measure < measures_; ++measure) {
    for (double& load : load_[measure]) {
      load += amount[measure];
    }
  }
}

void Placement::add(std::int64_t rank, const Amount& amount) {
  for (std::size_t measure = 0; measure < measures_; ++measure) {
    load_[measure][static_cast<std::size_t>(rank)] += amount[measure];
  }
}

// The rank on which the highest measure is lowest with the piece; `shares` are loads in units.
std::size_t Placement::emptiest(const Piece& piece, const std::array<std::vector<double>, kMeasures>& shares,
                                const Amount& more) const {
  const double* time = shares[0].data();
  const double* memory = shares[1].data();
  const auto fullest = [&](std::size_t rank) {
    return std::max(time[rank] + more[0], memory[rank] + more[1]);
  };
  const auto fullest_of_all = [&](std::size_t rank) {
    double highest = fullest(rank);
    for (std::size_t measure = 2; measure < measures_; ++measure) {
      highest = std::max(highest, shares[measure][rank] + more[measure]);
    }
    return highest;
  };
  std::size_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  const auto consider_rank = [&](std::size_t rank, double highest) {
    if (highest < least) {
      least = highest;
      best = rank;
    }
  };
  if (piece.zone >= 0) {
    for (const std::int64_t rank : zones_[static_cast<std::size_t>(piece.zone)]) {
      consider_rank(static_cast<std::size_t>(rank), fullest_of_all(static_cast<std::size_t>(rank)));
    }
  } else if (measures_ == 2) {  // most requests; nearly all the time of a search is spent here
    for (std::size_t rank = 0; rank < pieces_.size(); ++rank) {
      consider_rank(rank, fullest(rank));
    }
  } else {
    for (std::size_t rank = 0; rank < pieces_.size(); ++rank) {
      consider_rank(rank, fullest_of_all(rank));
    }
  }
  return best;
}

void Placement::place(std::vector<Piece> pieces, const Amount& unit) {
  charge(budget_, pieces.size());
  // The placed pieces, whose lists have half as much spare capacity on average, and their order.
  memory_.resize(memory_.bytes() +
                 times(pieces.size(), 2 * sizeof(Piece) + sizeof(std::pair<double, std::size_t>)));
  std::array<std::vector<double>, kMeasures> shares;
  for (std::size_t measure = 0; measure < measures_; ++measure) {
    shares[measure] = load_[measure];
    for (double& share : shares[measure]) {
      share /= unit[measure];
    }
  }
  const auto size = [&](const Piece& piece) {
    double largest = 0;
    for (std::size_t measure = 0; measure < measures_; ++measure) {
      largest = std::max(largest, piece.amount[measure] / unit[measure]);
    }
    return largest;
  };
  std::vector<std::pair<double, std::size_t>> order;
  order.reserve(pieces.size());
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    order.emplace_back(-size(pieces[i]), i);
  }
  const auto has_zone = [&](std::size_t i) { return pieces[i].zone >= 0; };
  std::sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
    return has_zone(a.second) != has_zone(b.second) ? has_zone(a.second) : a < b;
  });
  effort_ += static_cast<std::int64_t>(pieces.size() * pieces_.size());
  for (const auto& [negative, index] : order) {
    charge(budget_, pieces_.size() / kScannedPerUnit + 1);
    const Piece& piece = pieces[index];
    Amount more{};
    for (std::size_t measure = 0; measure < measures_; ++measure) {
      more[measure] = piece.amount[measure] / unit[measure];
    }
    const std::size_t rank = emptiest(piece, shares, more);
    for (std::size_t measure = 0; measure < measures_; ++measure) {
      shares[measure][rank] += more[measure];
    }
    add(static_cast<std::int64_t>(rank), piece.amount);
    pieces_[rank].push_back(piece);
  }
}

void Placement::consider(std::size_t from, std::size_t to, const Goal& goal, Exchange* best) {
  const std::size_t main = goal.measure;
  const std::vector<Piece>& giver = pieces_[from];
  const std::vector<Piece>& taker = pieces_[to];
  const double high = load_[main][from];
  const double low = load_[main][to];
  const double half = (high - low) / 2;

  const auto within_limits = [&](const Piece& given, const Piece* back) {
    for (std::size_t other = 0; other < measures_; ++other) {
      const double swap = given.amount[other] - (back == nullptr ? 0 : back->amount[other]);
      if (other != main && ((swap < 0 && load_[other][from] - swap > goal.limits[other]) ||
                            (swap > 0 && load_[other][to] + swap > goal.limits[other]))) {
        return false;
      }
    }
    return may_hold(to, given) && (back == nullptr || may_hold(from, *back));
  };
  // False when the limits forbid an exchange that would be the best so far: then a neighbour may be the best.
  const auto offer = [&](std::size_t given, std::int64_t taken) {
    ++effort_;
    const Piece* back = taken < 0 ? nullptr : &taker[static_cast<std::size_t>(taken)];
    const double flow = giver[given].amount[main] - (back == nullptr ? 0 : back->amount[main]);
    const double highest = std::max(high - flow, low + flow);
    if (highest >= best->highest) {
      return true;
    }
    if (!within_limits(giver[given], back)) {
      return false;
    }
    *best = {.partner = to, .given = given, .taken = taken, .highest = highest};
    return true;
  };

  for (std::size_t given = giver.size(); given-- > 0 && best->highest > goal.target;) {
    const double value = giver[given].amount[main];
    if (value <= 0) {
      break;
    }
    charge(budget_, 1);
    if (value < 2 * half) {
      offer(given, -1);
    }
    // The shard taken in return should be smaller by half the difference between the two ranks. To either side
    // of that, exchanges get worse.
    const auto ideal =
        std::lower_bound(taker.begin(), taker.end(), value - half,
                         [&](const Piece& piece, double wanted) { return piece.amount[main] < wanted; });
    const std::int64_t middle = ideal - taker.begin();
    const std::int64_t first = std::max<std::int64_t>(0, middle - kNeighbours);
    const std::int64_t last =
        std::min<std::int64_t>(static_cast<std::int64_t>(taker.size()), middle + kNeighbours);
    for (std::int64_t taken = middle - 1; taken >= first && !offer(given, taken); --taken) {
    }
    for (std::int64_t taken = middle; taken < last && !offer(given, taken); ++taken) {
    }
  }
}

// The loads above which a rank counts as full. Where all ranks are nearly full: those above most.
Amount Placement::full(std::size_t main, const Amount& limits) const {
  constexpr double kShareOfLimit = 0.001;
  constexpr double kShareOfFree = 0.1;
  Amount full;
  full.fill(std::numeric_limits<double>::infinity());
  for (std::size_t other = 0; other < measures_; ++other) {
    if (other != main && limits[other] < full[other]) {
      const double mean = std::accumulate(load_[other].begin(), load_[other].end(), 0.0) /
                          static_cast<double>(pieces_.size());
      full[other] =
          limits[other] - std::min(limits[other] * kShareOfLimit, (limits[other] - mean) * kShareOfFree);
    }
  }
  return full;
}

void Placement::apply(std::size_t from, const Exchange& exchange, std::size_t measure) {
  const auto insert = [&](std::vector<Piece>& into, const Piece& piece) {
    into.insert(std::upper_bound(
                    into.begin(), into.end(), piece,
                    [&](const Piece& a, const Piece& b) { return a.amount[measure] < b.amount[measure]; }),
                piece);
  };
  const auto hand_over = [&](std::size_t giver, std::size_t taker, std::size_t index) {
    const Piece piece = pieces_[giver][index];
    pieces_[giver].erase(pieces_[giver].begin() + static_cast<std::ptrdiff_t>(index));
    for (std::size_t i = 0; i < measures_; ++i) {
      load_[i][giver] -= piece.amount[i];
      load_[i][taker] += piece.amount[i];
    }
    return piece;
  };
  charge(budget_, (pieces_[from].size() + pieces_[exchange.partner].size()) / kScannedPerUnit + 1);
  const Piece given = hand_over(from, exchange.partner, exchange.given);
  if (exchange.taken >= 0) {
    insert(pieces_[from], hand_over(exchange.partner, from, static_cast<std::size_t>(exchange.taken)));
  }
  insert(pieces_[exchange.partner], given);
}

void Placement::level(std::size_t measure, double target, const Amount& limits, std::int64_t steps) {
  const Goal goal{.measure = measure, .target = target, .limits = limits};
  if (highest(measure) <= target) {
    return;
  }
  for (std::vector<Piece>& held : pieces_) {
    charge(budget_, held.size() + 1);
    std::stable_sort(held.begin(), held.end(),
                     [&](const Piece& a, const Piece& b) { return a.amount[measure] < b.amount[measure]; });
  }
  const Amount full = this->full(measure, limits);
  // False for a rank whose other measures are full: it could only swap for a shard that is smaller in those.
  const auto can_take = [&](std::size_t rank) {
    bool free = true;
    for (std::size_t other = 0; other < measures_; ++other) {
      free = free && load_[other][rank] <= full[other];
    }
    return free;
  };
  const std::vector<double>& load = load_[measure];
  std::vector<std::size_t> order(load.size());  // emptiest first
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto emptier = [&](std::size_t a, std::size_t b) {
    return load[a] != load[b] ? load[a] < load[b] : a < b;
  };
  std::sort(order.begin(), order.end(), emptier);
  effort_ += 2 * static_cast<std::int64_t>(load.size());
  for (; steps > 0 && load[order.back()] > target; --steps) {
    charge(budget_, load.size() / kScannedPerUnit + 1);
    const std::size_t fullest = order.back();
    const double start = load[fullest] * (1 - kMinGain);
    Exchange best{.highest = start};
    std::size_t partners = 0;
    for (std::size_t i = 0; i + 1 < order.size() && best.highest > target && partners < kMaxPartners; ++i) {
      if (partners >= kPartners && best.highest < start) {
        break;
      }
      if (can_take(order[i])) {
        consider(fullest, order[i], goal, &best);
        ++partners;
      }
    }
    if (best.highest >= start) {
      return;
    }
    order.pop_back();
    order.erase(std::lower_bound(order.begin(), order.end(), best.partner, emptier));
    apply(fullest, best, measure);
    for (const std::size_t changed : {fullest, best.partner}) {
      order.insert(std::upper_bound(order.begin(), order.end(), changed, emptier), changed);
    }
    effort_ += static_cast<std::int64_t>(load.size()) / 16;
  }
}

}  // namespace plimsoll::estimator::sharder
