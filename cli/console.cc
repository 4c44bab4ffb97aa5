#include "cli/console.h"

#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string_view>

namespace plimsoll::cli {
namespace {

// The locale's character set, as setlocale(3) ranks the variables.
bool utf8_locale() {
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(variable);
    if (value != nullptr && *value != '\0') {
      const std::string_view name = value;
      return name.find("UTF-8") != std::string_view::npos || name.find("utf8") != std::string_view::npos;
    }
  }
  return false;
}

}  // namespace

Console process_console() {
  return Console{std::cin, std::cout, std::cerr, utf8_locale(), ::isatty(STDERR_FILENO) != 0};
}

int complain(Console& console, int exit_code, const std::string& message) {
  console.err << "plimsoll: " << message << '\n';
  return exit_code;
}

int complain(Console& console, int exit_code, const Error& error) {
  return complain(
      console, exit_code,
      error.fragment.empty() ? error.message : error.message + " (near `" + error.fragment + "`)");
}

}  // namespace plimsoll::cli
