// Where the simulator's events go: EventClock computes each one's time at once, which fixed shares of the links allow; EventGraph
// keeps them all, and then runs them with transfers that share links. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/budget.h"
#include "estimator/swap/machine.h"
#include "estimator/swap/simulator.h"

namespace plimsoll::estimator::inline swap {

// An event before its time is known. Of a transfer `bytes`, else `seconds`.
struct SwapEventToRun {
  SwapAction action = SwapAction::kWeights;
  SwapStream stream = SwapStream::kIn;
  std::int32_t gpu = 0;
  std::int32_t peer = -1;  // kP2POut: the GPU that takes it, on its stream kP2PIn
  std::int32_t task = 0;
  std::int32_t microbatch = 0;
  double seconds = 0;
  double bytes = 0;
};

inline std::size_t lane_of(std::int32_t gpu, SwapStream stream) {
  return static_cast<std::size_t>(gpu) * kSwapStreams + static_cast<std::size_t>(stream);
}
constexpr bool is_swap(SwapStream stream) {
  return stream == SwapStream::kIn || stream == SwapStream::kOut;
}

class EventClock {
 public:
  using Event = double;  // when it ends
  static constexpr Event kNone = 0;

  EventClock(std::int64_t gpus, const SwapMachine& machine, std::vector<SwapEvent>* timeline);
  // After all of `after`, and what its stream had before.
  Event run(const SwapEventToRun& event, const std::array<Event, 4>& after);
  double finish(Budget*) const { return end_; }

 private:
  std::vector<double> free_at_;  // of each stream of each GPU
  std::vector<SwapEvent>* timeline_;
  double seconds_per_swapped_byte_;
  double seconds_per_p2p_byte_;
  double end_ = 0;
};

class EventGraph {
 public:
  using Event = std::int32_t;
  static constexpr Event kNone = -1;

  EventGraph(std::int64_t gpus, const SwapMachine& machine, std::vector<SwapEvent>* timeline);
  Event run(const SwapEventToRun& event, const std::array<Event, 4>& after);
  double finish(Budget* budget);

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();
  struct Node {
    SwapEventToRun event;
    std::int32_t waits_for = 0;
    std::int32_t first_follower = -1;  // in followers_
    double begin = 0;
  };
  struct Follower {
    Event event = kNone;
    std::int32_t next = -1;
  };
  struct Lane {
    std::vector<Event> queue;
    std::size_t next = 0;  // in queue
    bool busy = false;
  };
  // Transfers that share a link get equal parts of it. `level`: bytes that each of those that always transferred has moved.
  struct Link {
    double level = 0;
    double at = 0;                                 // when `level` was true
    std::vector<std::pair<double, Event>> active;  // the level at which each ends
  };

  Link& link_of(const SwapEventToRun& event);
  double next_end(const Link& link) const;
  void advance(Link& link, double now) const;
  void start_what_can(std::size_t lane, double now);
  bool can_start(Event event) const;
  void end(Event event, double now);

  std::int64_t gpus_;
  const SwapMachine& machine_;
  std::vector<SwapEvent>* timeline_;
  std::vector<Node> nodes_;
  std::vector<Follower> followers_;
  std::vector<Lane> lanes_;
  std::vector<Link> links_;
  std::vector<std::pair<double, Event>> timed_;  // a heap of those with a known end
  std::vector<std::size_t> ready_lanes_;
};

}  // namespace plimsoll::estimator::swap
