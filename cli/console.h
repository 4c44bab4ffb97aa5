// Console: the streams that a command uses, so that a test can replace them.
//
//   std::ostringstream out, err;
//   Console console{std::cin, out, err};
//   int code = run_estimate({"-f", "job.yaml"}, console);
//
// Owned by the caller, used from one thread.
#pragma once

#include <istream>
#include <ostream>
#include <string>

#include "base/result.h"

namespace plimsoll::cli {

struct Console {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  bool unicode = false;   // bars may be drawn with block characters
  bool terminal = false;  // `err` is one: progress may be drawn
};

// The process's own standard streams.
Console process_console();

// "plimsoll: <message>" on standard error, and the exit code given.
int complain(Console& console, int exit_code, const std::string& message);

// The same with an error's message and the fragment at fault.
int complain(Console& console, int exit_code, const Error& error);

}  // namespace plimsoll::cli
