#include "estimator/swap/event_sink.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/testing/random_seed.h"

namespace plimsoll::estimator {
namespace {

constexpr std::array<EventGraph::Event, 4> kAtOnce{-1, -1, -1, -1};

SwapMachine machine_with(double host_bandwidth) {
  SwapMachine machine;
  machine.host_bandwidth = host_bandwidth;
  machine.p2p_bandwidth = 50;
  return machine;
}

SwapEventToRun transfer(std::int32_t gpu, double bytes, SwapStream stream = SwapStream::kIn) {
  return {.stream = stream, .gpu = gpu, .bytes = bytes};
}

double end_of(const std::vector<SwapEvent>& timeline, std::int32_t gpu) {
  double end = 0;
  for (const SwapEvent& event : timeline) {
    end = event.gpu == gpu ? std::max(end, event.end) : end;
  }
  return end;
}

TEST(EventGraph, TransfersOfARootShareItsBandwidth) {
  const SwapMachine machine = machine_with(100);
  std::vector<SwapEvent> timeline;
  EventGraph graph(2, machine, &timeline);
  graph.run(transfer(0, 100), kAtOnce);
  graph.run(transfer(1, 300), kAtOnce);
  EXPECT_DOUBLE_EQ(graph.finish(nullptr), 4);
  EXPECT_DOUBLE_EQ(end_of(timeline, 0), 2) << "with half of the link";
  EXPECT_DOUBLE_EQ(end_of(timeline, 1), 4) << "200 bytes are left, alone";
}

TEST(EventGraph, RootsAndDirectionsAreLinksOfTheirOwn) {
  SwapMachine machine = machine_with(100);
  machine.gpus_per_root = 1;
  EventGraph roots(2, machine, nullptr);
  roots.run(transfer(0, 100), kAtOnce);
  roots.run(transfer(1, 100), kAtOnce);
  EXPECT_DOUBLE_EQ(roots.finish(nullptr), 1);
  machine.gpus_per_root = 0;
  EventGraph directions(2, machine, nullptr);
  directions.run(transfer(0, 100), kAtOnce);
  directions.run(transfer(1, 100, SwapStream::kOut), kAtOnce);
  EXPECT_DOUBLE_EQ(directions.finish(nullptr), 1);
}

TEST(EventGraph, AHandOverNeedsTheStreamsOfBothGpus) {
  const SwapMachine machine = machine_with(100);
  EventGraph graph(3, machine, nullptr);
  const SwapEventToRun first{.stream = SwapStream::kP2POut, .gpu = 0, .peer = 2, .bytes = 50};
  const SwapEventToRun second{.stream = SwapStream::kP2POut, .gpu = 1, .peer = 2, .bytes = 50};
  graph.run(first, kAtOnce);
  graph.run(second, kAtOnce);
  EXPECT_DOUBLE_EQ(graph.finish(nullptr), 2) << "GPU 2 takes one at a time";
}

TEST(EventClock, GivesEachGpuItsShareAtAllTimes) {
  const SwapMachine machine = machine_with(100);
  EventClock clock(2, machine, nullptr);
  EXPECT_DOUBLE_EQ(clock.run(transfer(0, 100), {}), 2);
  EXPECT_DOUBLE_EQ(clock.run(transfer(0, 100), {}), 4) << "streams run in order";
  EXPECT_DOUBLE_EQ(clock.run({.stream = SwapStream::kCompute, .gpu = 0, .seconds = 1}, {2, 0, 0, 0}), 3);
  EXPECT_DOUBLE_EQ(clock.finish(nullptr), 4);
}

// Of one GPU nothing is shared, and both must say the same.
TEST(EventGraph, AgreesWithTheClockWhereNothingIsShared) {
  const auto seed = plimsoll::testing::random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const SwapMachine machine = machine_with(100);
  for (int round = 0; round < 200; ++round) {
    EventClock clock(1, machine, nullptr);
    EventGraph graph(1, machine, nullptr);
    std::vector<double> ends;
    for (int i = 0; i < 60; ++i) {
      SwapEventToRun event{.stream = std::array{SwapStream::kIn, SwapStream::kOut, SwapStream::kCompute,
                                                SwapStream::kHost}[random() % 4]};
      const double size = static_cast<double>(random() % 100);
      (is_swap(event.stream) ? event.bytes : event.seconds) = size;
      std::array<double, 4> after_clock{};
      std::array<EventGraph::Event, 4> after_graph = kAtOnce;
      for (std::size_t k = 0; k < 3 && i > 0; ++k) {
        const auto before = static_cast<std::int32_t>(random() % static_cast<std::size_t>(i));
        after_clock[k] = ends[static_cast<std::size_t>(before)];
        after_graph[k] = before;
      }
      ends.push_back(clock.run(event, after_clock));
      graph.run(event, after_graph);
    }
    EXPECT_NEAR(graph.finish(nullptr), clock.finish(nullptr), 1e-9);
  }
}

}  // namespace
}  // namespace plimsoll::estimator
