#include "crds/checker.h"

#include <array>
#include <charconv>

#include "crds/decoder.h"

namespace plimsoll::crds {
namespace {

std::string shortest(double value) {
  std::array<char, 32> text{};
  const auto [end, failure] = std::to_chars(text.data(), text.data() + text.size(), value);
  return failure == std::errc() ? std::string(text.data(), end) : "out of range";
}

}  // namespace

void Checker::decimal(const char* name, double value, Presence, const DecimalRule& rule) {
  if (!(value >= rule.least && value <= rule.most)) {
    errors_.add(FieldPath(path_, name), std::string("must be ") + rule.form + ", is " + shortest(value));
  }
}

void Checker::optional_bytes(const char* name, const std::optional<Bytes>& value, const QuantityRule& rule) {
  if (value && value->count < rule.least) {
    errors_.add(FieldPath(path_, name), "must be at least " + std::to_string(rule.least));
  }
}

void Checker::percentage(const char* name, double value, Presence, const TextRule& rule) {
  if (!(value >= 0 && value < 1)) {
    errors_.add(FieldPath(path_, name), std::string("must be ") + rule.form);
  }
}

void Checker::check_integer(const FieldPath& path, std::int64_t value, Range range) {
  if (value < range.least) {
    errors_.add(path, "must be at least " + std::to_string(range.least) + ", is " + std::to_string(value));
  } else if (value > range.most) {
    errors_.add(path, "must be at most " + std::to_string(range.most) + ", is " + std::to_string(value));
  }
}

void Checker::check_text(const FieldPath& path, const std::string& value, const TextRule& rule) {
  if (!obeys(rule, value)) {
    errors_.add(path, std::string("must be ") + rule.form + ", is " + quoted(value));
  }
}

void Checker::check_count(const FieldPath& path, std::size_t size, Range count, Presence presence) {
  const auto items = static_cast<std::int64_t>(size);
  const bool absent = items == 0 && presence == Presence::kOptional;
  if (!absent && (items < count.least || items > count.most)) {
    errors_.add(path, "must have " + std::to_string(count.least) + " to " + std::to_string(count.most) +
                          " items, has " + std::to_string(items));
  }
}

}  // namespace plimsoll::crds
