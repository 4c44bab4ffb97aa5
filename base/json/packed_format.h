// How a PackedJson (base/json/packed.h) lies in memory, for that and JsonView alone. A value is a tag and
// what the tag says: nothing (null, true, false), a number, a text, the number of a shared word, or for an
// array or object how many there are in it, their size in bytes, and they themselves, of which each member is
// its name (a text or a word) and its value. Sizes and integers are varints of seven bits a byte, the lowest
// first (integers in zigzag, so that small negative ones are short too).
//
// Nothing is checked: what is read was written here, by this process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json/selection.h"
#include "base/json/view.h"

namespace plimsoll::packed {

// `kept`: null keeps all.
void append(const JsonView& value, const JsonSelection* kept, std::string& to);

// The place behind the value.
const char* behind(const char* value);

JsonView::Kind kind(const char* value);
// Of a value of that kind.
bool boolean(const char* value);
double real(const char* value);
std::string_view text(const char* value);
// Of an integer; nothing when it does not fit.
std::optional<std::int64_t> integer(const char* value);
std::optional<std::uint64_t> unsigned_integer(const char* value);

// Of an array or object.
struct Contents {
  const char* begin = nullptr;
  const char* end = nullptr;
  std::size_t count = 0;
};
Contents contents(const char* value);

}  // namespace plimsoll::packed
