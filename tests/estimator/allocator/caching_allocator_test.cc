// Expected figures follow from the rules in c10/cuda/CUDACachingAllocator.cpp and from PyTorch's note "CUDA
// semantics: memory management", worked out by hand.
#include "estimator/allocator/caching_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/testing/random_seed.h"

namespace plimsoll::estimator {
namespace {

using Device = CachingAllocator::Device;
using Handle = CachingAllocator::Handle;

CachingAllocator allocator_with(const std::string& settings, Bytes available = Bytes::max()) {
  const Result<AllocatorSettings> parsed = parse_allocator_settings(settings);
  EXPECT_TRUE(parsed.ok()) << settings;
  return CachingAllocator(*parsed, {.available = available, .total = available});
}

Handle take(CachingAllocator& allocator, Bytes bytes, StreamId stream = kComputeStream) {
  const std::optional<Handle> handle = allocator.allocate(bytes, stream);
  EXPECT_TRUE(handle.has_value()) << to_string(bytes);
  return handle.value_or(0);
}

std::string problem(const CachingAllocator& allocator) {
  std::int64_t allocated = 0;
  std::int64_t reserved = 0;
  std::int64_t end = 0;
  for (const CachingAllocator::View& block : allocator.snapshot()) {
    if (block.size <= 0 || block.size % 512 != 0 || block.address % 512 != 0) {
      return "a block that is no multiple of 512 bytes";
    }
    if (block.address < end) {
      return "two blocks overlap";
    }
    end = block.address + block.size;
    reserved += block.mapped ? block.size : 0;
    allocated += block.allocated ? block.size : 0;
    if (block.allocated && !block.mapped) {
      return "a block without memory";
    }
  }
  if (reserved != allocator.reserved().count) {
    return "reserved is not the sum of the blocks";
  }
  if (allocated < allocator.allocated().count) {
    return "allocated is more than the blocks";
  }
  return allocator.reserved() < allocator.allocated() ? "more allocated than reserved" : "";
}

TEST(CachingAllocator, RoundsToGranules) {
  CachingAllocator allocator({}, {});
  EXPECT_EQ(allocator.rounded(1_B), 512);
  EXPECT_EQ(allocator.rounded(512_B), 512);
  EXPECT_EQ(allocator.rounded(513_B), 1024);
  EXPECT_EQ(allocator.rounded(3_MiB), (3_MiB).count);
}

// The header's example: 1200 with four divisions: 1024, 1280, 1536, 1792 -> 1280. It applies from 512 * 4 on.
TEST(CachingAllocator, RoundsToDivisionsOfAPowerOfTwo) {
  CachingAllocator allocator = allocator_with("roundup_power2_divisions:4");
  EXPECT_EQ(allocator.rounded(1200_B), 1536);  // up to 2048 the default rounding
  EXPECT_EQ(allocator.rounded(2100_B), 2560);
  EXPECT_EQ(allocator.rounded(1200_KiB), (1280_KiB).count);
  EXPECT_EQ(allocator.rounded(1024_KiB), (1024_KiB).count);
  EXPECT_EQ(allocator.rounded(1025_KiB), (1280_KiB).count);
  CachingAllocator by_size = allocator_with("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]");
  EXPECT_EQ(by_size.rounded(300_MiB), (300_MiB).count);
  EXPECT_EQ(by_size.rounded(600_MiB), (768_MiB).count);
  EXPECT_EQ(by_size.rounded(1100_MiB), (1152_MiB).count);
}

TEST(CachingAllocator, SegmentsBySize) {
  const std::pair<Bytes, Bytes> cases[] = {
      {1_B, 2_MiB},     {1_MiB, 2_MiB},         {1_MiB + 1_B, 20_MiB}, {10_MiB - 512_B, 20_MiB},
      {10_MiB, 10_MiB}, {10_MiB + 1_B, 12_MiB}, {101_MiB, 102_MiB}};
  for (const auto& [requested, reserved] : cases) {
    CachingAllocator allocator({}, {});
    take(allocator, requested);
    EXPECT_EQ(allocator.reserved(), reserved) << to_string(requested);
    EXPECT_EQ(allocator.segments(), 1);
  }
}

TEST(CachingAllocator, SmallBlocksShareASegment) {
  CachingAllocator allocator({}, {});
  for (int i = 0; i < 4; ++i) {
    take(allocator, 512_KiB);
  }
  EXPECT_EQ(allocator.reserved(), 2_MiB);
  take(allocator, 512_B);
  EXPECT_EQ(allocator.reserved(), 4_MiB);
}

// 10.5 MiB in a segment of 12: the rest, 1.5 MiB, is more than 1 MiB and is split off as a block. 11.5 MiB
// leave half a MiB, which remains part of the block: max_memory_allocated counts it.
TEST(CachingAllocator, SplitsALargeBlockOnlyWhenMoreThanOneMebibyteIsLeft) {
  CachingAllocator allocator({}, {});
  take(allocator, 10_MiB + 512_KiB);
  EXPECT_EQ(allocator.allocated(), 10_MiB + 512_KiB);
  take(allocator, 1_MiB + 512_B);
  EXPECT_EQ(allocator.reserved(), 12_MiB);
  CachingAllocator whole({}, {});
  take(whole, 11_MiB + 512_KiB);
  EXPECT_EQ(whole.allocated(), 12_MiB);
}

TEST(CachingAllocator, TakesTheBestFitAndOfEqualsTheLowest) {
  CachingAllocator allocator({}, {});
  std::vector<Handle> handles;
  for (const Bytes size : {60_MiB, 40_MiB, 50_MiB, 40_MiB}) {
    handles.push_back(take(allocator, size));
  }
  for (const Handle handle : handles) {
    allocator.release(handle);
  }
  EXPECT_EQ(take(allocator, 39_MiB), handles[1]);
  EXPECT_EQ(take(allocator, 38_MiB), handles[3]);
  EXPECT_EQ(take(allocator, 41_MiB), handles[2]);
  EXPECT_EQ(allocator.reserved(), 190_MiB);
}

TEST(CachingAllocator, MergesWhatItSplit) {
  CachingAllocator allocator({}, {});
  const Handle whole = take(allocator, 100_MiB);
  allocator.release(whole);
  std::vector<Handle> parts;
  for (int i = 0; i < 4; ++i) {
    parts.push_back(take(allocator, 25_MiB));
  }
  EXPECT_EQ(allocator.reserved(), 100_MiB);
  for (const int i : {1, 3, 0, 2}) {
    allocator.release(parts[static_cast<std::size_t>(i)]);
  }
  ASSERT_EQ(allocator.snapshot().size(), 1U);
  take(allocator, 100_MiB);
  EXPECT_EQ(allocator.reserved(), 100_MiB);
}

TEST(CachingAllocator, StreamsDoNotShare) {
  CachingAllocator allocator({}, {});
  allocator.release(take(allocator, 100_MiB, kComputeStream));
  take(allocator, 100_MiB, kCommunicationStream);
  EXPECT_EQ(allocator.reserved(), 200_MiB);
}

// Tensor.record_stream: the block can be reused only after the other stream was synchronized.
TEST(CachingAllocator, ARecordedStreamDelaysReuse) {
  CachingAllocator allocator({}, {});
  const Handle first = take(allocator, 100_MiB);
  allocator.use(first, kCommunicationStream);
  allocator.use(first, kComputeStream);  // its own stream: nothing to wait for
  allocator.release(first);
  EXPECT_EQ(allocator.allocated(), 0_B);
  const Handle second = take(allocator, 100_MiB);
  EXPECT_NE(first, second);
  EXPECT_EQ(allocator.reserved(), 200_MiB);
  allocator.synchronize(kCommunicationStream);
  EXPECT_EQ(take(allocator, 100_MiB), first);
  // Synchronized before it is released: reusable at once.
  allocator.use(second, kCommunicationStream);
  allocator.synchronize(kCommunicationStream);
  allocator.release(second);
  EXPECT_EQ(take(allocator, 100_MiB), second);
}

TEST(CachingAllocator, GivesTheCacheBackBeforeItFails) {
  CachingAllocator allocator({}, {.available = 100_MiB, .total = 100_MiB});
  allocator.release(take(allocator, 40_MiB));
  const Handle kept = take(allocator, 50_MiB);
  EXPECT_EQ(allocator.reserved(), 90_MiB);
  const Handle grown = take(allocator, 45_MiB);
  EXPECT_EQ(allocator.retries(), 1);
  EXPECT_EQ(allocator.reserved(), 96_MiB);  // 50 + 46
  EXPECT_EQ(allocator.reserved_peak(), 96_MiB);
  EXPECT_FALSE(allocator.allocate(10_MiB, kComputeStream).has_value());
  allocator.release(kept);
  allocator.release(grown);
  EXPECT_TRUE(allocator.allocate(100_MiB, kComputeStream).has_value());
}

TEST(CachingAllocator, ASplitSegmentCannotBeGivenBack) {
  CachingAllocator allocator({}, {.available = 100_MiB, .total = 100_MiB});
  const Handle first = take(allocator, 80_MiB);
  allocator.release(first);
  const Handle small_part = take(allocator, 10_MiB);
  EXPECT_FALSE(allocator.allocate(75_MiB, kComputeStream).has_value());
  allocator.release(small_part);
  EXPECT_TRUE(allocator.allocate(75_MiB, kComputeStream).has_value());
}

TEST(CachingAllocator, OutOfMemoryWaitsForTheStreams) {
  CachingAllocator allocator({}, {.available = 100_MiB, .total = 100_MiB});
  const Handle sent = take(allocator, 60_MiB);
  allocator.use(sent, kCommunicationStream);
  allocator.release(sent);
  EXPECT_TRUE(allocator.allocate(90_MiB, kComputeStream).has_value());
}

// max_split_size 64 MiB. A cached block of 100 MiB serves no request below the limit, and above it only those
// that leave less than 20 MiB.
TEST(CachingAllocator, OversizeBlocksAreNotSplit) {
  CachingAllocator allocator = allocator_with("max_split_size_mb:64");
  const Handle large = take(allocator, 100_MiB);
  allocator.release(large);
  take(allocator, 30_MiB);
  EXPECT_EQ(allocator.reserved(), 130_MiB);
  take(allocator, 70_MiB);
  EXPECT_EQ(allocator.reserved(), 200_MiB);
  EXPECT_EQ(take(allocator, 81_MiB), large);
  EXPECT_EQ(allocator.allocated(), 30_MiB + 70_MiB + 100_MiB);
}

TEST(CachingAllocator, OversizeBlocksGoFirst) {
  CachingAllocator allocator = allocator_with("max_split_size_mb:64", 300_MiB);
  for (const Handle handle : {take(allocator, 100_MiB), take(allocator, 110_MiB), take(allocator, 30_MiB)}) {
    allocator.release(handle);
  }
  take(allocator, 150_MiB);  // 100 and 110 are released; 30 stays
  EXPECT_EQ(allocator.reserved(), 180_MiB);
  EXPECT_EQ(allocator.retries(), 0);
}

TEST(CachingAllocator, GarbageIsCollectedAboveTheThreshold) {
  // 50 % of 400 MiB are allowed; above 80 % of them, old cached blocks are released.
  CachingAllocator allocator =
      allocator_with("per_process_memory_fraction:0.5,garbage_collection_threshold:0.8", 400_MiB);
  allocator.release(take(allocator, 100_MiB));
  const Handle kept = take(allocator, 80_MiB);  // a part of the 100: 20 left
  EXPECT_EQ(allocator.reserved(), 100_MiB);
  allocator.release(kept);
  take(allocator, 90_MiB);
  const Handle old = take(allocator, 70_MiB);
  EXPECT_EQ(allocator.reserved(), 170_MiB);
  allocator.release(old);
  take(allocator, 72_MiB);  // 170 > 160: the 70 are released, and 72 fit into the allowed 200
  EXPECT_EQ(allocator.reserved(), 172_MiB);
  EXPECT_FALSE(allocator.allocate(40_MiB, kComputeStream).has_value());
  // Without a fraction the threshold has no effect.
  CachingAllocator without = allocator_with("garbage_collection_threshold:0.1", 400_MiB);
  without.release(take(without, 100_MiB));
  take(without, 200_MiB);
  EXPECT_EQ(without.reserved(), 300_MiB);
}

// Expandable segments: contiguous pages of 2 and 20 MiB, so a larger request reuses the memory of smaller
// ones.
TEST(CachingAllocator, ExpandableSegmentsGrow) {
  CachingAllocator allocator = allocator_with("expandable_segments:True");
  std::vector<Handle> handles;
  for (int i = 0; i < 4; ++i) {
    handles.push_back(take(allocator, 30_MiB));
  }
  EXPECT_EQ(allocator.reserved(), 120_MiB);
  EXPECT_EQ(allocator.segments(), 1);
  for (const Handle handle : handles) {
    allocator.release(handle);
  }
  take(allocator, 125_MiB);
  EXPECT_EQ(allocator.reserved(), 140_MiB);
  take(allocator, 1_B);
  EXPECT_EQ(allocator.reserved(), 142_MiB);
  EXPECT_EQ(allocator.segments(), 2);
}

TEST(CachingAllocator, ExpandableSegmentsGiveWholePagesBack) {
  CachingAllocator allocator = allocator_with("expandable_segments:True", 200_MiB);
  const Handle low = take(allocator, 70_MiB);
  const Handle middle = take(allocator, 10_MiB);
  take(allocator, 80_MiB);
  EXPECT_EQ(allocator.reserved(), 160_MiB);
  allocator.release(low);
  take(allocator, 70_MiB, kCommunicationStream);  // needs 80 of pages: only 60 of the 70 free are whole pages
  EXPECT_EQ(allocator.reserved(), 180_MiB);
  EXPECT_EQ(problem(allocator), "");
  allocator.release(middle);
  EXPECT_EQ(problem(allocator), "");
  // The driver has 20 left, and 20 mapped MiB are free between the unmapped pages and the last block.
  EXPECT_TRUE(allocator.allocate(40_MiB, kComputeStream).has_value());
  EXPECT_EQ(problem(allocator), "");
}

TEST(CachingAllocator, AbsurdSizesAreOutOfMemory) {
  for (const char* settings : {"", "expandable_segments:True", "roundup_power2_divisions:8"}) {
    CachingAllocator allocator = allocator_with(settings, 80_GiB);
    EXPECT_FALSE(allocator.allocate(Bytes::max(), kComputeStream).has_value());
    EXPECT_FALSE(allocator.allocate(1024_GiB, kComputeStream).has_value());
    EXPECT_EQ(allocator.reserved(), 0_B);
  }
}

struct Case {
  const char* settings;
  Bytes available;
};

// Random allocations, releases, uses on streams and synchronizations. After each the sums are right and no
// blocks overlap; when everything is released and the cache emptied, nothing is left.
TEST(CachingAllocator, HoldsItsAccountWhateverHappens) {
  const unsigned seed = plimsoll::testing::random_seed();
  std::mt19937_64 random(seed);
  for (const Case& each :
       {Case{"", Bytes::max()}, Case{"", 2_GiB}, Case{"max_split_size_mb:32", 2_GiB},
        Case{"expandable_segments:True", 2_GiB}, Case{"expandable_segments:True", Bytes::max()},
        Case{"roundup_power2_divisions:[64:8,>:4]", 4_GiB},
        Case{"per_process_memory_fraction:0.75,garbage_collection_threshold:0.5", 2_GiB}}) {
    SCOPED_TRACE(std::string(each.settings) + " seed " + std::to_string(seed));
    CachingAllocator allocator = allocator_with(each.settings, each.available);
    std::vector<Handle> live;
    std::int64_t failures = 0;
    for (int i = 0; i < 4000; ++i) {
      const std::uint64_t dice = random() % 100;
      if (dice < 55 || live.empty()) {
        const auto size = static_cast<std::int64_t>(random() % (std::uint64_t{1} << (1 + random() % 28))) + 1;
        const std::optional<Handle> handle =
            allocator.allocate(Bytes{size}, static_cast<StreamId>(random() % 2));
        if (handle) {
          live.push_back(*handle);
        } else {
          ++failures;
        }
      } else if (dice < 90) {
        const std::size_t which = random() % live.size();
        allocator.release(live[which]);
        live[which] = live.back();
        live.pop_back();
      } else if (dice < 96) {
        allocator.use(live[random() % live.size()], static_cast<StreamId>(random() % 3));
      } else {
        allocator.synchronize(static_cast<StreamId>(random() % 3));
      }
      ASSERT_LE(allocator.allocated(), allocator.reserved());
      ASSERT_LE(allocator.reserved(), each.available);
      if (i % 50 == 0) {
        ASSERT_EQ(problem(allocator), "") << i;
      }
    }
    EXPECT_TRUE(failures == 0 || each.available < Bytes::max());
    for (const Handle handle : live) {
      allocator.release(handle);
    }
    for (StreamId stream = 0; stream < 3; ++stream) {
      allocator.synchronize(stream);
    }
    EXPECT_EQ(allocator.allocated(), 0_B);
    EXPECT_EQ(problem(allocator), "");
    // All blocks are merged: a segment is one block again.
    std::int64_t mapped = 0;
    for (const CachingAllocator::View& block : allocator.snapshot()) {
      mapped += block.mapped ? 1 : 0;
    }
    EXPECT_EQ(mapped, allocator.segments());
    allocator.empty_cache();
    EXPECT_EQ(allocator.reserved(), 0_B);
  }
}

}  // namespace
}  // namespace plimsoll::estimator
