#include "base/json/shared_words.h"

#include <array>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace plimsoll {
namespace {

// The fields of all kinds that an operator reads are some hundreds; labels and annotations add a few.
constexpr std::size_t kMaxWords = 8192;
constexpr std::size_t kMaxWord = 63;
// Slots that are tried for one word: in a table that is half full, one word in 2^16 needs more.
constexpr std::size_t kMaxTries = 16;

// A word's number is its slot. Slots are filled once, and never emptied.
std::array<std::atomic<const std::string*>, kMaxWords> words;

}  // namespace

std::optional<WordNumber> shared_word(std::string_view word) {
  if (word.size() > kMaxWord) {
    return std::nullopt;
  }
  const std::size_t first = std::hash<std::string_view>()(word);
  for (std::size_t i = 0; i < kMaxTries; ++i) {
    const std::size_t number = (first + i) % kMaxWords;
    const std::string* there = words[number].load(std::memory_order_acquire);
    if (there == nullptr) {
      auto mine = std::make_unique<const std::string>(word);
      if (words[number].compare_exchange_strong(there, mine.get(), std::memory_order_acq_rel)) {
        there = mine.release();
      }
    }
    if (*there == word) {
      return static_cast<WordNumber>(number);
    }
  }
  return std::nullopt;
}

std::string_view text_of(WordNumber number) {
  const std::string* word = words[number].load(std::memory_order_acquire);
  assert(word != nullptr);
  return *word;
}

}  // namespace plimsoll
