#include "crds/decoder.h"

#include <cmath>

#include "base/quantity.h"

namespace plimsoll::crds {
namespace {

// A whole number, also as JSON's 1024.0, which the API server takes for an integer.
std::optional<std::int64_t> whole(const JsonView& value) {
  const std::optional<double> number = value.kind() == JsonView::Kind::kReal ? value.number() : std::nullopt;
  if (!number) {
    return value.integer();
  }
  constexpr double kEnd = 9223372036854775808.0;  // 2^63
  const bool fits = *number >= -kEnd && *number < kEnd && std::trunc(*number) == *number;
  return fits ? std::optional(static_cast<std::int64_t>(*number)) : std::nullopt;
}

std::string wrong_kind(const char* expected, const JsonView& found) {
  return std::string("must be ") + expected + ", is " + kind_of(found);
}

}  // namespace

const char* kind_of(const JsonView& value) {
  switch (value.kind()) {
    case JsonView::Kind::kNull: return "null";
    case JsonView::Kind::kBoolean: return "a boolean";
    case JsonView::Kind::kInteger: return value.integer() ? "an integer" : "an integer of more than 64 bits";
    case JsonView::Kind::kReal: return whole(value) ? "an integer" : "a number with a fraction";
    case JsonView::Kind::kString: return "a string";
    case JsonView::Kind::kArray: return "a list";
    case JsonView::Kind::kObject: return "an object";
  }
  return "unknown";
}

std::string quoted(std::string_view text) {
  constexpr std::size_t kMaxText = 64;
  return write_json(Json(std::string(text.substr(0, kMaxText)))) + (text.size() > kMaxText ? "..." : "");
}

std::optional<JsonView> Decoder::find(std::string_view name, Presence presence) {
  std::optional<JsonView> found = object_.member(name);
  if (found && !found->is_null()) {
    return found;
  }
  if (presence == Presence::kRequired) {
    errors_.add(FieldPath(path_, name), "is required");
  }
  return std::nullopt;
}

JsonRange<JsonView> Decoder::find_list(std::string_view name, Presence presence, Range count) {
  const std::optional<JsonView> found = find(name, presence);
  if (!found) {
    return {};
  }
  const FieldPath path(path_, name);
  if (!found->is_array()) {
    errors_.add(path, wrong_kind("a list", *found));
    return {};
  }
  JsonRange<JsonView> list = found->elements();
  const auto size = static_cast<std::int64_t>(list.size());
  if (size < count.least || size > count.most) {
    errors_.add(path, "must have " + std::to_string(count.least) + " to " + std::to_string(count.most) +
                          " items, has " + std::to_string(size));
    return {};
  }
  return list;
}

bool Decoder::is_object(const JsonView& value, const FieldPath& path) {
  if (!value.is_object()) {
    errors_.add(path, wrong_kind("an object", value));
  }
  return value.is_object();
}

void Decoder::read(const JsonView& found, const FieldPath& path, bool& value) {
  if (const std::optional<bool> truth = found.boolean()) {
    value = *truth;
  } else {
    errors_.add(path, wrong_kind("true or false", found));
  }
}

void Decoder::read(const JsonView& found, const FieldPath& path, std::int64_t& value) {
  if (const std::optional<std::int64_t> number = whole(found)) {
    value = *number;
  } else {
    errors_.add(path, wrong_kind("an integer", found));
  }
}

void Decoder::read(const JsonView& found, const FieldPath& path, std::string& value) {
  if (const std::optional<std::string_view> text = found.text()) {
    value = *text;
  } else {
    errors_.add(path, wrong_kind("a string", found));
  }
}

void Decoder::read(const JsonView& found, const FieldPath& path, double& value, const DecimalRule& rule) {
  const std::optional<std::string_view> text = found.text();
  const std::optional<std::int64_t> integer = found.integer();
  if (const std::optional<double> decimal = text ? parse_decimal(rule, *text) : std::nullopt) {
    value = *decimal;
  } else if (integer && *integer >= rule.integers.least && *integer <= rule.integers.most) {
    value = static_cast<double>(*integer);
  } else {
    errors_.add(path, std::string("must be ") + rule.form + ", is " +
                          (text           ? quoted(*text)
                           : whole(found) ? write_json(tree_of(found))
                                          : kind_of(found)));
  }
}

void Decoder::read(const JsonView& found, const FieldPath& path, double& share, const TextRule& rule) {
  const std::optional<std::string_view> text = found.text();
  const Result<double> read = text && obeys(rule, *text) ? parse_percentage(*text) : Result<double>(Error());
  if (read) {
    share = *read;
  } else {
    errors_.add(path,
                std::string("must be ") + rule.form + ", is " + (text ? quoted(*text) : kind_of(found)));
  }
}

void Decoder::read(const JsonView& found, const FieldPath& path, Bytes& value, const QuantityRule& rule) {
  const std::optional<std::string_view> text = found.text();
  if (const std::optional<std::int64_t> count = found.integer()) {
    value = Bytes{*count};
  } else if (text && obeys(rule, *text)) {
    const Result<Bytes> bytes = parse_bytes(*text);
    if (!bytes) {
      errors_.add(path, bytes.error().message);
      return;
    }
    value = *bytes;
  } else {
    errors_.add(path, "must be a quantity of bytes like 80Gi, is " + (text ? quoted(*text) : kind_of(found)));
    return;
  }
  if (value.count < rule.least) {
    errors_.add(path, "must be at least " + std::to_string(rule.least));
  }
}

}  // namespace plimsoll::crds
