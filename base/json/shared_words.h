// Strings that many values have in common, such as the names of members: one copy for the whole process, and a
// number instead of each use.
//
//   if (const std::optional<WordNumber> number = shared_word("lastTransitionTime")) {
//     text_of(*number);
//   }
//
// A word is never freed. So the number and the length of words are limited, and a caller must also work with a word
// that has no number. Any thread; nothing ever waits.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace plimsoll {

using WordNumber = std::uint16_t;

// Nothing when it is too long or the table is full. The number of a word never changes.
std::optional<WordNumber> shared_word(std::string_view word);

// Of a number that shared_word gave. Lives as long as the process.
std::string_view text_of(WordNumber number);

}  // namespace plimsoll
