#include "estimator/swap/event_sink.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace plimsoll::estimator::inline swap {
namespace {

std::int64_t gpus_of_a_root(std::int64_t gpus, const SwapMachine& machine) {
  return machine.gpus_per_root == 0 ? gpus : std::min(machine.gpus_per_root, gpus);
}

void note(std::vector<SwapEvent>* timeline, const SwapEventToRun& event, double begin, double end) {
  if (timeline == nullptr) {
    return;
  }
  SwapEvent done{.action = event.action,
                 .stream = event.stream,
                 .gpu = event.gpu,
                 .task = event.task,
                 .microbatch = event.microbatch,
                 .begin = begin,
                 .end = end};
  timeline->push_back(done);
  if (event.stream == SwapStream::kP2POut) {
    done.stream = SwapStream::kP2PIn;
    done.gpu = event.peer;
    timeline->push_back(done);
  }
}

}  // namespace

EventClock::EventClock(std::int64_t gpus, const SwapMachine& machine, std::vector<SwapEvent>* timeline)
    : free_at_(static_cast<std::size_t>(gpus) * kSwapStreams),
      timeline_(timeline),
      seconds_per_swapped_byte_(static_cast<double>(gpus_of_a_root(gpus, machine)) / machine.host_bandwidth),
      seconds_per_p2p_byte_(machine.p2p_bandwidth > 0 ? 1 / machine.p2p_bandwidth : 0) {}

EventClock::Event EventClock::run(const SwapEventToRun& event, const std::array<Event, 4>& after) {
  double begin = std::max(std::max(after[0], after[1]), std::max(after[2], after[3]));
  double& lane = free_at_[lane_of(event.gpu, event.stream)];
  begin = std::max(begin, lane);
  double seconds = event.seconds;
  if (is_swap(event.stream)) {
    seconds = event.bytes * seconds_per_swapped_byte_;
  } else if (event.stream == SwapStream::kP2POut) {
    seconds = event.bytes * seconds_per_p2p_byte_;
    double& taker = free_at_[lane_of(event.peer, SwapStream::kP2PIn)];
    begin = std::max(begin, taker);
    taker = begin + seconds;
  }
  const double end = begin + seconds;
  lane = end;
  end_ = std::max(end_, end);
  note(timeline_, event, begin, end);
  return end;
}

EventGraph::EventGraph(std::int64_t gpus, const SwapMachine& machine, std::vector<SwapEvent>* timeline)
    : gpus_(gpus), machine_(machine), timeline_(timeline) {
  const std::int64_t of_a_root = gpus_of_a_root(gpus, machine);
  lanes_.resize(static_cast<std::size_t>(gpus) * kSwapStreams);
  links_.resize(static_cast<std::size_t>((gpus + of_a_root - 1) / of_a_root) * 2);
}

EventGraph::Event EventGraph::run(const SwapEventToRun& event, const std::array<Event, 4>& after) {
  const auto id = static_cast<Event>(nodes_.size());
  Node node{.event = event};
  for (std::size_t i = 0; i < after.size(); ++i) {
    if (after[i] == kNone) {
      continue;
    }
    ++node.waits_for;
    Node& before = nodes_[static_cast<std::size_t>(after[i])];
    followers_.push_back({.event = id, .next = before.first_follower});
    before.first_follower = static_cast<std::int32_t>(followers_.size() - 1);
  }
  nodes_.push_back(node);
  lanes_[lane_of(event.gpu, event.stream)].queue.push_back(id);
  if (event.stream == SwapStream::kP2POut) {
    lanes_[lane_of(event.peer, SwapStream::kP2PIn)].queue.push_back(id);
  }
  return id;
}

EventGraph::Link& EventGraph::link_of(const SwapEventToRun& event) {
  const auto root = static_cast<std::size_t>(event.gpu / gpus_of_a_root(gpus_, machine_));
  return links_[2 * root + (event.stream == SwapStream::kIn ? 0 : 1)];
}

