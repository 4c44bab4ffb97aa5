#include "estimator/trace/optimizer.h"

#include <algorithm>

#include "crds/training_job.h"

namespace plimsoll::estimator::inline trace {
namespace {

using crds::Optimizer;
using crds::OptimizerImplementation;

constexpr std::int64_t kFP32 = 4;
// bitsandbytes' Adam8bit quantises states of 4096 elements and more, with one absolute maximum per block of
// 256 (bitsandbytes/optim/optimizer.py: min_8bit_size; functional.py: blocksize).
constexpr std::int64_t kMin8bitElements = 4096;
constexpr std::int64_t k8bitBlock = 256;
constexpr TorchVersion kTorch2 = 200;

// A variable of the Python loop: its new value is allocated before the old one is freed.
class Variable {
 public:
  explicit Variable(StepLedger& ledger) : ledger_(ledger) {}
  void assign(std::size_t parameter, Bytes bytes) { keep(ledger_.allocate(parameter, bytes)); }
  void keep(BlockId block) {
    clear();
    block_ = block;
  }
  void clear() {
    if (block_ >= 0) {
      ledger_.release(block_);
      block_ = -1;
    }
  }

 private:
  StepLedger& ledger_;
  BlockId block_ = -1;
};

void allocate_and_release(StepLedger& ledger, std::size_t parameter, Bytes bytes) {
  ledger.release(ledger.allocate(parameter, bytes));
}

// denom = (exp_avg_sq.sqrt() / correction).add_(eps): the root is live together with the quotient.
void adam_step(const std::vector<SteppedParameter>& parameters, StepLedger& ledger) {
  Variable denominator(ledger);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const BlockId root = ledger.allocate(i, parameters[i].bytes);
    const BlockId quotient = ledger.allocate(i, parameters[i].bytes);
    ledger.release(root);
    denominator.keep(quotient);
  }
  denominator.clear();
}

// std = state.sqrt().add_(eps)
void root_step(const std::vector<SteppedParameter>& parameters, StepLedger& ledger) {
  Variable root(ledger);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    root.assign(i, parameters[i].bytes);
  }
  root.clear();
}

// The mean of each row's squared gradient.
void row_wise_step(const std::vector<SteppedParameter>& parameters, StepLedger& ledger) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const BlockId square = ledger.allocate(i, parameters[i].bytes);
    const BlockId mean = ledger.allocate(i, Bytes{parameters[i].rows} * kFP32);
    ledger.release(square);
    ledger.release(mean);
  }
}

void adafactor_step(const std::vector<SteppedParameter>& parameters, StepLedger& ledger) {
  Variable update(ledger);
  Variable square(ledger);
  Variable columns(ledger);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const SteppedParameter& parameter = parameters[i];
    if (parameter.columns == 0) {
      square.assign(i, parameter.bytes);
    } else {
      allocate_and_release(ledger, i, Bytes{parameter.rows} * kFP32);
      columns.assign(i, Bytes{parameter.columns} * kFP32);
    }
    update.assign(i, parameter.bytes);
  }
  update.clear();
  columns.clear();
  square.clear();
}

// Allocates `lists` lists of temporaries, each as large as all parameters, and frees them together.
void foreach_step(const std::vector<SteppedParameter>& parameters, int lists, StepLedger& ledger) {
  std::vector<BlockId> blocks;
  for (int list = 0; list < lists; ++list) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      blocks.push_back(ledger.allocate(i, parameters[i].bytes));
    }
  }
  for (const BlockId block : blocks) {
    ledger.release(block);
  }
}

// Number of such lists, measured by tests/accuracy/optimizer_steps.py on 1.13 and 2.15.
int foreach_lists(const OptimizerRun& run) {
  const bool old = run.version < kTorch2;
  switch (run.kind) {
    case Optimizer::kSGD:
    case Optimizer::kMomentum:
    case Optimizer::kAdam8bit: return 0;
    case Optimizer::kAdam:
    case Optimizer::kAdamW: return old ? 2 : 1;
    case Optimizer::kAdagrad: return old ? 3 : 2;
    case Optimizer::kRMSprop:
    case Optimizer::kAdafactor:
    case Optimizer::kRowWiseAdagrad:
    case Optimizer::kLAMB: return 1;
  }
  return 0;
}

bool has_fused(Optimizer kind) {
  return kind == Optimizer::kSGD || kind == Optimizer::kMomentum || kind == Optimizer::kAdam ||
         kind == Optimizer::kAdamW || kind == Optimizer::kAdagrad;
}

bool keeps_step_count(const OptimizerRun& run) {
  switch (run.kind) {
    case Optimizer::kAdam:
    case Optimizer::kAdamW:
    case Optimizer::kAdagrad:
    case Optimizer::kAdafactor: return true;
    case Optimizer::kRMSprop: return run.version >= kTorch2;
    default: return false;
  }
}

}  // namespace

