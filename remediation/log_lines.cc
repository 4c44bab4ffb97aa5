#include "remediation/log_lines.h"

#include <algorithm>
#include <array>

#include "base/utf8.h"

namespace plimsoll::remediation {
namespace {

constexpr std::string_view kTraceback = "Traceback (most recent call last)";

// Of a message of several lines (NCCL's, CUDA's), which ends before an empty line.
constexpr std::size_t kMaxMessageLines = 10;

// A longer text is not a prefix, and no line has more prefixes.
constexpr std::size_t kMaxPrefix = 80;
constexpr int kMaxPrefixes = 8;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool has_digit(std::string_view text) {
  return std::any_of(text.begin(), text.end(), is_digit);
}

std::string_view without_line_end(std::string_view line) {
  return line.substr(0, line.find_last_not_of(" \r") + 1);
}

// "[rank0]: ", "[1,3]<stderr>:", "(RayTrainWorker pid=4) ": text in brackets, and a colon after it.
std::size_t bracketed(std::string_view text) {
  constexpr std::string_view kOpen = "[(<";
  constexpr std::string_view kClose = "])>";
  const std::size_t kind = kOpen.find(text.front());
  const std::size_t close = kind == kOpen.npos ? text.npos : text.find(kClose[kind]);
  if (close == text.npos || close > kMaxPrefix) {
    return 0;
  }
  return close + 1 < text.size() && text[close + 1] == ':' ? close + 2 : close + 1;
}

// "2026-11-21T08:30:00.123Z ", "704.7s ", "0: " of srun, "worker-1: " of pdsh: a word that ends with a colon,
// or a time. Both have a digit; neither has the capital letters that names of exceptions have.
std::size_t labelled(std::string_view text) {
  const std::size_t end = std::min(text.find_first_of(" \t"), text.size());
  const std::string_view word = text.substr(0, end);
  if (word.empty() || word.size() > kMaxPrefix || !has_digit(word)) {
    return 0;
  }
  const bool host = word.back() == ':' && std::all_of(word.begin(), word.end(), [](char c) {
                      return is_digit(c) || (c >= 'a' && c <= 'z') || c == '-' || c == '.' || c == ':';
                    });
  const bool time = word.find_first_not_of("0123456789TZs:.,+-/") == word.npos && is_digit(word.front());
  return host || time ? end : 0;
}

// "ERROR 01-11 13:09:40 engine.py:366] ", "E0113 12:00:00.000001 17 client.h:75] " of glog, absl and vLLM: what ends with a line's number and a
// bracket.
std::size_t located(std::string_view text) {
  const std::size_t close = text.find("] ");
  if (close == text.npos || close > kMaxPrefix || close < 2 || !is_digit(text[close - 1]) ||
      text.find('[') < close) {
    return 0;
  }
  const std::size_t before = text.find_last_not_of("0123456789", close - 1);
  const bool file = before != text.npos && before > 0 && text[before] == ':' &&
                    (is_letter(text[before - 1]) || text[before - 1] == '_');
  return file ? close + 1 : 0;
}

// The rest after the prefixes, indentation included.
std::string_view without_prefixes(std::string_view line) {
  std::string_view rest = line;
  for (int i = 0; i < kMaxPrefixes; ++i) {
    const std::size_t begin = rest.find_first_not_of(" \t|");
    if (begin == rest.npos) {
      return rest.substr(rest.size());
    }
    const std::string_view word = rest.substr(begin, kMaxPrefix + 2);
    const std::size_t prefix = std::max({bracketed(word), labelled(word), located(word)});
    if (prefix == 0) {
      return rest;
    }
    rest.remove_prefix(begin + prefix);
  }
  return rest;
}

// The dotted name at the beginning, when a colon or the end of the line follows.
std::string_view name_at(std::string_view body) {
  if (body.empty() || !(is_letter(body.front()) || body.front() == '_')) {
    return {};
  }
  const std::size_t length =
      std::min(body.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.", 0),
               body.size());
  const bool ends = length == body.size() || (body[length] == ':' && !body.substr(length).starts_with("::"));
  return ends ? body.substr(0, length) : std::string_view();
}

bool is_name_of_exception(std::string_view name) {
  constexpr std::array<std::string_view, 5> kEndings = {"Error", "Exception", "Interrupt", "NotFound",
                                                        "OutOfResources"};
  // torch._dynamo.exc.BackendCompilerFailed; "Failed: 3" is a report.
  return (name.ends_with("Failed") && name.find('.') != name.npos) ||
         std::any_of(kEndings.begin(), kEndings.end(),
                     [&](std::string_view ending) { return name.ends_with(ending); });
}

}  // namespace

bool has_any(std::string_view text, std::initializer_list<std::string_view> patterns) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](std::string_view pattern) { return text.find(pattern) != text.npos; });
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return lower;
}

