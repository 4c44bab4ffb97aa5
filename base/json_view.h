// JsonText and JsonView: reads large JSON files, millions of values in milliseconds, without copying them
// (simdjson). For Kubernetes objects, which are small and get changed, there is base/json.h.
//
//   Result<JsonText> text = JsonText::parse(content);
//   if (!text) return text.error();
//   for (const auto& [key, value] : text->root().members()) {
//     if (std::optional<std::int64_t> count = value.integer()) use(*count);
//   }
//
// A view looks into its JsonText and must not outlive it; it is a small value. As strict as RFC 8259: NaN,
// trailing text, invalid UTF-8 and lone surrogates are errors. Duplicate keys are all there: a reader that
// minds looks at members(). Reading from several threads is safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace plimsoll {

class JsonArrayView;
class JsonObjectView;

class JsonView {
 public:
  enum class Kind { kNull, kBoolean, kInteger, kReal, kString, kArray, kObject };

  Kind kind() const;
  // Nothing when the value is of another kind; `integer` also when it does not fit 64 bits.
  std::optional<bool> boolean() const;
  std::optional<std::int64_t> integer() const;
  std::optional<double> number() const;
  std::optional<std::string_view> text() const;
  // Empty for a value of another kind: ask kind() first where that is an error.
  JsonArrayView elements() const;
  JsonObjectView members() const;
  // The first member of that name.
  std::optional<JsonView> member(std::string_view name) const;

 private:
  friend class JsonText;
  friend class JsonArrayView;
  friend class JsonObjectView;
  // A simdjson::dom::element, whose header is too large to include here.
  using Element = std::array<std::byte, 16>;
  explicit JsonView(const Element& element) : element_(element) {}

  alignas(8) Element element_;
};

class JsonArrayView {
 public:
  class Iterator {
   public:
    JsonView operator*() const;
    Iterator& operator++();
    bool operator!=(const Iterator& other) const;

   private:
    friend class JsonView;
    alignas(8) JsonView::Element place_{};
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

class JsonObjectView {
 public:
  class Iterator {
   public:
    std::pair<std::string_view, JsonView> operator*() const;
    Iterator& operator++();
    bool operator!=(const Iterator& other) const;

   private:
    friend class JsonView;
    alignas(8) JsonView::Element place_{};
  };

  std::size_t size() const { return size_; }
  Iterator begin() const { return begin_; }
  Iterator end() const { return end_; }

 private:
  friend class JsonView;
  Iterator begin_;
  Iterator end_;
  std::size_t size_ = 0;
};

class JsonText {
 public:
  // Errors: kInvalid, saying what is wrong; kTooLarge beyond simdjson's 4 GiB. Nesting as in base/json.h.
  static Result<JsonText> parse(std::string_view text);

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
