// JsonText and JsonView: reads JSON without building a tree of it (simdjson), millions of values in
// milliseconds. A view shows a value of such a text, of a tree (base/json/json.h) or of a packed value
// (base/json/packed.h), so that what reads views reads all three.
//
//   Result<JsonText> text = JsonText::parse(content);
//   if (!text) return text.error();
//   for (const auto& [key, value] : text->root().members()) {
//     if (std::optional<std::int64_t> count = value.integer()) use(*count);
//   }
//
// A view looks into what it shows and must not outlive it; it is a small value. Texts are read as
// strictly as RFC 8259 has it: NaN, trailing text, invalid UTF-8 and lone surrogates are errors. Reading from
// several threads is safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/json/json.h"
#include "base/result.h"

namespace plimsoll {

template <class Item>
class JsonRange;

class JsonView {
 public:
  enum class Kind { kNull, kBoolean, kInteger, kReal, kString, kArray, kObject };
  using Member = std::pair<std::string_view, JsonView>;

  JsonView() : JsonView(Json::nullSingleton()) {}
  JsonView(const Json& tree) : value_(&tree) {}  // NOLINT(google-explicit-constructor): it is that value

  Kind kind() const;
  bool is_null() const { return kind() == Kind::kNull; }
  bool is_array() const { return kind() == Kind::kArray; }
  bool is_object() const { return kind() == Kind::kObject; }
  // Nothing when the value is of another kind; an integer also when it does not fit 64 bits.
  std::optional<bool> boolean() const;
  std::optional<std::int64_t> integer() const;
  std::optional<std::uint64_t> unsigned_integer() const;
  std::optional<double> number() const;
  std::optional<std::string_view> text() const;
  // Empty for a value of another kind: check kind() first where that is an error.
  JsonRange<JsonView> elements() const;
  JsonRange<Member> members() const;
  // The first member of that name.
  std::optional<JsonView> member(std::string_view name) const;

 private:
  friend class JsonText;
  friend class PackedJson;
  template <class Item>
  friend class JsonRange;
  // A simdjson::dom::element, whose header is too large to include here.
  using Element = std::array<std::byte, 16>;
  explicit JsonView(const Element& element) : value_(element) {}
  struct Packed {  // base/json/packed_format.h
    const char* at = nullptr;
    friend bool operator==(const Packed&, const Packed&) = default;
  };
  explicit JsonView(Packed packed) : value_(packed) {}
  template <class Item, class Theirs>
  JsonRange<Item> range(Kind of, ::Json::ValueType of_trees) const;

  std::variant<Element, const Json*, Packed> value_;
};

// The elements of an array, or the members of an object.
template <class Item>
class JsonRange {
 public:
  class Iterator {
   public:
    Item operator*() const;
    Iterator& operator++();
    bool operator!=(const Iterator& other) const { return place_ != other.place_; }

   private:
    friend class JsonView;
    std::variant<JsonView::Element, Json::const_iterator, JsonView::Packed> place_{};
  };

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  Iterator begin() const { return begin_; }
  Iterator end() const { return end_; }

 private:
  friend class JsonView;
  Iterator begin_;
  Iterator end_;
  std::size_t size_ = 0;
};

template <>
JsonView JsonRange<JsonView>::Iterator::operator*() const;
template <>
JsonRange<JsonView>::Iterator& JsonRange<JsonView>::Iterator::operator++();
template <>
JsonView::Member JsonRange<JsonView::Member>::Iterator::operator*() const;
template <>
JsonRange<JsonView::Member>::Iterator& JsonRange<JsonView::Member>::Iterator::operator++();

// Of the same kind and content, whatever the order of members. Linear but for sorting them.
bool operator==(const JsonView& a, const JsonView& b);

// As for trees (base/json/json.h): the value at a path of object keys, null where there is none.
JsonView member(const JsonView& value, std::initializer_list<std::string_view> path);
std::string text_member(const JsonView& value, std::initializer_list<std::string_view> path);

// The value as a tree of its own.
Json tree_of(const JsonView& value);

class JsonText {
 public:
  // Duplicate keys are kept: a reader that must refuse them looks at members(). Errors: kInvalid, saying what is
  // wrong, also for an integer beyond 64 bits; kTooLarge beyond simdjson's 4 GiB. Nesting as in base/json/json.h.
  static Result<JsonText> parse(std::string_view text);

  // Accepts what parse_json accepts: duplicate keys are errors, and integers beyond 64 bits are reals.
  // Errors are parse_json's, with line and column.
  static Result<JsonText> parse_as_tree(std::string_view text);

  JsonView root() const;

  JsonText(JsonText&&) noexcept;
  JsonText& operator=(JsonText&&) noexcept;
  ~JsonText();

 private:
  struct Parsed;
  explicit JsonText(std::unique_ptr<Parsed> parsed);
  std::unique_ptr<Parsed> parsed_;
};

}  // namespace plimsoll
