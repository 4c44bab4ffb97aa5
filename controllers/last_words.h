// What a container's last words prove of how it ended: the end of its log, or its termination message.
// Several processes may have spoken in them, and not everything that sounds like an error was the end.
//
//   if (std::optional<LastWords> said = read_last_words(message)) sign(said->weight, said->verdict);
//
// An error that ended a process goes before one that is only mentioned: what a program logs and survives (an
// out-of-memory after which it takes a smaller batch) is not the cause when an exception follows. Launchers'
// own exceptions (torchrun's ChildFailedError) prove nothing but what they tell of their children. Pure; any
// thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "controllers/out_of_memory_text.h"
#include "controllers/verdict.h"

namespace plimsoll::controllers {

struct LastWords {
  Weight weight = Weight::kNothing;
  Verdict verdict = Verdict::kUnknown;
  std::string line;  // that says so, shortened
  OutOfMemoryFigures figures;
};

// Nothing, when nothing that is known was said.
std::optional<LastWords> read_last_words(std::string_view text);

}  // namespace plimsoll::controllers
