#include "estimator/ledger/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plimsoll::estimator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::int64_t kGranule = 512;

TEST(Ledger, RemembersItsEvents) {
  Ledger ledger(kGranule);
  const BlockId weight = ledger.allocate(Part::kParameters, 1000_B);
  EXPECT_EQ(ledger.begin_of_iteration(), 1U);  // no phase yet: all events are before the iteration
  ledger.enter(Phase::kForward);
  const BlockId out = ledger.allocate(Part::kActivations, 100_B, 3, kCommunicationStream);
  ledger.enter(Phase::kBackward);
  ledger.release(out);
  ledger.enter(Phase::kOptimizerStep);
  const BlockId temporary = ledger.allocate(Part::kTemporaries, 512_B);
  EXPECT_EQ(ledger.begin_of_iteration(), 1U);
  EXPECT_EQ(ledger.begin_of(Phase::kBackward), 2U);
  EXPECT_EQ(ledger.begin_of(Phase::kOptimizerStep), 3U);
  ASSERT_EQ(ledger.events().size(), 4U);
  EXPECT_EQ(ledger.events()[2].kind, MemoryEvent::Kind::kRelease);
  EXPECT_EQ(ledger.blocks()[1].bytes, 1536_B);
  EXPECT_EQ(ledger.blocks()[1].bytes_of_one, 100_B);
  EXPECT_EQ(ledger.peak(), 2560_B);
  EXPECT_EQ(ledger.live_at_peak(), (std::vector<BlockId>{weight, out}));
  EXPECT_EQ(ledger.live(), 1024_B + 512_B);
  EXPECT_EQ(temporary, 2);
}

// The events of an iteration, with a gradient of this size.
Ledger with_gradient(Bytes gradient, BlockId& block) {
  Ledger ledger(kGranule);
  ledger.allocate(Part::kParameters, 1000_B);
  ledger.enter(Phase::kForward);
  const BlockId out = ledger.allocate(Part::kActivations, 5000_B);
  ledger.enter(Phase::kBackward);
  const BlockId temporary = ledger.allocate(Part::kTemporaries, 700_B);
  ledger.release(out);
  ledger.enter_late_backward();
  block = ledger.allocate(Part::kGradients, gradient, 2);
  ledger.release(temporary);
  ledger.enter(Phase::kOptimizerStep);
  ledger.allocate(Part::kTemporaries, 3000_B);
  return ledger;
}