std::vector<SteppedParameter> stepped_parameters(const Trace& trace, const TraceShapes& shapes) {
  std::vector<SteppedParameter> parameters;
  std::vector<bool> seen(trace.storages.size(), false);
  for (std::size_t i = 0; i < trace.parameters.size(); ++i) {
    const TraceParameter& parameter = trace.parameters[i];
    const auto storage = static_cast<std::size_t>(parameter.storage);
    if (!parameter.trainable || parameter.gradient.empty() || seen[storage]) {
      continue;
    }
    seen[storage] = true;
    const TensorView view = shapes.tensor_of(parameter.layout, parameter.dtype);
    SteppedParameter& stepped = parameters.emplace_back();
    stepped.id = i;
    stepped.bytes = view.bytes();
    stepped.elements = view.elements;
    stepped.rows = view.elements / std::max<std::int64_t>(1, view.size(-1));
    stepped.columns = view.rank() < 2 ? 0 : view.elements / std::max<std::int64_t>(1, view.size(-2));
    stepped.sparse = parameter.sparse_gradient;
    for (const std::int32_t gradient : parameter.gradient) {
      stepped.gradient += shapes.storage(gradient);
    }
  }
  return parameters;
}

Result<OptimizerRun> optimizer_run(Optimizer kind, OptimizerImplementation implementation, Device device,
                                   TorchVersion version) {
  OptimizerRun run{.kind = kind, .implementation = implementation, .device = device, .version = version};
  if (implementation == OptimizerImplementation::kDefault) {
    // torch.optim.optimizer._default_to_fused_or_foreach: foreach on CUDA since 2.0. Adafactor never asks it.
    run.implementation = device == Device::kCuda && version >= kTorch2 && kind != Optimizer::kAdafactor
                             ? OptimizerImplementation::kForEach
                             : OptimizerImplementation::kSingleTensor;
  }
  if (run.implementation == OptimizerImplementation::kFused && !has_fused(kind)) {
    return Error(ErrorCode::kUnsupported,
                 std::string("torch.optim has no fused ") + crds::name_of(kind) +
                     "; SGD, Momentum, Adam, AdamW and Adagrad have a fused version");
  }
  if (run.implementation == OptimizerImplementation::kFused && version < kTorch2 &&
      !(device == Device::kCuda && kind == Optimizer::kAdam)) {
    return Error(ErrorCode::kUnsupported,
                 "the graph was exported with PyTorch before 2.0, whose only fused optimizer is Adam on "
                 "CUDA");
  }
  return run;
}

std::vector<Bytes> optimizer_state(const OptimizerRun& run, const SteppedParameter& parameter) {
  std::vector<Bytes> state;
  // The step count is a scalar on the CPU; a fused kernel keeps it on the GPU.
  const bool counted = run.device == Device::kCpu || run.implementation == OptimizerImplementation::kFused;
  if (keeps_step_count(run) && counted) {
    state.push_back(Bytes{kFP32});
  }
  switch (run.kind) {
    case Optimizer::kSGD: break;
    case Optimizer::kMomentum:
    case Optimizer::kAdagrad:
    case Optimizer::kRMSprop: state.push_back(parameter.bytes); break;
    case Optimizer::kAdam:
    case Optimizer::kAdamW:
    case Optimizer::kLAMB: state.insert(state.end(), 2, parameter.bytes); break;
    case Optimizer::kRowWiseAdagrad: state.push_back(Bytes{parameter.rows} * kFP32); break;
    case Optimizer::kAdafactor:
      if (parameter.columns == 0) {
        state.push_back(parameter.bytes);
      } else {
        state.push_back(Bytes{parameter.rows} * kFP32);
        state.push_back(Bytes{parameter.columns} * kFP32);
      }
      break;
    case Optimizer::kAdam8bit:
      if (parameter.elements < kMin8bitElements) {
        state.insert(state.end(), 2, Bytes{parameter.elements} * kFP32);
      } else {
        state.insert(state.end(), 2, Bytes{parameter.elements});
        state.insert(state.end(), 2, Bytes{(parameter.elements + k8bitBlock - 1) / k8bitBlock} * kFP32);
      }
      break;
  }
  return state;
}

void optimizer_step(const OptimizerRun& run, const std::vector<SteppedParameter>& parameters,
                    StepLedger& ledger) {
  if (run.implementation == OptimizerImplementation::kFused || run.kind == Optimizer::kAdam8bit) {
    return;
  }
  if (run.implementation == OptimizerImplementation::kForEach) {
    foreach_step(parameters, foreach_lists(run), ledger);
    return;
  }
  switch (run.kind) {
    case Optimizer::kSGD:
    case Optimizer::kMomentum:
    case Optimizer::kAdam8bit: return;
    case Optimizer::kAdam:
    case Optimizer::kAdamW:
    case Optimizer::kLAMB: adam_step(parameters, ledger); return;
    case Optimizer::kAdagrad:
    case Optimizer::kRMSprop: root_step(parameters, ledger); return;
    case Optimizer::kRowWiseAdagrad: row_wise_step(parameters, ledger); return;
    case Optimizer::kAdafactor: adafactor_step(parameters, ledger); return;
  }
}

}  // namespace plimsoll::estimator::trace
