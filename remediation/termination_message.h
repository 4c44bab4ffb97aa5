// Reads the end of a container's output (its termination message, or the tail of its log): what it proves
// about how the container ended.
//
//   const std::vector<Diagnosis> found = read_termination_message(message);
//   if (!found.empty()) use(found.front().outcome);
//
// Several processes may have written to it, and not every error in it ended a process. An error that ended
// one comes before one that was only logged: where a program runs out of memory, continues with a smaller
// batch and later fails with an exception, the exception is the cause. Exceptions of launchers (torchrun's
// ChildFailedError) prove nothing by themselves. Pure; any thread.
//
// An exception that no pattern knows is the program's own, a UserError, only if it can be nothing else: one of a
// library's own class, or whose message speaks of memory, devices, timeouts, peers or connections, is Unknown,
// since a job that is not retried is lost.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "crds/training_job_status.h"
#include "remediation/patterns.h"

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
  std::string line{};          // the line that proves it, shortened
  std::string because{};       // the pattern or the rule that says so
  bool shared_memory = false;  // /dev/shm was full
  crds::OutOfMemoryFigures out_of_memory{};
};

// What the text proves first, then what else was found in it, in the order of the text: at most kMostDiagnoses. Empty where
// nothing in it is known.
std::vector<Diagnosis> read_termination_message(std::string_view text,
                                                const Patterns& patterns = Patterns::built_in());
inline constexpr std::size_t kMostDiagnoses = 50;

}  // namespace plimsoll::remediation
