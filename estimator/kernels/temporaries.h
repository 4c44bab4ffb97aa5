// kernel_temporaries(): what each operator of a trace takes inside its kernel, beyond its results: as it was
// measured, by the rule table (rules.h), or a bound. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/budget.h"
#include "base/bytes.h"
#include "base/result.h"
#include "estimator/trace/shapes.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline kernels {

struct KernelOptions {
  std::string gpu_family{};                      // GpuModel::family
  std::optional<Bytes> convolution_workspace{};  // on CUDA, of any; absent: as the family's kernels are
  bool lenient = false;                          // a bound for operators without a rule, and a warning
  Budget* budget = nullptr;
};

struct KernelTemporaries {
  std::vector<Bytes> inside;      // by operator
  std::vector<Bytes> workspaces;  // by operator: what cuDNN takes; empty on the CPU
  std::vector<std::string> warnings;
};

// Errors: kUnsupported for an operator without a rule, naming it.
Result<KernelTemporaries> kernel_temporaries(const Trace& trace, const TraceShapes& shapes,
                                             const TraceProducer& producer, const KernelOptions& options);

}  // namespace plimsoll::estimator::kernels