double EventGraph::next_end(const Link& link) const {
  if (link.active.empty()) {
    return kNever;
  }
  const double share = machine_.host_bandwidth / static_cast<double>(link.active.size());
  return link.at + std::max(0.0, link.active.front().first - link.level) / share;
}

void EventGraph::advance(Link& link, double now) const {
  if (!link.active.empty()) {
    link.level += (now - link.at) * machine_.host_bandwidth / static_cast<double>(link.active.size());
  }
  link.at = now;
}

bool EventGraph::can_start(Event event) const {
  const Node& node = nodes_[static_cast<std::size_t>(event)];
  if (node.waits_for > 0) {
    return false;
  }
  const auto is_head = [&](const Lane& lane) {
    return !lane.busy && lane.next < lane.queue.size() && lane.queue[lane.next] == event;
  };
  return is_head(lanes_[lane_of(node.event.gpu, node.event.stream)]) &&
         (node.event.stream != SwapStream::kP2POut ||
          is_head(lanes_[lane_of(node.event.peer, SwapStream::kP2PIn)]));
}

void EventGraph::start_what_can(std::size_t index, double now) {
  const Lane& lane = lanes_[index];
  if (lane.busy || lane.next == lane.queue.size() || !can_start(lane.queue[lane.next])) {
    return;
  }
  const Event event = lane.queue[lane.next];
  Node& node = nodes_[static_cast<std::size_t>(event)];
  node.begin = now;
  lanes_[lane_of(node.event.gpu, node.event.stream)].busy = true;
  double seconds = node.event.seconds;
  if (node.event.stream == SwapStream::kP2POut) {
    lanes_[lane_of(node.event.peer, SwapStream::kP2PIn)].busy = true;
    seconds = node.event.bytes / machine_.p2p_bandwidth;
  }
  if (is_swap(node.event.stream)) {
    Link& link = link_of(node.event);
    advance(link, now);
    link.active.emplace_back(link.level + node.event.bytes, event);
    std::sort(link.active.begin(), link.active.end());
  } else {
    timed_.emplace_back(now + seconds, event);
    std::push_heap(timed_.begin(), timed_.end(), std::greater<>());
  }
}

void EventGraph::end(Event event, double now) {
  const Node& node = nodes_[static_cast<std::size_t>(event)];
  const auto leave = [&](std::size_t index) {
    lanes_[index].busy = false;
    ++lanes_[index].next;
    ready_lanes_.push_back(index);
  };
  leave(lane_of(node.event.gpu, node.event.stream));
  if (node.event.stream == SwapStream::kP2POut) {
    leave(lane_of(node.event.peer, SwapStream::kP2PIn));
  }
  for (std::int32_t i = node.first_follower; i >= 0; i = followers_[static_cast<std::size_t>(i)].next) {
    Node& after = nodes_[static_cast<std::size_t>(followers_[static_cast<std::size_t>(i)].event)];
    if (--after.waits_for == 0) {
      ready_lanes_.push_back(lane_of(after.event.gpu, after.event.stream));
    }
  }
  note(timeline_, node.event, node.begin, now);
}

double EventGraph::finish(Budget* budget) {
  double now = 0;
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
    start_what_can(lane, now);
  }
  for (std::size_t done = 0; done < nodes_.size(); ++done) {
    charge(budget, 1);
    Link* link = nullptr;
    double at = timed_.empty() ? kNever : timed_.front().first;
    for (Link& each : links_) {
      if (const double end = next_end(each); end < at) {
        at = end;
        link = &each;
      }
    }
    now = at;
    Event event = kNone;
    if (link != nullptr) {
      advance(*link, now);
      event = link->active.front().second;
      link->level = std::max(link->level, link->active.front().first);
      link->active.erase(link->active.begin());
    } else {
      event = timed_.front().second;
      std::pop_heap(timed_.begin(), timed_.end(), std::greater<>());
      timed_.pop_back();
    }
    end(event, now);
    for (std::size_t i = 0; i < ready_lanes_.size(); ++i) {
      start_what_can(ready_lanes_[i], now);
    }
    ready_lanes_.clear();
  }
  return now;
}

}  // namespace plimsoll::estimator::swap
