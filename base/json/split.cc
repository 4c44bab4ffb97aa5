#include "base/json/split.h"

namespace plimsoll {
namespace {

constexpr int kMembers = 1;   // the depth of the outermost object's
constexpr int kElements = 2;  // and of its arrays'

// The closing quote of the string that begins at `begin`; npos: there is none.
std::size_t end_of_string(std::string_view text, std::size_t begin) {
  for (std::size_t i = begin + 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      return i;
    }
  }
  return std::string_view::npos;
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace

std::optional<SplitArray> split_array(std::string_view text, std::string_view member) {
  SplitArray split;
  int depth = 0;
  std::string_view name;            // of the member whose value comes next
  std::size_t array = text.npos;    // the position after the opening bracket of the array that is looked for
  std::size_t element = text.npos;  // the position where the element begins
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_of_array = array != text.npos && depth == kElements;
    switch (text[i]) {
      case '"': {
        const std::size_t end = end_of_string(text, i);
        if (end == text.npos) {
          return std::nullopt;
        }
        if (depth == kMembers) {
          name = text.substr(i + 1, end - i - 1);
        }
        i = end;
        break;
      }
      case '{':
      case '[':
        if (++depth == kElements && array == text.npos && text[i] == '[' && name == member) {
          array = element = i + 1;
        }
        break;
      case ',':
        if (is_of_array) {
          split.elements.push_back(text.substr(element, i - element));
          element = i + 1;
        }
        break;
      case '}':
      case ']':
        if (is_of_array) {
          const std::string_view last = text.substr(element, i - element);
          if (!split.elements.empty() || !is_blank(last)) {
            split.elements.push_back(last);
          }
          split.rest.append(text.substr(0, array)).append(text.substr(i));
          return split;
        }
        --depth;
        break;
      default: break;
    }
  }
  return std::nullopt;
}

}  // namespace plimsoll
