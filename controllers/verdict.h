// Why an attempt of a job ended, in one word, and how much a sign of it proves. Plain values.
#pragma once

namespace plimsoll::controllers {

enum class Verdict {
  kCudaOutOfMemory,
  kHostOutOfMemory,
  kPreempted,
  kInfrastructureFailure,
  kShardingFailure,
  kUserError,
  kSucceeded,
  kRunning,
  kUnknown
};
const char* name_of(Verdict verdict);  // "CUDAOutOfMemory", ...

// Lower goes first.
enum class Weight {
  kCause,        // proves it by itself
  kProgram,      // the program's own exception
  kConsequence,  // of a peer that went; the infrastructure's when there is nothing else
  kBeside,       // of a container beside the trainer, which does not end training
  kNothing       // it ended, and nobody says why
};

}  // namespace plimsoll::controllers
