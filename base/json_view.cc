#include "base/json_view.h"

#include <simdjson.h>

#include <bit>
#include <limits>
#include <string>

#include "base/json.h"

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

}  // namespace

JsonView::Kind JsonView::kind() const {
  switch (theirs<dom::element>(element_).type()) {
    case dom::element_type::ARRAY: return Kind::kArray;
    case dom::element_type::OBJECT: return Kind::kObject;
    case dom::element_type::INT64: return Kind::kInteger;
    case dom::element_type::UINT64: return Kind::kInteger;
    case dom::element_type::DOUBLE: return Kind::kReal;
    case dom::element_type::STRING: return Kind::kString;
    case dom::element_type::BOOL: return Kind::kBoolean;
    case dom::element_type::NULL_VALUE: return Kind::kNull;
  }
  return Kind::kNull;
}

std::optional<bool> JsonView::boolean() const {
  return value_of<bool>(theirs<dom::element>(element_));
}

std::optional<std::int64_t> JsonView::integer() const {
  return value_of<std::int64_t>(theirs<dom::element>(element_));
}

std::optional<double> JsonView::number() const {
  return value_of<double>(theirs<dom::element>(element_));
}

std::optional<std::string_view> JsonView::text() const {
  return value_of<std::string_view>(theirs<dom::element>(element_));
}

JsonArrayView JsonView::elements() const {
  JsonArrayView view;
  dom::array array;
  if (theirs<dom::element>(element_).get(array) == simdjson::SUCCESS) {
    view.begin_.place_ = ours(array.begin());
    view.end_.place_ = ours(array.end());
    view.size_ = size_of(array);
  }
  return view;
}

JsonObjectView JsonView::members() const {
  JsonObjectView view;
  dom::object object;
  if (theirs<dom::element>(element_).get(object) == simdjson::SUCCESS) {
    view.begin_.place_ = ours(object.begin());
    view.end_.place_ = ours(object.end());
    view.size_ = size_of(object);
  }
  return view;
}

std::optional<JsonView> JsonView::member(std::string_view name) const {
  for (const auto& [key, value] : members()) {
    if (key == name) {
      return value;
    }
  }
  return std::nullopt;
}

JsonView JsonArrayView::Iterator::operator*() const {
  return JsonView(ours(*theirs<dom::array::iterator>(place_)));
}

JsonArrayView::Iterator& JsonArrayView::Iterator::operator++() {
  auto place = theirs<dom::array::iterator>(place_);
  place_ = ours(++place);
  return *this;
}

bool JsonArrayView::Iterator::operator!=(const Iterator& other) const {
  return place_ != other.place_;
}

std::pair<std::string_view, JsonView> JsonObjectView::Iterator::operator*() const {
  const auto place = theirs<dom::object::iterator>(place_);
  return {place.key(), JsonView(ours(place.value()))};
}

JsonObjectView::Iterator& JsonObjectView::Iterator::operator++() {
  auto place = theirs<dom::object::iterator>(place_);
  place_ = ours(++place);
  return *this;
}

bool JsonObjectView::Iterator::operator!=(const Iterator& other) const {
  return place_ != other.place_;
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
  simdjson::error_code code =
      parsed->parser.allocate(std::max<std::size_t>(text.size(), 64), kJsonDepthLimit);
  if (code == simdjson::SUCCESS) {
    code = parsed->parser.parse(text.data(), text.size()).get(parsed->root);
  }
  if (code != simdjson::SUCCESS) {
    return invalid(std::string("not JSON: ") + simdjson::error_message(code));
  }
  return JsonText(std::move(parsed));
}

JsonView JsonText::root() const {
  return JsonView(ours(parsed_->root));
}

JsonText::JsonText(std::unique_ptr<Parsed> parsed) : parsed_(std::move(parsed)) {}
JsonText::JsonText(JsonText&&) noexcept = default;
JsonText& JsonText::operator=(JsonText&&) noexcept = default;
JsonText::~JsonText() = default;

}  // namespace plimsoll
