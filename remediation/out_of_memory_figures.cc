#include "remediation/out_of_memory_figures.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

namespace plimsoll::remediation {
namespace {

// "2.00 GiB", "512.00 MiB", "20.00 KiB", "512 bytes" at the beginning of the text.
std::optional<Bytes> size_at(std::string_view text) {
  double number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || !(number >= 0)) {
    return std::nullopt;
  }
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  static constexpr std::pair<std::string_view, double> kUnits[] = {
      {" GiB", 0x1p30}, {" MiB", 0x1p20}, {" KiB", 0x1p10}, {" TiB", 0x1p40}, {" bytes", 1},
      {"GiB", 0x1p30},  {"MiB", 0x1p20},  {"KiB", 0x1p10},  {" B", 1}};
  constexpr double kMaxSize = 0x1p60;  // an exabyte: PyTorch prints no larger figure
  for (const auto& [unit, bytes] : kUnits) {
    if (text.starts_with(unit)) {
      return number * bytes < kMaxSize ? std::optional(Bytes::ceil(number * bytes)) : std::nullopt;
    }
  }
  return std::nullopt;
}

std::optional<Bytes> size_after(std::string_view text, std::string_view words) {
  const std::size_t at = text.find(words);
  return at == text.npos ? std::nullopt : size_at(text.substr(at + words.size()));
}

// The size before the words: "14.20 GiB already allocated".
std::optional<Bytes> size_before(std::string_view text, std::string_view words) {
  const std::size_t at = text.find(words);
  if (at == text.npos) {
    return std::nullopt;
  }
  text = text.substr(0, at);
  // Number and unit are the last two words.
  const std::size_t unit = text.rfind(' ');
  if (unit == text.npos || unit == 0) {
    return std::nullopt;
  }
  return size_at(text.substr(text.find_last_of(" (;,", unit - 1) + 1));
}

// A long message may have been folded into several lines.
std::string on_one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const bool blank = c == ' ' || c == '\n' || c == '\r' || c == '\t';
    if (!blank) {
      line += c;
    } else if (!line.empty() && line.back() != ' ') {
      line += ' ';
    }
  }
  return line;
}

// The offset at which a second error begins.
std::size_t end_of_first(std::string_view text) {
  constexpr std::string_view kTried = "Tried to allocate";
  const std::size_t tried = text.find(kTried);
  const std::size_t next = tried == text.npos ? text.npos : text.find(kTried, tried + kTried.size());
  return std::min<std::size_t>(next, 2000);
}

}  // namespace

crds::OutOfMemoryFigures parse_out_of_memory_figures(std::string_view whole) {
  const std::string unfolded = on_one_line(whole.substr(0, end_of_first(whole)));
  const std::string_view text = unfolded;
  crds::OutOfMemoryFigures found;
  const std::optional<Bytes> tried = size_after(text, "Tried to allocate ");
  for (const std::string_view words : {"total capacity of ", "total capacty of "}) {  // sic, until 2.1
    found.capacity = found.capacity ? found.capacity : size_after(text, words);
  }
  found.fragmentation = size_before(text, " is reserved by PyTorch but unallocated");
  std::optional<Bytes> held = size_after(text, "this process has ");
  if (const std::optional<Bytes> allocated = size_before(text, " already allocated")) {
    // Until PyTorch 2.0: "(GPU 0; 15.78 GiB total capacity; 14.20 GiB already allocated; ...)".
    found.capacity = found.capacity ? found.capacity : size_before(text, " total capacity");
    if (const std::optional<Bytes> reserved = size_before(text, " reserved in total by PyTorch")) {
      held = reserved;
      found.fragmentation = std::max(Bytes{}, *reserved - *allocated);
    } else if (const std::optional<Bytes> cached = size_before(text, " cached)")) {  // until 1.3, beside it
      held = *allocated + *cached;
      found.fragmentation = cached;
    }
  }
  const std::optional<Bytes> free = size_after(text, "of which ");
  if (!held && found.capacity && free) {
    held = std::max(Bytes{}, *found.capacity - *free);  // of all that is on the card
  }
  if (tried && held) {
    found.needed = *held + *tried;
  }
  return found;
}

}  // namespace plimsoll::remediation
