// kernel_temporaries(): memory that each operator of a trace allocates in its kernel beyond its results:
// measured, by the rule table (rules.h), or a bound. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/budget.h"
#include "base/bytes.h"
#include "base/result.h"
#include "estimator/kernels/convolution.h"
#include "estimator/trace/shapes.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline kernels {

struct KernelOptions {
  std::string gpu_family{};                      // convolution_family()
  std::optional<Bytes> convolution_workspace{};  // of every convolution on CUDA; absent: by GPU family
  bool lenient = false;                          // use a bound for operators without a rule, with a warning
  Budget* budget = nullptr;
};

struct KernelTemporaries {
  std::vector<Bytes> inside;       // by operator
  std::vector<Bytes> workspaces;   // by operator: cuDNN's workspace; empty on the CPU
  ConvolutionTotals convolutions;  // of forward; zero on the CPU
  std::vector<std::string> warnings;
};

// Errors: kUnsupported for an operator without a rule, naming it.
Result<KernelTemporaries> kernel_temporaries(const Trace& trace, const TraceShapes& shapes,
                                             const TraceProducer& producer, const KernelOptions& options);

}  // namespace plimsoll::estimator::kernels
