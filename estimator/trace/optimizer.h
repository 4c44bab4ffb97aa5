// What an optimizer keeps for the parameters of a trace, and what its step takes, parameter by parameter.
// The programs were read off PyTorch's own steps (tests/accuracy/optimizer_steps.py prints them). Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "crds/training_job.h"
#include "estimator/ledger/ledger.h"
#include "estimator/trace/shapes.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline trace {

// A parameter that is trained and got a gradient.
struct SteppedParameter {
  std::size_t id = 0;  // in Trace::parameters
  Bytes bytes;
  std::int64_t elements = 0;
  std::int64_t rows = 0;     // elements over the last dimension's size
  std::int64_t columns = 0;  // elements over the last but one's; 0 for a vector
  Bytes gradient;
  bool sparse = false;
};

// Shared parameters once.
std::vector<SteppedParameter> stepped_parameters(const Trace& trace, const TraceShapes& shapes);

struct OptimizerRun {
  crds::Optimizer kind = crds::Optimizer::kAdam;
  crds::OptimizerImplementation implementation = crds::OptimizerImplementation::kDefault;
  Device device = Device::kCpu;
  TorchVersion version = 0;
};

// Errors: kUnsupported for an implementation that PyTorch of that version does not have.
Result<OptimizerRun> optimizer_run(crds::Optimizer kind, crds::OptimizerImplementation implementation,
                                   Device device, TorchVersion version);

// Blocks that live between iterations, for one parameter. Zeros are left out.
std::vector<Bytes> optimizer_state(const OptimizerRun& run, const SteppedParameter& parameter);

// Tells the ledger what a step allocates and releases, in order. `allocate(parameter, bytes)` returns a
// block.
class StepLedger {
 public:
  virtual ~StepLedger() = default;
  virtual BlockId allocate(std::size_t parameter, Bytes bytes) = 0;
  virtual void release(BlockId block) = 0;
};
void optimizer_step(const OptimizerRun& run, const std::vector<SteppedParameter>& parameters,
                    StepLedger& ledger);

}  // namespace plimsoll::estimator::trace