TEST(Ledger, AResizedBlockGivesTheSumsOfALedgerThatHadItSo) {
  for (const Bytes gradient : {0_B, 1_B, 2000_B, 9000_B, 100'000_B}) {
    BlockId block = -1;
    Ledger resized = with_gradient(4000_B, block);
    resized.resize(block, gradient);
    resized.recount();
    const Ledger expected = with_gradient(gradient, block);
    EXPECT_EQ(resized.live(), expected.live());
    EXPECT_EQ(resized.peak_phase(), expected.peak_phase());
    EXPECT_EQ(resized.live_at_peak(), expected.live_at_peak());
    for (const Section section :
         {Section::kForward, Section::kEarlyBackward, Section::kLateBackward, Section::kOptimizerStep}) {
      EXPECT_EQ(resized.peak_of(section).live, expected.peak_of(section).live);
      EXPECT_EQ(resized.peak_of(section).parts, expected.peak_of(section).parts);
      EXPECT_EQ(resized.peak_of(section).events, expected.peak_of(section).events);
    }
  }
}

TEST(Ledger, EachOfEqualBlocksIsRoundedUp) {
  Ledger ledger(kGranule);
  ledger.allocate(Part::kParameters, 513_B, 3);
  EXPECT_EQ(ledger.live(), 3 * 1024_B);
  ledger.allocate(Part::kParameters, 0_B);
  EXPECT_EQ(ledger.live(), 3 * 1024_B) << "an empty tensor has no granule";
  Ledger exact(1);
  exact.allocate(Part::kParameters, 513_B, 3);
  EXPECT_EQ(exact.live(), 3 * 513_B);
}

TEST(Ledger, ThePeakIsDividedIntoItsParts) {
  Ledger ledger(1);
  ledger.allocate(Part::kParameters, 100_B);
  ledger.enter(Phase::kForward);
  const BlockId out = ledger.allocate(Part::kActivations, 50_B);
  ledger.enter(Phase::kBackward);
  ledger.allocate(Part::kGradients, 30_B);
  ledger.release(out);
  ledger.enter(Phase::kOptimizerStep);
  ledger.allocate(Part::kOptimizerState, 10_B);
  EXPECT_EQ(ledger.peak(), 180_B);
  EXPECT_EQ(ledger.peak_phase(), Phase::kBackward);
  Bytes sum;
  for (const auto& [part, bytes] :
       {std::pair(Part::kParameters, 100_B), std::pair(Part::kActivations, 50_B),
        std::pair(Part::kGradients, 30_B), std::pair(Part::kOptimizerState, Bytes{})}) {
    EXPECT_EQ(ledger.at_peak(part), bytes) << kind_of(part);
    sum += bytes;
  }
  EXPECT_EQ(sum, ledger.peak());
  EXPECT_EQ(ledger.live(), 140_B);
}

TEST(Ledger, OfEqualPeaksTheFirstIsReported) {
  Ledger ledger(1);
  for (const Phase phase : {Phase::kForward, Phase::kBackward, Phase::kOptimizerStep}) {
    ledger.enter(phase);
    ledger.release(ledger.allocate(Part::kTemporaries, 64_B));
  }
  EXPECT_EQ(ledger.peak_phase(), Phase::kForward);
  EXPECT_EQ(ledger.peak_moment().events, 1U);
  EXPECT_THAT(ledger.live_at_peak(), ElementsAre(0));
}

TEST(Ledger, SectionsHavePeaksOfTheirOwn) {
  Ledger ledger(1);
  const auto touch = [&](Bytes bytes) { ledger.release(ledger.allocate(Part::kTemporaries, bytes)); };
  ledger.enter(Phase::kForward);
  touch(1_B);
  ledger.enter(Phase::kBackward);
  touch(2_B);
  ledger.enter_late_backward();
  touch(3_B);
  ledger.enter(Phase::kOptimizerStep);
  touch(4_B);
  // With several micro-batches, forward follows backward; the second forward's peak is higher.
  ledger.enter(Phase::kForward);
  touch(5_B);
  ledger.enter(Phase::kBackward);
  touch(2_B);
  EXPECT_EQ(ledger.peak_of(Section::kForward).live, 5_B);
  EXPECT_EQ(ledger.peak_of(Section::kEarlyBackward).live, 2_B);
  EXPECT_EQ(ledger.peak_of(Section::kLateBackward).live, 3_B);
  EXPECT_EQ(ledger.peak_of(Section::kOptimizerStep).live, 4_B);
  EXPECT_EQ(ledger.peak(), 5_B);
  EXPECT_EQ(ledger.begin_of(Phase::kForward), 0U) << "the first time";
}

TEST(Ledger, TheLargestAtThePeakComeFirst) {
  Ledger ledger(1);
  ledger.allocate(Part::kParameters, 5_B);
  const BlockId freed = ledger.allocate(Part::kInputs, 90_B);
  ledger.release(freed);
  ledger.allocate(Part::kActivations, 7_B);
  ledger.allocate(Part::kActivations, 99_B);
  ledger.allocate(Part::kActivations, 7_B);
  EXPECT_THAT(ledger.live_at_peak(), ElementsAre(0, 2, 3, 4));
  EXPECT_THAT(ledger.largest_at_peak(3), ElementsAre(3, 2, 4)) << "equal ones in the order of allocation";
  EXPECT_THAT(ledger.largest_at_peak(100), ElementsAre(3, 2, 4, 0));
  EXPECT_THAT(ledger.largest_at_peak(0), IsEmpty());
  EXPECT_THAT(Ledger(1).largest_at_peak(3), IsEmpty());
}

TEST(Ledger, StreamsAreEventsAndNoMemory) {
  Ledger ledger(1);
  const BlockId block = ledger.allocate(Part::kTemporaries, 8_B, 1, kCommunicationStream);
  ledger.use(block, kComputeStream);
  ledger.release(block);
  ledger.synchronize(kComputeStream);
  std::vector<std::pair<MemoryEvent::Kind, int>> events;
  for (const MemoryEvent& event : ledger.events()) {
    events.emplace_back(event.kind, event.stream);
  }
  using Kind = MemoryEvent::Kind;
  EXPECT_THAT(events, ElementsAre(std::pair(Kind::kAllocate, 1), std::pair(Kind::kUse, 0),
                                  std::pair(Kind::kRelease, 1), std::pair(Kind::kSynchronize, 0)));
  EXPECT_EQ(ledger.peak(), 8_B);
}

TEST(Ledger, OnlyAWorkspaceIsDispensable) {
  Ledger ledger(1);
  const BlockId needed = ledger.allocate(Part::kActivations, 8_B);
  EXPECT_FALSE(ledger.has_dispensable());
  const BlockId workspace = ledger.allocate_dispensable(Part::kTemporaries, 16_B);
  EXPECT_TRUE(ledger.has_dispensable());
  EXPECT_FALSE(ledger.blocks()[static_cast<std::size_t>(needed)].dispensable);
  EXPECT_TRUE(ledger.blocks()[static_cast<std::size_t>(workspace)].dispensable);
}

TEST(Ledger, AbsurdSizesSaturate) {
  Ledger ledger(kGranule);
  ledger.allocate(Part::kActivations, Bytes::max(), 1000);
  ledger.allocate(Part::kActivations, Bytes::max());
  EXPECT_EQ(ledger.peak(), Bytes::max());
}

TEST(Ledger, EventsAreTakenFromTheBudget) {
  Budget budget({.memory = 64_KiB});
  const Result<int> result = budget.run([&]() -> Result<int> {
    Ledger ledger(1, &budget);
    for (int i = 0; i < 1'000'000; ++i) {
      ledger.release(ledger.allocate(Part::kTemporaries, 1_B));
    }
    return 0;
  });
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kTooLarge);
  EXPECT_LE(budget.most_held(), 64_KiB);
}

}  // namespace
}  // namespace plimsoll::estimator
