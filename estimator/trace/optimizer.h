// The state that an optimizer keeps for the parameters of a trace, and the temporaries of its step. The rules
// were read from PyTorch's own steps (tests/accuracy/optimizer_steps.py prints them). Pure.
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

// A parameter; in the lists of a step a trainable one that received a gradient.
struct SteppedParameter {
  std::size_t id = 0;  // index in Trace::parameters
  Bytes bytes;
  std::int64_t elements = 0;
  std::int64_t rows = 0;     // number of elements divided by the size of the last dimension
  std::int64_t columns = 0;  // number of elements divided by the size of the second-last one; 0 for a vector
  std::int64_t dimensions = 0;
  Bytes gradient;
  bool sparse = false;
};

// Parameters that share a storage are listed once.
std::vector<SteppedParameter> stepped_parameters(const Trace& trace, const TraceShapes& shapes);

// The others: frozen ones, and those without a gradient.
std::vector<SteppedParameter> frozen_parameters(const Trace& trace, const TraceShapes& shapes);

struct OptimizerRun {
  crds::Optimizer kind = crds::Optimizer::kAdam;
  crds::OptimizerImplementation implementation = crds::OptimizerImplementation::kDefault;
  Device device = Device::kCpu;
  TorchVersion version = 0;
};

// Errors: kUnsupported for an optimizer or an implementation that this PyTorch version does not have.
Result<OptimizerRun> optimizer_run(crds::Optimizer kind, crds::OptimizerImplementation implementation,
                                   Device device, TorchVersion version);

// Sizes of the blocks that stay allocated between iterations, for one parameter. Without what a paged
// optimizer keeps in managed memory.
std::vector<Bytes> optimizer_state(const OptimizerRun& run, const SteppedParameter& parameter);

// State of a paged optimizer in CUDA's managed memory. The driver moves it to the host when the GPU is full,
// so it takes no GPU memory from others.
Bytes managed_state(const OptimizerRun& run, const SteppedParameter& parameter);

// True for bitsandbytes' optimizers, whose kernels take plain tensors and no DTensors.
bool is_of_bitsandbytes(crds::Optimizer kind);

// Receives the allocations and frees of a step, in order. `parameter` is an index into the list of
// optimizer_step().
class StepLedger {
 public:
  virtual ~StepLedger() = default;
  virtual BlockId allocate(std::size_t parameter, Bytes bytes) = 0;
  virtual void release(BlockId block) = 0;
};
void optimizer_step(const OptimizerRun& run, const std::vector<SteppedParameter>& parameters,
                    StepLedger& ledger);

}  // namespace plimsoll::estimator::trace