std::string without_terminal_codes(std::string_view text) {
  std::string plain;
  plain.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c == 0x1B && i + 1 < text.size() && text[i + 1] == '[') {  // ECMA-48: parameters, then a letter
      i += 2;
      while (i < text.size() && !(text[i] >= 0x40 && text[i] <= 0x7E) && text[i] != '\n') {
        ++i;
      }
      if (i < text.size() && text[i] == '\n') {
        plain += '\n';
      }
    } else if (c >= 0x20 ? c != 0x7F : c == '\n' || c == '\t' || c == '\r') {
      plain += text[i];
    }
  }
  return plain;
}

std::vector<LogLine> log_lines(std::string_view text) {
  std::vector<LogLine> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    LogLine line;
    line.text = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    std::string_view shown = without_line_end(line.text);
    // Progress bars overwrite their line: only what follows the last carriage return is seen.
    const std::size_t overwritten = shown.rfind('\r');
    shown.remove_prefix(overwritten == shown.npos ? 0 : overwritten + 1);
    const std::string_view rest = without_prefixes(shown);
    line.indentation = std::min(rest.find_first_not_of(" \t|"), rest.size());
    line.body = rest.substr(line.indentation);
    lines.push_back(line);
  }
  return lines;
}

std::vector<LoggedException> exceptions_in(const std::vector<LogLine>& lines) {
  std::vector<LoggedException> found;
  bool in_traceback = false;
  bool ignored = false;  // by Python
  std::size_t indentation = 0;
  const auto end_message = [&](std::size_t line) {
    if (!found.empty() && found.back().end > line) {
      found.back().end = line;
    }
  };
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const LogLine& line = lines[i];
    if (line.body.empty()) {
      end_message(i);
    }
    if (line.body.find(kTraceback) != line.body.npos) {
      end_message(i);
      in_traceback = true;
      indentation = line.indentation;
      continue;
    }
    if (line.body.starts_with("Exception ignored")) {
      end_message(i);
      ignored = true;
      continue;
    }
    // "BackendCompilerFailed: backend='inductor' raised:" has the other exception as a part of its message.
    const bool quoted = !found.empty() && found.back().line + 1 == i && found.back().end > i &&
                        !in_traceback && lines[i - 1].body.ends_with(" raised:");
    const bool ends_traceback = in_traceback && line.indentation <= indentation && !line.body.empty();
    const std::string_view name = name_at(line.body);
    if (!name.empty() && !quoted && (ends_traceback || is_name_of_exception(name))) {
      end_message(i);
      if (!ignored) {
        found.push_back({.line = i, .end = std::min(i + kMaxMessageLines, lines.size()), .name = name});
      }
    }
    if (ends_traceback) {
      in_traceback = false;
      ignored = false;
    }
  }
  return found;
}

std::string line_at(std::string_view text, std::size_t position, std::size_t limit) {
  const std::size_t before = position == 0 ? text.npos : text.rfind('\n', position - 1);
  const std::size_t begin = before == text.npos ? 0 : before + 1;
  std::string_view line = text.substr(begin);
  line = line.substr(0, line.find('\n'));
  const std::size_t offset = position - begin;
  if (line.size() > limit && offset > limit / 2) {
    const std::size_t cut = std::min(offset - limit / 2, line.size() - limit);
    line.remove_prefix(utf8_prefix(line, cut).size());
  }
  return std::string(without_line_end(utf8_prefix(line, limit)));
}

}  // namespace plimsoll::remediation
