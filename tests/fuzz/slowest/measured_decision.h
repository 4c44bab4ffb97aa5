// One decision of a TrainingJob (tests/fuzz/world.h) in a process of its own, measured: whatever it does, it
// ends, and is reported.
//
//   Measured one = measure_decision(job, {.deadline = std::chrono::seconds(5)});
//   if (one.overrun > std::chrono::milliseconds(100)) ...
//
// The child is forked, so that the cluster, built before, costs nothing. One thread.
#pragma once

#include <chrono>
#include <string>

#include "base/bytes.h"
#include "base/json/json.h"

namespace plimsoll::testing {

struct DecisionLimits {
  std::chrono::milliseconds deadline{4800};  // given to the decision: the webhook's 5 s less its margin
  std::chrono::milliseconds grace{2000};     // of processor time, after which the decision is killed
};

struct Measured {
  enum class End { kDecided, kRefused, kKilled, kCrashed };
  End end = End::kDecided;
  std::string reason;  // the event's, or what is wrong with the job, or the signal
  // Of the decision alone: decode, validate, read the model, decide, patch.
  std::chrono::milliseconds processor_time{};
  Bytes peak_heap;  // of one that was killed: the resident memory of its process

  // Of processor time, after the deadline had passed: what other processes take does not count.
  std::chrono::milliseconds overrun{};
};

Measured measure_decision(const Json& job, const DecisionLimits& limits);

const char* name_of(Measured::End end);

}  // namespace plimsoll::testing
