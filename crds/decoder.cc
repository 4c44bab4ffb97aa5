#include "crds/decoder.h"

#include <charconv>

#include "base/quantity.h"

namespace plimsoll::crds {
namespace {

// Without a copy; the view lives as long as the value. Nothing for what is no string.
std::optional<std::string_view> view_of(const Json& value) {
  const char* begin = nullptr;
  const char* end = nullptr;
  if (!value.isString() || !value.getString(&begin, &end)) {
    return std::nullopt;
  }
  return std::string_view(begin, static_cast<std::size_t>(end - begin));
}

std::string wrong_kind(const char* expected, const Json& found) {
  return std::string("must be ") + expected + ", is " + kind_of(found);
}

}  // namespace

const char* kind_of(const Json& value) {
  switch (value.type()) {
    case ::Json::nullValue: return "null";
    case ::Json::booleanValue: return "a boolean";
    case ::Json::intValue:
    case ::Json::uintValue: return value.isInt64() ? "an integer" : "an integer of more than 64 bits";
    case ::Json::realValue: return value.isInt64() ? "an integer" : "a number with a fraction";
    case ::Json::stringValue: return "a string";
    case ::Json::arrayValue: return "a list";
    case ::Json::objectValue: return "an object";
  }
  return "unknown";
}

std::string quoted(std::string_view text) {
  constexpr std::size_t kLongest = 64;
  return write_json(Json(std::string(text.substr(0, kLongest)))) + (text.size() > kLongest ? "..." : "");
}

const Json* Decoder::find(std::string_view name, Presence presence) {
  const Json* found = object_.find(name.data(), name.data() + name.size());
  if (found == nullptr || found->isNull()) {
    if (presence == Presence::kRequired) {
      errors_.add(FieldPath(path_, name), "is required");
    }
    return nullptr;
  }
  return found;
}

const Json* Decoder::find_list(std::string_view name, Presence presence, Range count) {
  const Json* found = find(name, presence);
  if (found == nullptr) {
    return nullptr;
  }
  const FieldPath path(path_, name);
  if (!found->isArray()) {
    errors_.add(path, wrong_kind("a list", *found));
    return nullptr;
  }
  const std::int64_t size = found->size();
  if (size < count.least || size > count.most) {
    errors_.add(path, "must have " + std::to_string(count.least) + " to " + std::to_string(count.most) +
                          " items, has " + std::to_string(size));
    return nullptr;
  }
  return found;
}

bool Decoder::is_object(const Json& value, const FieldPath& path) {
  if (!value.isObject()) {
    errors_.add(path, wrong_kind("an object", value));
  }
  return value.isObject();
}

void Decoder::boolean(const char* name, bool& value, Presence presence) {
  if (const Json* found = find(name, presence)) {
    if (found->isBool()) {
      value = found->asBool();
    } else {
      errors_.add(FieldPath(path_, name), wrong_kind("true or false", *found));
    }
  }
}

void Decoder::integer(const char* name, std::int64_t& value, Presence presence, Range /*checked later*/) {
  if (const Json* found = find(name, presence)) {
    read_integer(*found, FieldPath(path_, name), value);
  }
}

void Decoder::integers(const char* name, std::vector<std::int64_t>& values, Presence presence, Range count,
                       Range /*checked later*/) {
  if (const Json* list = find_list(name, presence, count)) {
    const FieldPath path(path_, name);
    values.reserve(list->size());
    for (const Json& element : *list) {
      const FieldPath element_path(path, values.size());
      read_integer(element, element_path, values.emplace_back());
    }
  }
}

void Decoder::text(const char* name, std::string& value, Presence presence,
                   const TextRule& /*checked later*/) {
  if (const Json* found = find(name, presence)) {
    read_text(*found, FieldPath(path_, name), value);
  }
}

void Decoder::texts(const char* name, std::vector<std::string>& values, Range count,
                    const TextRule& /*checked later*/) {
  if (const Json* list = find_list(name, Presence::kOptional, count)) {
    const FieldPath path(path_, name);
    for (const Json& element : *list) {
      const FieldPath element_path(path, values.size());
      read_text(element, element_path, values.emplace_back());
    }
  }
}

void Decoder::decimal(const char* name, double& value, Presence presence, const DecimalRule& rule) {
  if (const Json* found = find(name, presence)) {
    value = read_decimal(*found, FieldPath(path_, name), rule).value_or(value);
  }
}

void Decoder::optional_decimal(const char* name, std::optional<double>& value, const DecimalRule& rule) {
  if (const Json* found = find(name, Presence::kOptional)) {
    value = read_decimal(*found, FieldPath(path_, name), rule);
  }
}

void Decoder::optional_bytes(const char* name, std::optional<Bytes>& value, const QuantityRule& rule) {
  const Json* found = find(name, Presence::kOptional);
  if (found == nullptr) {
    return;
  }
  const FieldPath path(path_, name);
  const std::optional<std::string_view> text = view_of(*found);
  if (found->isInt64() && found->type() != ::Json::realValue) {
    value = Bytes{found->asInt64()};
  } else if (text && static_cast<std::int64_t>(text->size()) <= rule.longest && rule.matches(*text)) {
    const Result<Bytes> bytes = parse_bytes(*text);
    if (!bytes) {
      errors_.add(path, bytes.error().message);
      return;
    }
    value = *bytes;
  } else {
    errors_.add(path,
                "must be a quantity of bytes like 80Gi, is " + (text ? quoted(*text) : kind_of(*found)));
    return;
  }
  if (value->count < rule.least) {
    errors_.add(path, "must be at least " + std::to_string(rule.least));
  }
}

void Decoder::percentage(const char* name, double& value, Presence presence, const TextRule& rule) {
  const Json* found = find(name, presence);
  if (found == nullptr) {
    return;
  }
  const std::optional<std::string_view> text = view_of(*found);
  if (!text || !obeys(rule, *text)) {
    errors_.add(FieldPath(path_, name),
                std::string("must be ") + rule.form + ", is " + (text ? quoted(*text) : kind_of(*found)));
    return;
  }
  if (const Result<double> share = parse_percentage(*text)) {
    value = *share;
  }
}

void Decoder::read_integer(const Json& found, const FieldPath& path, std::int64_t& value) {
  if (found.isInt64()) {
    value = found.asInt64();
  } else {
    errors_.add(path, wrong_kind("an integer", found));
  }
}

void Decoder::read_text(const Json& found, const FieldPath& path, std::string& value) {
  if (const std::optional<std::string_view> text = view_of(found)) {
    value = *text;
  } else {
    errors_.add(path, wrong_kind("a string", found));
  }
}

std::optional<double> Decoder::read_decimal(const Json& found, const FieldPath& path,
                                            const DecimalRule& rule) {
  const std::optional<std::string_view> text = view_of(found);
  if (text && static_cast<std::int64_t>(text->size()) <= rule.longest && rule.matches(*text)) {
    double value = 0;
    std::from_chars(text->data(), text->data() + text->size(), value);
    return value;
  }
  if (found.isInt64() && found.type() != ::Json::realValue && found.asInt64() >= rule.integers.least &&
      found.asInt64() <= rule.integers.most) {
    return static_cast<double>(found.asInt64());
  }
  errors_.add(path, std::string("must be ") + rule.form + ", is " +
                        (text              ? quoted(*text)
                         : found.isInt64() ? found.asString()
                                           : kind_of(found)));
  return std::nullopt;
}

}  // namespace plimsoll::crds
