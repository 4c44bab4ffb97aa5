#include "controllers/verdict.h"

namespace plimsoll::controllers {

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kCudaOutOfMemory: return "CUDAOutOfMemory";
    case Verdict::kHostOutOfMemory: return "HostOutOfMemory";
    case Verdict::kPreempted: return "Preempted";
    case Verdict::kInfrastructureFailure: return "InfrastructureFailure";
    case Verdict::kShardingFailure: return "ShardingFailure";
    case Verdict::kUserError: return "UserError";
    case Verdict::kSucceeded: return "Succeeded";
    case Verdict::kRunning: return "Running";
    case Verdict::kUnknown: return "Unknown";
  }
  return "";
}

}  // namespace plimsoll::controllers
