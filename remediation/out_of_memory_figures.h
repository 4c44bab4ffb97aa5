// The figures in out-of-memory errors of GPUs: how much was needed, and how much the GPU has.
//
//   crds::OutOfMemoryFigures figures = parse_out_of_memory_figures(text.substr(begin_of_line));
//
// A pure function; any thread. Time linear in the text.
#pragma once

#include <string_view>

#include "crds/training_job_status.h"

namespace plimsoll::remediation {

// Of the error at the beginning of the text, which may span several lines; a second error after it is not read. A size that no card can
// have is ignored.
crds::OutOfMemoryFigures parse_out_of_memory_figures(std::string_view text);

}  // namespace plimsoll::remediation
