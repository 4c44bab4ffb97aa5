// What `plimsoll classify` prints: the verdict and its evidence; and with --explain what decided, what was seen beside it, and what the
// operator does next. Pure; any thread.
#pragma once

#include <string>

#include "base/json/edit.h"
#include "remediation/attempt_end.h"

namespace plimsoll::cli {

// For people.
std::string classify_text(const remediation::ExplainedEnd& explained, bool explain);

// For programs, as docs/cli.md has it; without `explain` it has no member `explanation`.
JsonObject classify_json(const remediation::ExplainedEnd& explained, bool explain);

}  // namespace plimsoll::cli
