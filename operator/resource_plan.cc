#include "operator/resource_plan.h"

#include <algorithm>

namespace plimsoll::process {
namespace {

Bytes share(Bytes memory, std::int64_t one_in) {
  return Bytes{memory.count / one_in};
}

// More than these is not needed, however much memory the machine has: a process without a limit shares it
// with others.
constexpr Bytes kAllBodies = 128_MiB;
constexpr Bytes kAllReviews = 1_GiB;
constexpr Bytes kAllImports = 512_MiB;
constexpr Bytes kLargestImport = 128_MiB;
constexpr Bytes kLargestReconcile = 192_MiB;
constexpr Bytes kLargestCache = 64_MiB;
constexpr Bytes kLargestDecision = 64_MiB;
constexpr Bytes kConnection = 64_KiB;  // TLS, and a header of 16 KiB that is on its way

constexpr std::int64_t kTurnsOfDecider = 3;  // as DecisionScheduler::for_cpus gives them
constexpr int kMinDeciders = 2;
constexpr int kMaxDeciders = 16;
// A reconciler waits for the API server most of the time: more of them than processors are of use.
constexpr int kMinReconcilers = 4;
constexpr int kMaxReconcilers = 16;

}  // namespace

ResourcePlan plan_resources(const ProcessLimits& limits) {
  const Bytes memory = limits.memory;
  ResourcePlan plan;
  plan.limits = limits;
  plan.bodies = std::min(share(memory, 8), kAllBodies);
  plan.reviews = std::min(share(memory, 4), kAllReviews);
  plan.imports = std::min(share(memory, 4), kAllImports);
  plan.import = std::min(share(memory, 12), kLargestImport);
  plan.table_cache = std::min(share(memory, 16), kLargestCache);
  plan.decision = std::min(share(memory, 24), kLargestDecision);
  const auto turns =
      static_cast<int>(std::min<std::int64_t>(share(memory, 4).count / plan.decision.count, 1'000));
  plan.deciders = std::clamp(std::min(limits.whole_cpus(), static_cast<int>(turns / kTurnsOfDecider)),
                             kMinDeciders, kMaxDeciders);
  plan.reconcilers = std::clamp(std::min(2 * limits.whole_cpus(), turns), kMinReconcilers, kMaxReconcilers);
  plan.reconcile = std::min(Bytes{share(memory, 2).count / plan.reconcilers}, kLargestReconcile);
  plan.connections =
      static_cast<int>(std::clamp<std::int64_t>(share(memory, 8).count / kConnection.count, 64, 1024));
  return plan;
}

}  // namespace plimsoll::process
