#include "cli/explanation.h"

#include <algorithm>
#include <cstdint>
#include <variant>

namespace plimsoll::cli {
namespace {

constexpr std::size_t kWidth = 100;

// Words in lines of at most kWidth, each after the indent.
std::string wrapped(const std::string& first_indent, const std::string& indent, const std::string& text) {
  std::string result;
  std::string line = first_indent;
  bool empty = true;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (!empty && line.size() + 1 + word.size() > kWidth) {
      result += line + "\n";
      line = indent;
      empty = true;
    }
    line += (empty ? "" : " ") + word;
    empty = false;
    at = end + 1;
  }
  return result + line + "\n";
}

bool is_bytes(const std::string& name) {
  return name.ends_with("Bytes");
}

std::string figure_text(const estimator::Figure& figure) {
  if (const auto* number = std::get_if<std::int64_t>(&figure.value)) {
    return figure.name + " " + std::to_string(*number) +
           (is_bytes(figure.name) ? " (" + to_string(Bytes{*number}) + ")" : "");
  }
  return figure.name + " " + std::get<std::string>(figure.value);
}

template <class List, class Text>
std::string joined(const List& list, const char* separator, Text text) {
  std::string result;
  for (const auto& item : list) {
    result += (result.empty() ? "" : separator) + text(item);
  }
  return result;
}

}  // namespace

std::string explanation_text(const std::vector<estimator::PartExplanation>& parts) {
  const std::string indent = "            ";
  std::string text = "  how each part was computed\n";
  for (const estimator::PartExplanation& part : parts) {
    text += "    " + part.part + ": " + to_string(part.bytes) + "\n";
    text += wrapped("      rule:   ", indent + "  ", part.rule);
    text += wrapped("      source: ", indent + "  ",
                    joined(part.sources, "; ", [](const std::string& source) { return source; }));
    text += wrapped("      from:   ", indent + "  ", joined(part.figures, ", ", figure_text));
  }
  return text;
}

}  // namespace plimsoll::cli
