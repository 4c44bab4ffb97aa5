#include "estimator/allocator/settings.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace plimsoll::estimator::inline allocator {
namespace {

constexpr std::size_t kMaxText = 4096;
// Far more than any GPU has, and small enough that the number of bytes does not overflow.
constexpr std::int64_t kMaxMib = std::int64_t{1} << 40;
constexpr std::int64_t kMaxDivisions = std::int64_t{1} << 20;
// PyTorch rejects limits below its large buffer (kLargeBuffer, 20 MiB).
constexpr std::int64_t kMinSplitMib = 20;

Error refused(const std::string& option, const std::string& why) {
  return Error(ErrorCode::kInvalid, "allocator settings: " + option.substr(0, 64) + " " + why);
}

struct Option {
  std::string key;
  std::string value;  // without brackets
  bool list = false;
};

// "key:value,key:[a:b,c:d]"; a comma inside brackets belongs to the list.
Result<std::vector<Option>> split_options(std::string_view text) {
  std::string dense;
  for (const char c : text) {
    if (std::isspace(static_cast<unsigned char>(c)) == 0) {
      dense += c;
    }
  }
  std::vector<Option> options;
  std::size_t at = 0;
  while (at < dense.size()) {
    const std::size_t colon = dense.find(':', at);
    if (colon == std::string::npos || colon == at) {
      return refused("\"" + dense.substr(at) + "\"", "is not of the form option:value");
    }
    Option option;
    option.key = dense.substr(at, colon - at);
    std::size_t end = 0;
    if (colon + 1 < dense.size() && dense[colon + 1] == '[') {
      const std::size_t close = dense.find(']', colon);
      if (close == std::string::npos) {
        return refused(option.key, "has a list without its closing bracket");
      }
      option.list = true;
      option.value = dense.substr(colon + 2, close - colon - 2);
      end = close + 1;
    } else {
      end = std::min(dense.find(',', colon), dense.size());
      option.value = dense.substr(colon + 1, end - colon - 1);
    }
    if (option.value.empty()) {
      return refused(option.key, "has no value");
    }
    options.push_back(std::move(option));
    if (end < dense.size() && (dense[end] != ',' || end + 1 == dense.size())) {
      return refused(options.back().key,
                     "is followed by \"" + dense.substr(end, 16) + "\"; options are separated by commas");
    }
    at = end + 1;
  }
  return options;
}

template <class Number>
std::optional<Number> number(const std::string& text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

Error wrong_value(const Option& option, const std::string& expected) {
  return refused(option.key, "must be " + expected + "; is \"" + option.value.substr(0, 32) + "\"");
}

Result<Bytes> mebibytes(const Option& option) {
  const std::optional<std::int64_t> mib = number<std::int64_t>(option.value);
  if (option.list || !mib || *mib < kMinSplitMib || *mib > kMaxMib) {
    return wrong_value(option, "a whole number of MiB, at least " + std::to_string(kMinSplitMib));
  }
  return Bytes::from_mib(*mib);
}

Result<double> fraction(const Option& option, bool open) {
  const std::optional<double> value = number<double>(option.value);
  const bool inside = value && (open ? *value > 0 && *value < 1 : *value >= 0 && *value <= 1);
  if (option.list || !inside) {
    return wrong_value(option, open ? "between 0 and 1, neither included" : "from 0 to 1");
  }
  return *value;
}

Result<bool> boolean(const Option& option) {
  if (option.list || (option.value != "True" && option.value != "False")) {
    return wrong_value(option, "True or False");
  }
  return option.value == "True";
}

Result<std::int64_t> divisions(const Option& option, const std::string& text, bool zero_allowed) {
  const std::optional<std::int64_t> value = number<std::int64_t>(text);
  const bool power = value && *value > 0 && *value <= kMaxDivisions &&
                     std::has_single_bit(static_cast<std::uint64_t>(*value));
  if (!power && !(zero_allowed && value && *value == 0)) {
    return refused(option.key, std::string("needs a power of two") + (zero_allowed ? " or 0" : "") +
                                   "; has \"" + text.substr(0, 32) + "\"");
  }
  return *value;
}

// Either one number for all sizes, or [MiB:divisions,...,>:divisions]. Sizes below the first interval use the
// first value; ">" sets all sizes above the last interval.
Result<void> read_divisions(const Option& option, AllocatorSettings& settings) {
  auto& table = settings.roundup_power2_divisions;
  if (!option.list) {
    const Result<std::int64_t> all = divisions(option, option.value, false);
    if (!all) {
      return all.error();
    }
    table.fill(*all);
    return {};
  }
  std::size_t last = 0;
  bool first = true;
  std::size_t at = 0;
  while (at < option.value.size()) {
    const std::size_t end = std::min(option.value.find(',', at), option.value.size());
    const std::string item = option.value.substr(at, end - at);
    at = end + 1;
    const std::size_t colon = item.find(':');
    if (colon == std::string::npos || end + 1 == option.value.size()) {
      return refused(option.key, "needs items of the form MiB:divisions; has \"" + item.substr(0, 32) + "\"");
    }
    const Result<std::int64_t> value = divisions(option, item.substr(colon + 1), true);
    if (!value) {
      return value.error();
    }
    const std::string interval = item.substr(0, colon);
    if (interval == ">") {
      std::fill(table.begin() + static_cast<std::ptrdiff_t>(last), table.end(), *value);
      continue;
    }
    const std::optional<std::uint64_t> mib = number<std::uint64_t>(interval);
    if (!mib || !std::has_single_bit(*mib)) {
      return refused(option.key, "needs intervals that are powers of two, in MiB; has \"" +
                                     interval.substr(0, 32) + "\"");
    }
    last = std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(*mib)) - 1, table.size() - 1);
    if (first) {
      std::fill(table.begin(), table.begin() + static_cast<std::ptrdiff_t>(last), *value);
      first = false;
    }
    table[last] = *value;
  }
  return {};
}

