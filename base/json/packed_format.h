// How a PackedJson (base/json/packed.h) is laid out in memory. Only PackedJson and JsonView include this. A value is
// one byte, its tag, and then by tag: nothing (null, true, false); a number; a text; the number of a shared word; or
// for an array or object the count of its elements, their size in bytes, and the elements. Each element of an object
// is a name (a text or a word) and a value. Sizes and integers are varints of seven bits a byte, lowest first; signed
// integers are zigzag-encoded, so that small negative ones are short too.
//
// Nothing is checked: only this process writes what is read here.
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

// The position after the value.
const char* behind(const char* value);

JsonView::Kind kind(const char* value);
// Nothing for a value of another kind, and for an integer that does not fit.
std::optional<bool> boolean(const char* value);
std::optional<std::int64_t> integer(const char* value);
std::optional<std::uint64_t> unsigned_integer(const char* value);
std::optional<double> number(const char* value);
std::optional<std::string_view> text(const char* value);

// Of an array or object.
struct Contents {
  const char* begin = nullptr;
  const char* end = nullptr;
  std::size_t count = 0;
};
Contents contents(const char* value);

}  // namespace plimsoll::packed
