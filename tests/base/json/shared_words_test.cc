#include "base/json/shared_words.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

namespace plimsoll {
namespace {

TEST(SharedWords, HaveOneNumberEach) {
  const std::optional<WordNumber> number = shared_word("lastTransitionTime");
  ASSERT_TRUE(number.has_value());
  EXPECT_EQ(text_of(*number), "lastTransitionTime");
  EXPECT_EQ(shared_word("lastTransitionTime"), number);
  EXPECT_NE(shared_word("lastTransitionTim"), number);
  EXPECT_EQ(text_of(*number).data(), text_of(*shared_word(std::string("lastTransitionTime"))).data());
}

TEST(SharedWords, MayBeEmptyOrHoldAnyByte) {
  for (const std::string& word : {std::string(), std::string("a\0b", 3), std::string("\xff\"\n")}) {
    const std::optional<WordNumber> number = shared_word(word);
    ASSERT_TRUE(number.has_value());
    EXPECT_EQ(text_of(*number), word);
  }
}

TEST(SharedWords, AreShort) {
  EXPECT_TRUE(shared_word(std::string(63, 'x')).has_value());
  EXPECT_EQ(shared_word(std::string(64, 'x')), std::nullopt);
}

// A flood of words that never come again leaves those alone that are there, and ends without a number.
TEST(SharedWords, AreBoundedAndOfAnyThread) {
  const std::optional<WordNumber> known = shared_word("known");
  std::vector<std::vector<std::string>> kept(4);
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < kept.size(); ++thread) {
    threads.emplace_back([&mine = kept[thread]] {
      for (int i = 0; i < 30'000; ++i) {
        const std::string word = "flood-" + std::to_string(i);  // each thread the same ones
        if (const std::optional<WordNumber> number = shared_word(word)) {
          ASSERT_EQ(text_of(*number), word);
          mine.push_back(word);
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::set<std::string> all;
  for (const std::vector<std::string>& mine : kept) {
    EXPECT_GT(mine.size(), 4000U);
    all.insert(mine.begin(), mine.end());
  }
  EXPECT_LE(all.size(), 8192U);
  EXPECT_EQ(shared_word("known"), known);
}

}  // namespace
}  // namespace plimsoll
