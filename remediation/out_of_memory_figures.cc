#include "remediation/out_of_memory_figures.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string>
#include <utility>

namespace plimsoll::remediation {
namespace {

using crds::OutOfMemoryFigures;

// The number at the beginning of the text, which is taken off it: "2.00", "1,610,612,736".
std::optional<double> take_number(std::string_view& text) {
  constexpr std::size_t kMaxDigits = 32;
  const auto is_digit = [&](std::size_t at) {
    return at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0;
  };
  std::string plain;
  std::size_t at = 0;
  for (; at < text.size() && plain.size() < kMaxDigits; ++at) {
    const bool thousands = text[at] == ',' && at > 0 && is_digit(at + 1) && is_digit(at + 2) &&
                           is_digit(at + 3) && !is_digit(at + 4);
    if (!thousands) {
      if (!is_digit(at) && text[at] != '.') {
        break;
      }
      plain += text[at];
    }
  }
  double number = 0;
  const auto [end, failure] = std::from_chars(plain.data(), plain.data() + plain.size(), number);
  if (failure != std::errc() || end != plain.data() + plain.size()) {
    return std::nullopt;
  }
  text.remove_prefix(at);
  return number;
}

// "2.00 GiB", "512.00 MiB", "20.00 KiB", "512 bytes", "31.25G" at the beginning of the text.
std::optional<Bytes> size_at(std::string_view text) {
  const std::optional<double> number = take_number(text);
  if (!number) {
    return std::nullopt;
  }
  text.remove_prefix(text.starts_with(' ') ? 1 : 0);
  const auto end =
      std::find_if(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) == 0; });
  const std::string_view written = text.substr(0, static_cast<std::size_t>(end - text.begin()));
  // G, M and K are XLA's, which counts in powers of two as well.
  static constexpr std::pair<std::string_view, double> kUnits[] = {
      {"GiB", 0x1p30}, {"MiB", 0x1p20}, {"KiB", 0x1p10}, {"TiB", 0x1p40}, {"bytes", 1},
      {"B", 1},        {"G", 0x1p30},   {"M", 0x1p20},   {"K", 0x1p10}};
  constexpr double kMaxSize = 0x1p60;  // an exabyte: PyTorch prints no larger figure
  for (const auto& [unit, bytes] : kUnits) {
    if (written == unit) {
      return *number * bytes < kMaxSize ? std::optional(Bytes::ceil(*number * bytes)) : std::nullopt;
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

// Words that each message has once.
constexpr std::string_view kTried = "Tried to allocate ";                 // PyTorch: CUDA, HIP, XPU
constexpr std::string_view kWouldExceed = "would exceed allowed memory";  // PyTorch: cudaMallocAsync
constexpr std::string_view kCuPy = "Out of memory allocating ";
constexpr std::string_view kPool = "current/max/try size = ";           // RMM
constexpr std::string_view kHbm = "out of memory in memory space hbm";  // XLA's compiler

// The offset at which a second error begins.
std::size_t end_of_first(std::string_view text) {
  std::size_t end = 2000;
  for (const std::string_view words : {kTried, kWouldExceed, kCuPy, kPool, kHbm}) {
    const std::size_t first = text.find(words);
    end = first == text.npos ? end : std::min(end, text.find(words, first + words.size()));
  }
  return end;
}

std::optional<Bytes> sum(const std::optional<Bytes>& a, const std::optional<Bytes>& b) {
  return a && b ? std::optional(*a + *b) : std::nullopt;
}

OutOfMemoryFigures of_cuda_malloc_async(std::string_view text) {
  return {.needed = sum(size_after(text, "Currently allocated : "), size_after(text, "Requested : ")),
          .capacity = size_after(text, "Device limit : ")};
}

// The pool of the process. "limit set to" is no card's capacity, but the user's limit of that pool.
OutOfMemoryFigures of_cupy(std::string_view text) {
  return {.needed = sum(size_after(text, kCuPy), size_after(text, "(allocated so far: "))};
}

// "... = 78.000000 GiB, 78.000000 GiB, 10.371208 GiB": the pool, the most that it may have, and what it would have grown by.
OutOfMemoryFigures of_rmm(std::string_view text) {
  text.remove_prefix(text.find(kPool) + kPool.size());
  std::optional<Bytes> sizes[3];
  for (std::optional<Bytes>& size : sizes) {
    size = size_at(text);
    const std::size_t comma = text.find(", ");
    text.remove_prefix(comma == text.npos ? text.size() : comma + 2);
  }
  return {.needed = sizes[1] ? sum(sizes[0], sizes[2]) : std::nullopt};
}

// "Used 49.34G of 32.00G hbm."
OutOfMemoryFigures of_xla(std::string_view text) {
  text.remove_prefix(text.find(kHbm) + kHbm.size());
  return {.needed = size_after(text, ". Used "), .capacity = size_after(text, " of ")};
}

// A CUDA context: what a process on the card takes at least.
constexpr Bytes kContext = 1_GiB;
// The most that a process is taken to hold beside PyTorch's allocator: its context, and NCCL's buffers for many peers.
constexpr Bytes kMostUnseen = 4_GiB;

// Of each "Process 12 has 22.40 GiB memory in use" no more than a context: as of ranks of the same job that have only touched the card.
Bytes contexts_of_others(std::string_view text) {
  constexpr std::string_view kProcess = "Process ";
  constexpr std::string_view kHas = " has ";
  Bytes all;
  for (std::size_t at = text.find(kProcess); at != text.npos; at = text.find(kProcess, at)) {
    at += kProcess.size();
    const std::string_view rest = text.substr(at);
    const std::size_t has = rest.find_first_not_of("0123456789");
    if (has != rest.npos && rest.substr(has).starts_with(kHas)) {
      const Bytes held = size_at(rest.substr(has + kHas.size())).value_or(Bytes{});
      all = all + (held <= kContext ? held : Bytes{});
    }
  }
  return all;
}

// Sets what others hold on the card, where that is certain, and then what this process needed. `process`: what it holds in all;
// `reserved`: by PyTorch alone. In a pod only its own processes should be on a card. Where they are several (one process serves what
// another trains), each takes the rest for others, because a message does not say whose processes they are. Cards that are shared
// on purpose, by time slices or MPS, have others as any; a MIG slice has a capacity of its own.
void find_others(OutOfMemoryFigures& found, const std::optional<Bytes>& free,
                 const std::optional<Bytes>& process, const std::optional<Bytes>& reserved,
                 const std::optional<Bytes>& tried, std::string_view text) {
  if (!found.capacity || !free || !tried || (!process && !reserved) || *tried <= *free) {
    return;  // with room left on the card, it was not full: the process has a limit of its own
  }
  const Bytes own = std::max(process.value_or(Bytes{}), reserved.value_or(Bytes{}));
  const Bytes unseen = *found.capacity - *free - own;
  // Without "this process has", which a container's own process ids hide, what PyTorch does not see is this process's in part.
  const Bytes others = process ? unseen - contexts_of_others(text) : unseen - kContext;
  if (others <= kContext || (!process && unseen <= kMostUnseen)) {
    return;
  }
  found.held_by_others = others;
  found.needed = own + (process ? Bytes{} : kContext) + *tried;
}

OutOfMemoryFigures of_pytorch(std::string_view text) {
  OutOfMemoryFigures found;
  const std::optional<Bytes> tried = size_after(text, kTried);
  for (const std::string_view words : {"total capacity of ", "total capacty of "}) {  // sic, until 2.1
    found.capacity = found.capacity ? found.capacity : size_after(text, words);
  }
  found.fragmentation = size_before(text, " is reserved by PyTorch but unallocated");
  std::optional<Bytes> reserved = sum(size_before(text, " is allocated by PyTorch"), found.fragmentation);
  const std::optional<Bytes> process = size_after(text, "this process has ");
  std::optional<Bytes> held = process;
  std::optional<Bytes> free = size_after(text, "of which ");
  if (const std::optional<Bytes> allocated = size_before(text, " already allocated")) {
    // Until PyTorch 2.0: "(GPU 0; 15.78 GiB total capacity; 14.20 GiB already allocated; ...)".
    found.capacity = found.capacity ? found.capacity : size_before(text, " total capacity");
    reserved = size_before(text, " reserved in total by PyTorch");
    if (reserved) {
      found.fragmentation = std::max(Bytes{}, *reserved - *allocated);
    } else if (const std::optional<Bytes> cached = size_before(text, " cached)")) {  // until 1.3, beside it
      reserved = *allocated + *cached;
      found.fragmentation = cached;
    }
    held = reserved;
    free = size_before(text, " free;");
  }
  if (!held && found.capacity && free) {
    held = std::max(Bytes{}, *found.capacity - *free);  // of all that is on the card
  }
  found.needed = sum(tried, held ? held : reserved);  // XPU's first messages do not say what is free
  find_others(found, free, process, reserved, tried, text);
  return found;
}

}  // namespace

OutOfMemoryFigures parse_out_of_memory_figures(std::string_view whole) {
  const std::string text = on_one_line(whole.substr(0, end_of_first(whole)));
  const auto has = [&](std::string_view words) { return text.find(words) != text.npos; };
  return has(kTried)         ? of_pytorch(text)
         : has(kWouldExceed) ? of_cuda_malloc_async(text)
         : has(kCuPy)        ? of_cupy(text)
         : has(kPool)        ? of_rmm(text)
         : has(kHbm)         ? of_xla(text)
                             : of_pytorch(text);
}

}  // namespace plimsoll::remediation
