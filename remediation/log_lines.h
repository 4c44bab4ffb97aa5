// Splits a container's output into lines, without the prefixes and codes that launchers, log collectors and
// terminals add; and finds the exceptions of Python programs in them.
//
//   const std::string plain = without_terminal_codes(text);
//   const std::vector<LogLine> lines = log_lines(plain);
//   for (const LoggedException& one : exceptions_in(lines)) use(one.name);
//
// Views into the text given. Pure; any thread. Time linear in the text.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll::remediation {

struct LogLine {
  std::string_view text;  // the whole line
  std::string_view body;  // without its prefixes ("[rank3]: ", "worker-1: ", a time) and indentation
  std::size_t indentation = 0;
};

struct LoggedException {
  std::size_t line = 0;  // of its name
  std::size_t end = 0;   // past the last line of its message
  std::string_view name;
};

bool has_any(std::string_view text, std::initializer_list<std::string_view> patterns);

// ASCII lower case, for comparing; every byte keeps its offset.
std::string lower_case(std::string_view text);

// Without colours and other control characters; tabs and line ends stay.
std::string without_terminal_codes(std::string_view text);

std::vector<LogLine> log_lines(std::string_view text);

// In the order of the text: the lines that end a traceback, and lines that begin with "SomeError:". Without
// those that Python itself ignores ("Exception ignored in").
std::vector<LoggedException> exceptions_in(const std::vector<LogLine>& lines);

// The line that contains the position, without the lines around it: at most `limit` bytes, cut between
// characters (UTF-8).
std::string line_at(std::string_view text, std::size_t position, std::size_t limit = 300);

}  // namespace plimsoll::remediation
