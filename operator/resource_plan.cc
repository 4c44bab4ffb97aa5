#include "operator/resource_plan.h"

#include <algorithm>

namespace plimsoll::process {
namespace {

Bytes share(Bytes memory, std::int64_t one_in) {
  return Bytes{memory.count / one_in};
}

// The largest useful shares: a process without a memory limit shares the machine with others.
constexpr Bytes kMaxBodies = 128_MiB;
constexpr Bytes kMaxReviews = 1_GiB;
constexpr Bytes kMaxImports = 512_MiB;
constexpr Bytes kMaxImport = 128_MiB;
constexpr Bytes kMaxReconcile = 192_MiB;
constexpr Bytes kMaxCache = 64_MiB;
constexpr Bytes kMaxDecision = 64_MiB;
constexpr Bytes kConnection = 64_KiB;  // TLS, and a header of 16 KiB that is being received

constexpr std::int64_t kTurnsPerDecider = 3;  // as DecisionScheduler::for_cpus gives them
constexpr int kMinDeciders = 2;
constexpr int kMaxDeciders = 16;
// A reconciler mostly waits for the API server: more of them than processors are useful.
constexpr int kMinReconcilers = 4;
constexpr int kMaxReconcilers = 16;

}  // namespace

ResourcePlan plan_resources(const ProcessLimits& limits) {
  const Bytes memory = limits.memory;
  ResourcePlan plan;
  plan.limits = limits;
  plan.bodies = std::min(share(memory, 8), kMaxBodies);
  plan.reviews = std::min(share(memory, 4), kMaxReviews);
  plan.imports = std::min(share(memory, 4), kMaxImports);
  plan.import = std::min(share(memory, 12), kMaxImport);
  plan.table_cache = std::min(share(memory, 16), kMaxCache);
  plan.decision = std::min(share(memory, 24), kMaxDecision);
  const auto turns =
      static_cast<int>(std::min<std::int64_t>(share(memory, 4).count / plan.decision.count, 1'000));
  plan.deciders = std::clamp(std::min(limits.whole_cpus(), static_cast<int>(turns / kTurnsPerDecider)),
                             kMinDeciders, kMaxDeciders);
  plan.reconcilers = std::clamp(std::min(2 * limits.whole_cpus(), turns), kMinReconcilers, kMaxReconcilers);
  plan.reconcile = std::min(Bytes{share(memory, 2).count / plan.reconcilers}, kMaxReconcile);
  plan.connections =
      static_cast<int>(std::clamp<std::int64_t>(share(memory, 8).count / kConnection.count, 64, 1024));
  return plan;
}

}  // namespace plimsoll::process
