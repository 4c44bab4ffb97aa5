// parse_number(): a whole text as a number, by std::from_chars: decimal, without a leading plus or blanks.
//
//   const std::optional<std::int64_t> count = parse_number<std::int64_t>("42");
//
// Pure; any thread.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace plimsoll {

// Nothing for a text that is not a number from its first to its last character, or does not fit the type.
template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, number);
  return failure == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

}  // namespace plimsoll
