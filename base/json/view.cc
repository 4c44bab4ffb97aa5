#include "base/json/view.h"

#include <simdjson.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <vector>

#include "base/json/packed_format.h"

namespace plimsoll {
namespace {

namespace dom = simdjson::dom;

template <class Theirs>
Theirs theirs(const std::array<std::byte, 16>& bytes) {
  static_assert(sizeof(Theirs) == sizeof(bytes));
  return std::bit_cast<Theirs>(bytes);
}

template <class Theirs>
std::array<std::byte, 16> ours(const Theirs& value) {
  return std::bit_cast<std::array<std::byte, 16>>(value);
}

template <class T>
std::optional<T> value_of(const dom::element& element) {
  T value{};
  if (element.get(value) != simdjson::SUCCESS) {
    return std::nullopt;
  }
  return value;
}

// Containers of 2^24 - 1 and more are counted by walking them, since simdjson's count stops there.
constexpr std::size_t kCountLimit = 0xFFFFFF;

template <class Container>
std::size_t size_of(const Container& container) {
  const std::size_t size = container.size();
  if (size < kCountLimit) {
    return size;
  }
  std::size_t counted = 0;
  for (auto each = container.begin(); each != container.end(); ++each) {
    ++counted;
  }
  return counted;
}

JsonView::Kind kind_of(const dom::element& element) {
  switch (element.type()) {
    case dom::element_type::ARRAY: return JsonView::Kind::kArray;
    case dom::element_type::OBJECT: return JsonView::Kind::kObject;
    case dom::element_type::INT64:
    case dom::element_type::UINT64: return JsonView::Kind::kInteger;
    case dom::element_type::DOUBLE: return JsonView::Kind::kReal;
    case dom::element_type::STRING: return JsonView::Kind::kString;
    case dom::element_type::BOOL: return JsonView::Kind::kBoolean;
    case dom::element_type::NULL_VALUE: return JsonView::Kind::kNull;
  }
  return JsonView::Kind::kNull;
}

JsonView::Kind kind_of(const Json& tree) {
  switch (tree.type()) {
    case ::Json::nullValue: return JsonView::Kind::kNull;
    case ::Json::booleanValue: return JsonView::Kind::kBoolean;
    case ::Json::intValue:
    case ::Json::uintValue: return JsonView::Kind::kInteger;
    case ::Json::realValue: return JsonView::Kind::kReal;
    case ::Json::stringValue: return JsonView::Kind::kString;
    case ::Json::arrayValue: return JsonView::Kind::kArray;
    case ::Json::objectValue: return JsonView::Kind::kObject;
  }
  return JsonView::Kind::kNull;
}

std::string_view text_of(const Json& tree) {
  const char* begin = nullptr;
  const char* end = nullptr;
  tree.getString(&begin, &end);
  return {begin, static_cast<std::size_t>(end - begin)};
}

// Calls `read` with what a view holds: simdjson's element, the place of a packed value, or a tree.
template <class Held, class Read>
auto with_form(const Held& held, const Read& read) {
  if (const auto* element = std::get_if<0>(&held)) {
    return read(theirs<dom::element>(*element));
  }
  if (const auto* tree = std::get_if<1>(&held)) {
    return read(**tree);
  }
  return read(std::get<2>(held).at);
}

template <class... Reads>
struct Forms : Reads... {
  using Reads::operator()...;
};
template <class... Reads>
Forms(Reads...) -> Forms<Reads...>;  // clang before 17 deduces none for aggregates

std::vector<JsonView::Member> sorted_members(const JsonView& object) {
  std::vector<JsonView::Member> members;
  members.reserve(object.members().size());
  for (const JsonView::Member& member : object.members()) {
    members.push_back(member);
  }
  std::stable_sort(members.begin(), members.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  return members;
}

bool repeats_a_key(const dom::object& object) {
  std::vector<std::string_view> keys;
  for (const dom::key_value_pair member : object) {
    keys.push_back(member.key);
  }
  std::sort(keys.begin(), keys.end());
  return std::adjacent_find(keys.begin(), keys.end()) != keys.end();
}

// What parse_json refuses: a key that is twice in its object, or nesting beyond the limit.
bool breaks_a_rule_of_trees(const dom::element& value, int depth) {
  const dom::element_type type = value.type();
  if (type != dom::element_type::OBJECT && type != dom::element_type::ARRAY) {
    return false;
  }
  if (depth > kJsonDepthLimit) {
    return true;
  }
  if (type == dom::element_type::ARRAY) {
    const dom::array array = value;
    return std::any_of(array.begin(), array.end(),
                       [&](const dom::element& each) { return breaks_a_rule_of_trees(each, depth + 1); });
  }
  const dom::object object = value;
  bool ascending = true;  // as the API server writes most objects: then no key is twice in it
  std::optional<std::string_view> last;
  for (const dom::key_value_pair member : object) {
    ascending = ascending && (!last || *last < member.key);
    last = member.key;
    if (breaks_a_rule_of_trees(member.value, depth + 1)) {
      return true;
    }
  }
  return !ascending && repeats_a_key(object);
}

}  // namespace

JsonView::Kind JsonView::kind() const {
  return with_form(value_, Forms{[](const char* packed) { return packed::kind(packed); },
                                 [](const auto& other) { return kind_of(other); }});
}

std::optional<bool> JsonView::boolean() const {
  return with_form(value_, Forms{[](const dom::element& element) { return value_of<bool>(element); },
                                 [](const char* packed) { return packed::boolean(packed); },
                                 [](const Json& tree) {
                                   return tree.isBool() ? std::optional(tree.asBool()) : std::nullopt;
                                 }});
}

std::optional<std::int64_t> JsonView::integer() const {
  using Integer = std::optional<std::int64_t>;
  return with_form(value_, Forms{[](const dom::element& element) { return value_of<std::int64_t>(element); },
                                 [](const char* packed) { return packed::integer(packed); },
                                 [](const Json& tree) {
                                   const bool fits = kind_of(tree) == Kind::kInteger && tree.isInt64();
                                   return fits ? Integer(tree.asInt64()) : std::nullopt;
                                 }});
}

std::optional<std::uint64_t> JsonView::unsigned_integer() const {
  using Integer = std::optional<std::uint64_t>;
  return with_form(value_, Forms{[](const dom::element& element) { return value_of<std::uint64_t>(element); },
                                 [](const char* packed) { return packed::unsigned_integer(packed); },
                                 [](const Json& tree) {
                                   const bool fits = kind_of(tree) == Kind::kInteger && tree.isUInt64();
                                   return fits ? Integer(tree.asUInt64()) : std::nullopt;
                                 }});
}

std::optional<double> JsonView::number() const {
  return with_form(value_, Forms{[](const dom::element& element) { return value_of<double>(element); },
                                 [](const char* packed) { return packed::number(packed); },
                                 [](const Json& tree) {
                                   return tree.isNumeric() ? std::optional(tree.asDouble()) : std::nullopt;
                                 }});
}

std::optional<std::string_view> JsonView::text() const {
  return with_form(
      value_,
      Forms{[](const dom::element& element) { return value_of<std::string_view>(element); },
            [](const char* packed) { return packed::text(packed); },
            [](const Json& tree) { return tree.isString() ? std::optional(text_of(tree)) : std::nullopt; }});
}

template <class Item, class Theirs>
JsonRange<Item> JsonView::range(Kind of, ::Json::ValueType of_trees) const {
  JsonRange<Item> range;
  if (const Element* element = std::get_if<Element>(&value_)) {
    Theirs container;
    if (theirs<dom::element>(*element).get(container) == simdjson::SUCCESS) {
      range.begin_.place_ = ours(container.begin());
      range.end_.place_ = ours(container.end());
      range.size_ = size_of(container);
    }
  } else if (const Packed* packed = std::get_if<Packed>(&value_)) {
    if (packed::kind(packed->at) == of) {
      const packed::Contents contents = packed::contents(packed->at);
      range.begin_.place_ = Packed{contents.begin};
      range.end_.place_ = Packed{contents.end};
      range.size_ = contents.count;
    }
  } else if (const Json& tree = *std::get<const Json*>(value_); tree.type() == of_trees) {
    range.begin_.place_ = tree.begin();
    range.end_.place_ = tree.end();
    range.size_ = tree.size();
  }
  return range;
}

JsonRange<JsonView> JsonView::elements() const {
  return range<JsonView, dom::array>(Kind::kArray, ::Json::arrayValue);
}

JsonRange<JsonView::Member> JsonView::members() const {
  return range<Member, dom::object>(Kind::kObject, ::Json::objectValue);
}

std::optional<JsonView> JsonView::member(std::string_view name) const {
  if (const Element* element = std::get_if<Element>(&value_)) {
    dom::element found;
    if (theirs<dom::element>(*element).at_key(name).get(found) == simdjson::SUCCESS) {
      return JsonView(ours(found));
    }
    return std::nullopt;
  }
  if (std::holds_alternative<Packed>(value_)) {
    const JsonRange<Member> all = members();
    for (auto each = all.begin(); each != all.end(); ++each) {
      if (const auto [key, value] = *each; key == name) {
        return value;
      }
    }
    return std::nullopt;
  }
  const Json& tree = *std::get<const Json*>(value_);
  const Json* found = tree.isObject() ? tree.find(name.data(), name.data() + name.size()) : nullptr;
  return found != nullptr ? std::optional(JsonView(*found)) : std::nullopt;
}

template <>
JsonView JsonRange<JsonView>::Iterator::operator*() const {
  if (const JsonView::Element* place = std::get_if<JsonView::Element>(&place_)) {
    return JsonView(ours(*theirs<dom::array::iterator>(*place)));
  }
  if (const JsonView::Packed* place = std::get_if<JsonView::Packed>(&place_)) {
    return JsonView(*place);
  }
  return {*std::get<Json::const_iterator>(place_)};
}

template <>
JsonRange<JsonView>::Iterator& JsonRange<JsonView>::Iterator::operator++() {
  if (JsonView::Element* place = std::get_if<JsonView::Element>(&place_)) {
    auto next = theirs<dom::array::iterator>(*place);
    *place = ours(++next);
  } else if (JsonView::Packed* packed = std::get_if<JsonView::Packed>(&place_)) {
    packed->at = packed::behind(packed->at);
  } else {
    ++std::get<Json::const_iterator>(place_);
  }
  return *this;
}

template <>
JsonView::Member JsonRange<JsonView::Member>::Iterator::operator*() const {
  if (const JsonView::Element* place = std::get_if<JsonView::Element>(&place_)) {
    const auto at = theirs<dom::object::iterator>(*place);
    return {at.key(), JsonView(ours(at.value()))};
  }
  if (const JsonView::Packed* name = std::get_if<JsonView::Packed>(&place_)) {
    return {*packed::text(name->at), JsonView(JsonView::Packed{packed::behind(name->at)})};
  }
  const Json::const_iterator& at = std::get<Json::const_iterator>(place_);
  const char* end = nullptr;
  const char* begin = at.memberName(&end);
  return {std::string_view(begin, static_cast<std::size_t>(end - begin)), JsonView(*at)};
}

template <>
JsonRange<JsonView::Member>::Iterator& JsonRange<JsonView::Member>::Iterator::operator++() {
  if (JsonView::Element* place = std::get_if<JsonView::Element>(&place_)) {
    auto next = theirs<dom::object::iterator>(*place);
    *place = ours(++next);
  } else if (JsonView::Packed* name = std::get_if<JsonView::Packed>(&place_)) {
    name->at = packed::behind(packed::behind(name->at));
  } else {
    ++std::get<Json::const_iterator>(place_);
  }
  return *this;
}

bool operator==(const JsonView& a, const JsonView& b) {
  const JsonView::Kind kind = a.kind();
  if (kind != b.kind()) {
    return false;
  }
  switch (kind) {
    case JsonView::Kind::kNull: return true;
    case JsonView::Kind::kBoolean: return a.boolean() == b.boolean();
    case JsonView::Kind::kInteger:
      return a.integer() == b.integer() && a.unsigned_integer() == b.unsigned_integer();
    case JsonView::Kind::kReal: return a.number() == b.number();
    case JsonView::Kind::kString: return a.text() == b.text();
    case JsonView::Kind::kArray: {
      const auto elements = a.elements();
      const auto others = b.elements();
      auto other = others.begin();
      bool equal = elements.size() == others.size();
      for (auto each = elements.begin(); equal && each != elements.end(); ++each, ++other) {
        equal = *each == *other;
      }
      return equal;
    }
    case JsonView::Kind::kObject:
      return a.members().size() == b.members().size() && sorted_members(a) == sorted_members(b);
  }
  return false;
}

JsonView member(const JsonView& value, std::initializer_list<std::string_view> path) {
  JsonView here = value;
  for (const std::string_view key : path) {
    const std::optional<JsonView> next = here.member(key);
    if (!next) {
      return {};
    }
    here = *next;
  }
  return here;
}

std::string text_member(const JsonView& value, std::initializer_list<std::string_view> path) {
  return std::string(member(value, path).text().value_or(""));
}

Json tree_of(const JsonView& value) {
  switch (value.kind()) {
    case JsonView::Kind::kNull: return {};
    case JsonView::Kind::kBoolean: return *value.boolean();
    case JsonView::Kind::kInteger:
      return value.integer() ? Json(static_cast<::Json::Int64>(*value.integer()))
                             : Json(static_cast<::Json::UInt64>(*value.unsigned_integer()));
    case JsonView::Kind::kReal: return *value.number();
    case JsonView::Kind::kString: {
      const std::string_view text = *value.text();
      return {text.data(), text.data() + text.size()};
    }
    case JsonView::Kind::kArray: {
      Json tree(::Json::arrayValue);
      for (const JsonView element : value.elements()) {
        tree.append(tree_of(element));
      }
      return tree;
    }
    case JsonView::Kind::kObject: {
      Json tree(::Json::objectValue);
      for (const auto& [key, inner] : value.members()) {
        tree[std::string(key)] = tree_of(inner);
      }
      return tree;
    }
  }
  return {};
}

struct JsonText::Parsed {
  dom::parser parser;
  dom::element root;
};

Result<JsonText> JsonText::parse(std::string_view text) {
  if (text.size() >= std::numeric_limits<std::uint32_t>::max()) {
    return Error(ErrorCode::kTooLarge, "the JSON text exceeds 4 GiB");
  }
  auto parsed = std::make_unique<Parsed>();
  // simdjson counts a level for the root, and refuses at its limit, not above.
  constexpr std::size_t kDepth = kJsonDepthLimit + 2;
  simdjson::error_code code = parsed->parser.allocate(std::max<std::size_t>(text.size(), 64), kDepth);
  if (code == simdjson::SUCCESS) {
    code = parsed->parser.parse(text.data(), text.size()).get(parsed->root);
  }
  if (code != simdjson::SUCCESS) {
    return invalid(std::string("not JSON: ") + simdjson::error_message(code));
  }
  return JsonText(std::move(parsed));
}

Result<JsonText> JsonText::parse_as_tree(std::string_view text) {
  Result<JsonText> parsed = parse(text);
  if (parsed && !breaks_a_rule_of_trees(parsed->parsed_->root, 1)) {
    return parsed;
  }
  const Result<Json> tree = parse_json(text);
  return tree ? parse(write_json(*tree)) : Result<JsonText>(tree.error());
}

JsonView JsonText::root() const {
  return JsonView(ours(parsed_->root));
}

JsonText::JsonText(std::unique_ptr<Parsed> parsed) : parsed_(std::move(parsed)) {}
JsonText::JsonText(JsonText&&) noexcept = default;
JsonText& JsonText::operator=(JsonText&&) noexcept = default;
JsonText::~JsonText() = default;

}  // namespace plimsoll
