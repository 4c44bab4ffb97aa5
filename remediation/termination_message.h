// Reads the end of a container's output (its termination message, or the tail of its log): what it proves
// about how the container ended.
//
//   if (std::optional<Diagnosis> found = read_termination_message(message)) use(found->outcome);
//
// Several processes may have written to it, and not every error in it ended a process. An error that ended
// one comes before one that was only logged: where a program runs out of memory, continues with a smaller
// batch and later fails with an exception, the exception is the cause. Exceptions of launchers (torchrun's
// ChildFailedError) prove nothing by themselves. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "crds/training_job_status.h"

namespace plimsoll::remediation {

// How much a sign of an attempt's end proves. Lower comes first.
enum class Priority {
  kCause,        // proves it by itself
  kException,    // the program's own exception
  kConsequence,  // of a peer that was lost; without any other sign, the infrastructure failed
  kSidecar,      // of a container other than the trainer, which does not end training
  kNothing       // a container ended for an unknown reason
};

using crds::Outcome;

struct Diagnosis {
  Priority priority = Priority::kNothing;
  Outcome outcome = Outcome::kUnknown;
  std::string line{};  // the line that proves it, shortened
  crds::OutOfMemoryFigures out_of_memory{};
};

// Nothing, when no known error is in the text.
std::optional<Diagnosis> read_termination_message(std::string_view text);

}  // namespace plimsoll::remediation
