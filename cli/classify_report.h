// `plimsoll classify --explain`: what decided, what was seen beside it, and what the operator would do next. Pure; any thread.
#pragma once

#include <string>

#include "base/json/edit.h"
#include "remediation/attempt_end.h"

namespace plimsoll::cli {

// For people: lines that follow those of the verdict.
std::string classify_explanation_text(const remediation::ExplainedEnd& explained);

// For programs: {because, proves, next, others: [{verdict, proves, because, pod, container, field, text}]}
JsonObject classify_explanation_json(const remediation::ExplainedEnd& explained);

}  // namespace plimsoll::cli
