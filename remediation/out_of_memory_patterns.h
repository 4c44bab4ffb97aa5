// Recognises out-of-memory errors in a line of output: of a GPU, in the wording of PyTorch (old and new),
// CUDA's and AMD's libraries, NCCL, JAX, TensorFlow and what is built on them; or of the host.
//
//   if (std::optional<OutOfMemoryMatch> match = find_out_of_memory(line)) {
//     crds::OutOfMemoryFigures figures = parse_out_of_memory_figures(text.substr(begin_of_line));
//   }
//
// Pure functions; any thread. Time linear in the text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "crds/training_job_status.h"

namespace plimsoll::remediation {

struct OutOfMemoryMatch {
  bool of_gpu = true;
  // True for a message that only the error itself has. Otherwise the line mentions a GPU and exhausted
  // memory, as a program's own log message might.
  bool exact = true;
  std::size_t at = 0;  // offset of the match in the line
};

std::optional<OutOfMemoryMatch> find_out_of_memory(std::string_view line);

// The figures of PyTorch's error at the beginning of the text, which may span several lines; a second error
// after it is not read. A size that no card can have is ignored.
crds::OutOfMemoryFigures parse_out_of_memory_figures(std::string_view text);

// ASCII lower case, for comparing; every byte keeps its offset.
std::string lower_case(std::string_view text);

}  // namespace plimsoll::remediation
