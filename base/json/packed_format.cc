#include "base/json/packed_format.h"

#include <algorithm>
#include <cstring>

#include "base/json/shared_words.h"

namespace plimsoll::packed {
namespace {

enum class Tag : char { kNull, kFalse, kTrue, kInteger, kLargeInteger, kReal, kText, kWord, kArray, kObject };

Tag tag(const char* value) {
  return static_cast<Tag>(*value);
}

void append_tag(Tag tag, std::string& to) {
  to += static_cast<char>(tag);
}

constexpr unsigned kVarintBits = 7;
constexpr std::uint64_t kMore = 1U << kVarintBits;

void append_varint(std::uint64_t number, std::string& to) {
  for (; number >= kMore; number >>= kVarintBits) {
    to += static_cast<char>(number | kMore);
  }
  to += static_cast<char>(number);
}

// Moves `from` past it.
std::uint64_t take_varint(const char*& from) {
  std::uint64_t number = 0;
  for (unsigned shift = 0;; shift += kVarintBits) {
    const auto byte = static_cast<unsigned char>(*from++);
    number |= (byte & (kMore - 1)) << shift;
    if (byte < kMore) {
      return number;
    }
  }
}

template <class Number>
void append_bytes(Number number, std::string& to) {
  to.append(reinterpret_cast<const char*>(&number), sizeof number);
}

template <class Number>
Number bytes_at(const char* from) {
  Number number;
  std::memcpy(&number, from, sizeof number);
  return number;
}

std::uint64_t zigzag(std::int64_t number) {
  const auto bits = static_cast<std::uint64_t>(number);
  return number < 0 ? ~(bits << 1) : bits << 1;
}

std::int64_t from_zigzag(std::uint64_t number) {
  const std::uint64_t half = number >> 1;
  return static_cast<std::int64_t>((number & 1) != 0 ? ~half : half);
}

// Conditions, phases, reasons, kinds: letters with a capital first, as Kubernetes writes enumerated values.
bool is_enumerated(std::string_view text) {
  return !text.empty() && text.front() >= 'A' && text.front() <= 'Z' &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); });
}

void append_text(std::string_view text, bool may_be_shared, std::string& to) {
  if (const std::optional<WordNumber> word = may_be_shared ? shared_word(text) : std::nullopt) {
    append_tag(Tag::kWord, to);
    append_bytes(*word, to);
    return;
  }
  append_tag(Tag::kText, to);
  append_varint(text.size(), to);
  to += text;
}

// What was appended from `body` on is the contents of an array or object.
void close(Tag tag, std::size_t count, std::size_t body, std::string& to) {
  std::string head;
  append_tag(tag, head);
  append_varint(count, head);
  append_varint(to.size() - body, head);
  to.insert(body, head);
}

}  // namespace

void append(const JsonView& value, const JsonSelection* kept, std::string& to) {
  const std::size_t begin = to.size();
  switch (value.kind()) {
    case JsonView::Kind::kNull: append_tag(Tag::kNull, to); break;
    case JsonView::Kind::kBoolean: append_tag(*value.boolean() ? Tag::kTrue : Tag::kFalse, to); break;
    case JsonView::Kind::kInteger:
      if (const std::optional<std::int64_t> number = value.integer()) {
        append_tag(Tag::kInteger, to);
        append_varint(zigzag(*number), to);
      } else {
        append_tag(Tag::kLargeInteger, to);
        append_bytes(*value.unsigned_integer(), to);
      }
      break;
    case JsonView::Kind::kReal:
      append_tag(Tag::kReal, to);
      append_bytes(*value.number(), to);
      break;
    case JsonView::Kind::kString: append_text(*value.text(), is_enumerated(*value.text()), to); break;
    case JsonView::Kind::kArray: {
      std::size_t count = 0;
      for (const JsonView element : value.elements()) {
        append(element, kept, to);
        ++count;
      }
      close(Tag::kArray, count, begin, to);
      break;
    }
    case JsonView::Kind::kObject: {
      std::size_t count = 0;
      for (const auto& [name, inner] : value.members()) {
        if (kept == nullptr || kept->keeps(name)) {
          append_text(name, true, to);
          append(inner, kept == nullptr ? nullptr : kept->below(name), to);
          ++count;
        }
      }
      close(Tag::kObject, count, begin, to);
      break;
    }
  }
}

const char* behind(const char* value) {
  const char* rest = value + 1;
  switch (tag(value)) {
    case Tag::kNull:
    case Tag::kFalse:
    case Tag::kTrue: return rest;
    case Tag::kInteger: take_varint(rest); return rest;
    case Tag::kLargeInteger: return rest + sizeof(std::uint64_t);
    case Tag::kReal: return rest + sizeof(double);
    case Tag::kWord: return rest + sizeof(WordNumber);
    case Tag::kText: {
      const std::uint64_t size = take_varint(rest);
      return rest + size;
    }
    case Tag::kArray:
    case Tag::kObject: return contents(value).end;
  }
  return rest;
}

JsonView::Kind kind(const char* value) {
  switch (tag(value)) {
    case Tag::kNull: return JsonView::Kind::kNull;
    case Tag::kFalse:
    case Tag::kTrue: return JsonView::Kind::kBoolean;
    case Tag::kInteger:
    case Tag::kLargeInteger: return JsonView::Kind::kInteger;
    case Tag::kReal: return JsonView::Kind::kReal;
    case Tag::kText:
    case Tag::kWord: return JsonView::Kind::kString;
    case Tag::kArray: return JsonView::Kind::kArray;
    case Tag::kObject: return JsonView::Kind::kObject;
  }
  return JsonView::Kind::kNull;
}

std::optional<bool> boolean(const char* value) {
  return kind(value) == JsonView::Kind::kBoolean ? std::optional(tag(value) == Tag::kTrue) : std::nullopt;
}

std::optional<std::int64_t> integer(const char* value) {
  const char* rest = value + 1;
  return tag(value) == Tag::kInteger ? std::optional(from_zigzag(take_varint(rest))) : std::nullopt;
}

std::optional<std::uint64_t> unsigned_integer(const char* value) {
  if (tag(value) == Tag::kLargeInteger) {
    return bytes_at<std::uint64_t>(value + 1);
  }
  const std::optional<std::int64_t> number = integer(value);
  return number && *number >= 0 ? std::optional(static_cast<std::uint64_t>(*number)) : std::nullopt;
}

std::optional<double> number(const char* value) {
  switch (tag(value)) {
    case Tag::kInteger: return static_cast<double>(*integer(value));
    case Tag::kLargeInteger: return static_cast<double>(bytes_at<std::uint64_t>(value + 1));
    case Tag::kReal: return bytes_at<double>(value + 1);
    default: return std::nullopt;
  }
}

std::optional<std::string_view> text(const char* value) {
  const char* rest = value + 1;
  if (tag(value) == Tag::kWord) {
    return text_of(bytes_at<WordNumber>(rest));
  }
  if (tag(value) != Tag::kText) {
    return std::nullopt;
  }
  const std::uint64_t size = take_varint(rest);
  return std::string_view(rest, size);
}

Contents contents(const char* value) {
  const char* rest = value + 1;
  const std::uint64_t count = take_varint(rest);
  const std::uint64_t size = take_varint(rest);
  return {rest, rest + size, count};
}

}  // namespace plimsoll::packed