// Options of pinned host memory, locking or CUDA graphs do not change the GPU's reserved memory.
bool without_effect_here(const std::string& key) {
  return key.starts_with("pinned_") || key == "release_lock_on_cudamalloc" ||
         key == "release_lock_on_hipmalloc" || key == "graph_capture_record_stream_reuse" ||
         key == "throw_on_cudamalloc_oom";
}

Result<void> apply(const Option& option, AllocatorSettings& settings) {
  const auto store = [](auto value, auto& field) -> Result<void> {
    if (!value) {
      return value.error();
    }
    field = *value;
    return {};
  };
  if (option.key == "max_split_size_mb") {
    return store(mebibytes(option), settings.max_split_size);
  }
  if (option.key == "max_non_split_rounding_mb") {
    return store(mebibytes(option), settings.max_non_split_rounding);
  }
  if (option.key == "garbage_collection_threshold") {
    return store(fraction(option, true), settings.garbage_collection_threshold);
  }
  if (option.key == "per_process_memory_fraction") {
    return store(fraction(option, false), settings.memory_fraction);
  }
  if (option.key == "expandable_segments") {
    return store(boolean(option), settings.expandable_segments);
  }
  if (option.key == "roundup_power2_divisions") {
    return read_divisions(option, settings);
  }
  if (option.key == "backend") {
    if (option.value == "native") {
      return {};
    }
    if (option.value == "cudaMallocAsync") {
      return Error(
          ErrorCode::kUnsupported,
          "allocator settings: backend:cudaMallocAsync is not modelled, only the native allocator is");
    }
    return wrong_value(option, "native");
  }
  if (without_effect_here(option.key)) {
    return {};
  }
  if (option.key == "large_segment_size_mb") {
    return Error(ErrorCode::kUnsupported, "allocator settings: large_segment_size_mb is not modelled");
  }
  return refused("\"" + option.key + "\"", "is not a known option of PyTorch's CUDA allocator");
}

}  // namespace

Result<AllocatorSettings> parse_allocator_settings(std::string_view text) {
  if (text.size() > kMaxText) {
    return invalid("allocator settings are longer than " + std::to_string(kMaxText) + " characters");
  }
  const Result<std::vector<Option>> options = split_options(text);
  if (!options) {
    return options.error();
  }
  AllocatorSettings settings;
  std::set<std::string> seen;
  for (const Option& option : *options) {
    if (!seen.insert(option.key).second) {
      return refused(option.key, "is given twice");
    }
    const Result<void> applied = apply(option, settings);
    if (!applied) {
      return applied.error();
    }
  }
  return settings;
}

}  // namespace plimsoll::estimator::allocator
