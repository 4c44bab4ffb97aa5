#include "estimator/allocator/settings.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/testing/random_seed.h"

namespace plimsoll::estimator {
namespace {

AllocatorSettings parsed(const std::string& text) {
  const Result<AllocatorSettings> settings = parse_allocator_settings(text);
  EXPECT_TRUE(settings.ok()) << text << ": " << (settings ? "" : to_string(settings.error()));
  return settings ? *settings : AllocatorSettings{};
}

TEST(AllocatorSettings, NothingGivenIsPyTorchsDefault) {
  const AllocatorSettings settings = parsed("");
  EXPECT_EQ(settings.max_split_size, Bytes::max());
  EXPECT_EQ(settings.max_non_split_rounding, 20_MiB);
  EXPECT_EQ(settings.garbage_collection_threshold, 0);
  EXPECT_FALSE(settings.memory_fraction.has_value());
  EXPECT_FALSE(settings.expandable_segments);
}

TEST(AllocatorSettings, ReadsWhatPeopleWrite) {
  const AllocatorSettings settings = parsed(
      "backend:native, max_split_size_mb:128, garbage_collection_threshold:0.6,expandable_segments:True,"
      "max_non_split_rounding_mb:64,per_process_memory_fraction:0.5,pinned_use_background_threads:True");
  EXPECT_EQ(settings.max_split_size, 128_MiB);
  EXPECT_EQ(settings.max_non_split_rounding, 64_MiB);
  EXPECT_EQ(settings.garbage_collection_threshold, 0.6);
  EXPECT_EQ(settings.memory_fraction, 0.5);
  EXPECT_TRUE(settings.expandable_segments);
}

TEST(AllocatorSettings, DivisionsForAllSizes) {
  for (const std::int64_t divisions : parsed("roundup_power2_divisions:4").roundup_power2_divisions) {
    EXPECT_EQ(divisions, 4);
  }
}

// The documentation's example, [256:1,512:2,1024:4,>:8]: sizes below the first interval use its value.
TEST(AllocatorSettings, DivisionsByInterval) {
  const auto divisions = parsed("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]").roundup_power2_divisions;
  for (std::size_t i = 0; i <= 8; ++i) {
    EXPECT_EQ(divisions[i], 1) << i;  // up to 2^8 MiB
  }
  EXPECT_EQ(divisions[9], 2);
  // ">" begins after the last named interval, as in PyTorch.
  for (std::size_t i = 10; i < divisions.size(); ++i) {
    EXPECT_EQ(divisions[i], 8) << i;
  }
}

TEST(AllocatorSettings, RefusesWhatPyTorchRefuses) {
  for (const char* wrong : {"max_split_size_mb",
                            "max_split_size_mb:",
                            "max_split_size_mb:19",
                            "max_split_size_mb:-1",
                            "max_split_size_mb:1e3",
                            "max_split_size_mb:99999999999999999999",
                            "max_split_size_mb:[64]",
                            "max_split_size_mb:64,",
                            "max_split_size_mb:64 expandable_segments:True",
                            ":64",
                            "garbage_collection_threshold:0",
                            "garbage_collection_threshold:1",
                            "garbage_collection_threshold:nan",
                            "per_process_memory_fraction:1.5",
                            "expandable_segments:true",
                            "expandable_segments:1",
                            "roundup_power2_divisions:3",
                            "roundup_power2_divisions:[256:3]",
                            "roundup_power2_divisions:[255:4]",
                            "roundup_power2_divisions:[256:4",
                            "roundup_power2_divisions:[256:4,]",
                            "roundup_power2_divisions:[]",
                            "roundup_power2_divisions:[256]",
                            "backend:other",
                            "max_split_mb:64",
                            "max_split_size_mb:64,max_split_size_mb:64"}) {
    const Result<AllocatorSettings> settings = parse_allocator_settings(wrong);
    ASSERT_FALSE(settings.ok()) << wrong;
    EXPECT_EQ(settings.error().code, ErrorCode::kInvalid) << wrong;
    EXPECT_NE(settings.error().message.find("allocator settings"), std::string::npos) << wrong;
  }
}

TEST(AllocatorSettings, SaysWhatItDoesNotModel) {
  for (const char* text : {"backend:cudaMallocAsync", "large_segment_size_mb:64"}) {
    EXPECT_EQ(parse_allocator_settings(text).error().code, ErrorCode::kUnsupported) << text;
  }
}

TEST(AllocatorSettings, NoTextMakesItFail) {
  const unsigned seed = plimsoll::testing::random_seed();
  std::mt19937 random(seed);
  const std::string alphabet = "abz_:,[]>0123456789.- TrueFalse";
  const std::string valid =
      "max_split_size_mb:128,roundup_power2_divisions:[256:1,>:8],expandable_segments:True";
  for (int i = 0; i < 5000; ++i) {
    std::string text = i % 2 == 0 ? valid : "";
    for (unsigned edits = random() % 12; edits-- > 0;) {
      text.insert(text.begin() + static_cast<std::ptrdiff_t>(random() % (text.size() + 1)),
                  alphabet[random() % alphabet.size()]);
    }
    const Result<AllocatorSettings> settings = parse_allocator_settings(text);
    EXPECT_TRUE(settings.ok() || !settings.error().message.empty()) << "seed " << seed << ": " << text;
  }
  EXPECT_FALSE(parse_allocator_settings(std::string(100'000, ':')).ok());
}

}  // namespace
}  // namespace plimsoll::estimator
