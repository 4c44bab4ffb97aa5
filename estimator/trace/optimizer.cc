#include "estimator/trace/optimizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "crds/training_job.h"

namespace plimsoll::estimator::inline trace {
namespace {

using crds::Optimizer;
using crds::OptimizerImplementation;

constexpr std::int64_t kFP32 = 4;
constexpr std::int64_t kBF16 = 2;
// bitsandbytes quantises states of 4096 elements and more, with one absolute maximum per block of 256
// (bitsandbytes/optim/optimizer.py: min_8bit_size, init_state), and pages those of 100,000 and more
// (get_state_buffer).
constexpr std::int64_t kMin8bitElements = 4096;
constexpr std::int64_t k8bitBlock = 256;
constexpr std::int64_t kMinPagedElements = 100'000;
constexpr TorchVersion kTorch2 = 200;
constexpr TorchVersion kFirstMuon = 209;

enum class Library { kTorch, kBitsandbytes, kOther };
enum class State { kOfParameter, k32bit, k8bit };

// What tells optimizers apart. The numbers were measured by tests/accuracy/optimizer_steps.py on 1.13 and
// 2.15; LAMB and row-wise Adagrad follow from their definitions, and Adagrad by rows and Adafactor have
// states of their own.
struct Rules {
  Optimizer kind = Optimizer::kSGD;
  int states = 0;
  int scalars[2] = {0, 0};  // step counts and the like, before torch 2.0 and since
  int lists[2] = {0, 0};    // foreach's lists of temporaries, before torch 2.0 and since; -1: no foreach
  bool fused = false;
  State state = State::kOfParameter;
  bool paged = false;
  Library library = Library::kTorch;
};

constexpr Rules bitsandbytes(Optimizer kind, int states, State state, bool paged) {
  return {.kind = kind,
          .states = states,
          .lists = {-1, -1},
          .state = state,
          .paged = paged,
          .library = Library::kBitsandbytes};
}

constexpr std::array kRules = {
    Rules{.kind = Optimizer::kSGD, .fused = true},
    Rules{.kind = Optimizer::kMomentum, .states = 1, .fused = true},
    Rules{.kind = Optimizer::kAdam, .states = 2, .scalars = {1, 1}, .lists = {2, 1}, .fused = true},
    Rules{.kind = Optimizer::kAdamW, .states = 2, .scalars = {1, 1}, .lists = {2, 1}, .fused = true},
    Rules{.kind = Optimizer::kAdagrad, .states = 1, .scalars = {1, 1}, .lists = {3, 2}, .fused = true},
    Rules{.kind = Optimizer::kRowWiseAdagrad, .lists = {1, 1}, .library = Library::kOther},
    Rules{.kind = Optimizer::kRMSprop, .states = 1, .scalars = {0, 1}, .lists = {1, 1}},
    Rules{.kind = Optimizer::kLAMB, .states = 2, .lists = {1, 1}, .library = Library::kOther},
    Rules{.kind = Optimizer::kAdafactor, .scalars = {1, 1}, .lists = {1, 1}},
    bitsandbytes(Optimizer::kAdam8bit, 2, State::k8bit, false),
    bitsandbytes(Optimizer::kAdamW8bit, 2, State::k8bit, false),
    bitsandbytes(Optimizer::kPagedAdamW, 2, State::k32bit, true),
    bitsandbytes(Optimizer::kPagedAdamW8bit, 2, State::k8bit, true),
    Rules{.kind = Optimizer::kLion, .states = 1, .lists = {-1, -1}, .library = Library::kOther},
    bitsandbytes(Optimizer::kLion8bit, 1, State::k8bit, false),
    bitsandbytes(Optimizer::kPagedLion8bit, 1, State::k8bit, true),
    Rules{.kind = Optimizer::kMuon, .states = 1, .fused = true},
    Rules{.kind = Optimizer::kNAdam, .states = 2, .scalars = {2, 2}, .lists = {2, 1}},
    Rules{.kind = Optimizer::kRAdam, .states = 2, .scalars = {1, 1}, .lists = {3, 1}},
    Rules{.kind = Optimizer::kAdadelta, .states = 2, .scalars = {0, 1}, .lists = {2, 2}},
    Rules{.kind = Optimizer::kAdamax, .states = 2, .scalars = {1, 1}, .lists = {0, 1}},
};
static_assert(kRules.size() == crds::kNames<Optimizer>.size());

constexpr const Rules& rules_of(Optimizer kind) {
  return kRules[static_cast<std::size_t>(kind)];
}
static_assert(std::all_of(kRules.begin(), kRules.end(),
                          [](const Rules& each) { return &rules_of(each.kind) == &each; }));

bool is_quantised(const Rules& rules, const SteppedParameter& parameter) {
  return rules.state == State::k8bit && parameter.elements >= kMin8bitElements;
}

Bytes maxima_of_blocks(std::int64_t elements) {
  return Bytes{(elements + k8bitBlock - 1) / k8bitBlock} * kFP32;
}

// One state of a parameter, without the maxima of its blocks.
Bytes state_bytes(const Rules& rules, const SteppedParameter& parameter) {
  if (rules.state == State::kOfParameter) {
    return parameter.bytes;
  }
  return Bytes{parameter.elements} * (is_quantised(rules, parameter) ? 1 : kFP32);
}

// Managed memory exists on CUDA only; on the CPU bitsandbytes does not page.
bool is_managed(const OptimizerRun& run, const SteppedParameter& parameter) {
  return rules_of(run.kind).paged && run.device == Device::kCuda && parameter.elements >= kMinPagedElements;
}

// A variable of the Python loop: its new value is allocated before the old one is freed.
class Variable {
 public:
  explicit Variable(StepLedger& ledger) : ledger_(ledger) {}
  void assign(std::size_t parameter, Bytes bytes) { keep(ledger_.allocate(parameter, bytes)); }
  void keep(BlockId block) {
    clear();
    block_ = block;
  }
  BlockId take() { return std::exchange(block_, -1); }
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

// Temporaries of an expression, all of one size; the oldest is released first.
class Expression {
 public:
  Expression(StepLedger& ledger, std::size_t parameter, Bytes bytes)
      : ledger_(ledger), parameter_(parameter), bytes_(bytes) {}
  void make(int count) {
    for (; count > 0; --count) {
      live_.push_back(ledger_.allocate(parameter_, bytes_));
    }
  }
  void drop(int count) {
    for (; count > 0; --count) {
      ledger_.release(take());
    }
  }
  BlockId take() {
    const BlockId oldest = live_.front();
    live_.erase(live_.begin());
    return oldest;
  }

 private:
  StepLedger& ledger_;
  const std::size_t parameter_;
  const Bytes bytes_;
  std::vector<BlockId> live_;
};

// std = ...; delta = ...
void adadelta_step(const std::vector<SteppedParameter>& parameters, StepLedger& ledger) {
  Variable root(ledger);
  Variable delta(ledger);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    root.assign(i, parameters[i].bytes);
    delta.assign(i, parameters[i].bytes);
  }
  delta.clear();
  root.clear();
}

// The step that adapts its rate: from the sixth on.
void radam_step(const std::vector<SteppedParameter>& parameters, bool old, StepLedger& ledger) {
  Variable corrected(ledger);
  Variable adaptive(ledger);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Expression rate(ledger, i, parameters[i].bytes);
    corrected.assign(i, parameters[i].bytes);
    if (old) {  // torch 1.13 keeps the rate in a variable
      rate.make(3);
      rate.drop(2);
      adaptive.keep(rate.take());
      rate.make(2);
      rate.drop(1);
    } else {
      rate.make(4);
      rate.drop(2);
      rate.make(1);
      rate.drop(2);
    }
    rate.make(1);
    rate.drop(2);
  }
  corrected.clear();
  adaptive.clear();
}

void adamax_step(const std::vector<SteppedParameter>& parameters, const OptimizerRun& run,
                 StepLedger& ledger) {
  Variable norms(ledger);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Bytes bytes = parameters[i].bytes;
    const BlockId magnitude = ledger.allocate(i, bytes);
    if (run.version >= kTorch2) {
      ledger.release(magnitude);
      continue;
    }
    const BlockId both = ledger.allocate(i, bytes * 2);  // the maximum's operands side by side
    ledger.release(magnitude);
    norms.keep(both);
    if (run.implementation == OptimizerImplementation::kForEach) {  // torch.max's indices
      constexpr std::int64_t kIndex = 8;
      allocate_and_release(ledger, i, Bytes{parameters[i].elements} * kIndex);
    }
  }
  norms.clear();
}

// lion_pytorch.py: update_fn
void lion_step(const std::vector<SteppedParameter>& parameters, StepLedger& ledger) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Expression update(ledger, i, parameters[i].bytes);
    update.make(2);
    update.drop(2);
  }
}

bool is_matrix(const SteppedParameter& parameter) {
  return parameter.dimensions == 2;
}

// torch/optim/_muon.py: the gradient's orthogonal factor by five Newton-Schulz iterations in bf16.
void newton_schulz_step(const std::vector<SteppedParameter>& parameters, Device device, StepLedger& ledger) {
  constexpr int kIterations = 5;
  Variable update(ledger);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const SteppedParameter& matrix = parameters[i];
    const std::int64_t shorter = std::min(matrix.rows, matrix.columns);
    const BlockId momentum = ledger.allocate(i, matrix.bytes);
    update.clear();
    Variable factor(ledger);
    Variable gram(ledger);
    Variable gram_update(ledger);
    factor.assign(i, Bytes{matrix.elements} * kBF16);
    for (int k = 0; k < kIterations; ++k) {
      gram.assign(i, Bytes{shorter} * shorter * kBF16);
      gram_update.assign(i, Bytes{shorter} * shorter * kBF16);
      factor.assign(i, Bytes{matrix.elements} * kBF16);
    }
    gram.clear();
    gram_update.clear();
    ledger.release(momentum);
    update.keep(factor.take());
    if (device == Device::kCpu) {  // adding bf16 to fp32 converts first; CUDA's kernel converts as it reads
      allocate_and_release(ledger, i, matrix.bytes);
    }
  }
  update.clear();
}

// bitsandbytes' kernels for the CPU are PyTorch operators (backends/default/ops.py, backends/cpu/ops.py);
// those for CUDA allocate nothing.
void bitsandbytes_step(const std::vector<SteppedParameter>& parameters, const OptimizerRun& run,
                       StepLedger& ledger) {
  if (run.device == Device::kCuda) {
    return;
  }
  const Rules& rules = rules_of(run.kind);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::int64_t elements = parameters[i].elements;
    Expression values(ledger, i, Bytes{elements} * kFP32);
    if (!is_quantised(rules, parameters[i])) {
      values.make(3);
      values.drop(1);
      values.make(1);
      values.drop(3);
      continue;
    }
    values.make(5);
    values.drop(1);
    if (rules.states == 1) {
      values.drop(1);
      values.make(1);
      values.drop(1);
    }
    for (int state = 0; state < rules.states; ++state) {
      const BlockId maxima = ledger.allocate(i, maxima_of_blocks(elements));
      allocate_and_release(ledger, i, Bytes{elements});
      ledger.release(maxima);
    }
    values.drop(rules.states + 2);
  }
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

// A step over some of the parameters.
class PartOfStep : public StepLedger {
 public:
  PartOfStep(StepLedger& ledger, const std::vector<SteppedParameter>& all, bool matrices) : ledger_(ledger) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (is_matrix(all[i]) == matrices) {
        parameters.push_back(all[i]);
        places_.push_back(i);
      }
    }
  }
  BlockId allocate(std::size_t parameter, Bytes bytes) override {
    return ledger_.allocate(places_[parameter], bytes);
  }
  void release(BlockId block) override { ledger_.release(block); }

  std::vector<SteppedParameter> parameters;

 private:
  StepLedger& ledger_;
  std::vector<std::size_t> places_;
};

void muon_step(const OptimizerRun& run, const std::vector<SteppedParameter>& parameters, StepLedger& ledger) {
  PartOfStep matrices(ledger, parameters, true);
  newton_schulz_step(matrices.parameters, run.device, matrices);
  PartOfStep rest(ledger, parameters, false);
  OptimizerRun adamw = run;
  adamw.kind = Optimizer::kAdamW;
  optimizer_step(adamw, rest.parameters, rest);
}

// Those that the optimizer updates, or the others; parameters that share a storage once.
std::vector<SteppedParameter> parameters_of(const Trace& trace, const TraceShapes& shapes, bool updated) {
  std::vector<SteppedParameter> parameters;
  const auto is_updated = [](const TraceParameter& parameter) {
    return parameter.trainable && !parameter.gradient.empty();
  };
  std::vector<bool> seen(trace.storages.size(), false);
  for (const TraceParameter& parameter : trace.parameters) {
    if (!updated && is_updated(parameter)) {  // of a storage that is updated there is nothing else
      seen[static_cast<std::size_t>(parameter.storage)] = true;
    }
  }
  for (std::size_t i = 0; i < trace.parameters.size(); ++i) {
    const TraceParameter& parameter = trace.parameters[i];
    const auto storage = static_cast<std::size_t>(parameter.storage);
    // A storage of no bytes stands for tables that are placed apart (spec/record.cc).
    if (is_updated(parameter) != updated || seen[storage] ||
        (!updated && shapes.storage(parameter.storage).count == 0)) {
      continue;
    }
    seen[storage] = true;
    const TensorView view = shapes.tensor_of(parameter.layout, parameter.dtype);
    SteppedParameter& stepped = parameters.emplace_back();
    stepped.id = i;
    stepped.bytes = view.bytes();
    stepped.elements = view.elements;
    stepped.rows = view.elements / std::max<std::int64_t>(1, view.size(-1));
    stepped.dimensions = view.rank();
    stepped.columns = view.rank() < 2 ? 0 : view.elements / std::max<std::int64_t>(1, view.size(-2));
    stepped.sparse = parameter.sparse_gradient;
    for (const std::int32_t gradient : parameter.gradient) {
      stepped.gradient += shapes.storage(gradient);
    }
  }
  return parameters;
}

}  // namespace

std::vector<SteppedParameter> stepped_parameters(const Trace& trace, const TraceShapes& shapes) {
  return parameters_of(trace, shapes, true);
}

std::vector<SteppedParameter> frozen_parameters(const Trace& trace, const TraceShapes& shapes) {
  return parameters_of(trace, shapes, false);
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
  const Rules& rules = rules_of(kind);
  const std::string name = crds::name_of(kind);
  if (kind == Optimizer::kMuon && version < kFirstMuon) {
    return Error(ErrorCode::kUnsupported,
                 "torch.optim has Muon since 2.9, and the graph was exported with an older PyTorch");
  }
  if (run.implementation == OptimizerImplementation::kFused && !rules.fused) {
    return Error(ErrorCode::kUnsupported,
                 "there is no fused " + name +
                     "; SGD, Momentum, Adam, AdamW and Adagrad have a fused version in torch.optim");
  }
  if (implementation == OptimizerImplementation::kForEach && rules.lists[1] < 0) {
    return Error(ErrorCode::kUnsupported,
                 "there is no foreach version of " + name + "; leave the implementation to its default");
  }
  if (run.implementation == OptimizerImplementation::kFused && version < kTorch2 &&
      !(device == Device::kCuda && kind == Optimizer::kAdam)) {
    return Error(ErrorCode::kUnsupported,
                 "the graph was exported with PyTorch before 2.0, whose only fused optimizer is Adam on "
                 "CUDA");
  }
  return run;
}

bool is_of_bitsandbytes(Optimizer kind) {
  return rules_of(kind).library == Library::kBitsandbytes;
}

std::vector<Bytes> optimizer_state(const OptimizerRun& run, const SteppedParameter& parameter) {
  if (run.kind == Optimizer::kMuon && !is_matrix(parameter)) {
    OptimizerRun adamw = run;
    adamw.kind = Optimizer::kAdamW;
    return optimizer_state(adamw, parameter);
  }
  const Rules& rules = rules_of(run.kind);
  std::vector<Bytes> state;
  // Step counts are scalars on the CPU; a fused kernel keeps them on the GPU.
  if (run.device == Device::kCpu || run.implementation == OptimizerImplementation::kFused) {
    state.assign(static_cast<std::size_t>(rules.scalars[run.version >= kTorch2 ? 1 : 0]), Bytes{kFP32});
  }
  const auto states = static_cast<std::size_t>(rules.states);
  if (!is_managed(run, parameter)) {
    state.insert(state.end(), states, state_bytes(rules, parameter));
  }
  if (is_quantised(rules, parameter)) {
    state.insert(state.end(), states, maxima_of_blocks(parameter.elements));
  }
  if (run.kind == Optimizer::kAdafactor && parameter.columns == 0) {
    state.push_back(parameter.bytes);
  } else if (run.kind == Optimizer::kAdafactor) {
    state.push_back(Bytes{parameter.rows} * kFP32);
    state.push_back(Bytes{parameter.columns} * kFP32);
  } else if (run.kind == Optimizer::kRowWiseAdagrad) {
    state.push_back(Bytes{parameter.rows} * kFP32);
  }
  return state;
}

Bytes managed_state(const OptimizerRun& run, const SteppedParameter& parameter) {
  const Rules& rules = rules_of(run.kind);
  return is_managed(run, parameter) ? state_bytes(rules, parameter) * rules.states : Bytes{};
}

void optimizer_step(const OptimizerRun& run, const std::vector<SteppedParameter>& parameters,
                    StepLedger& ledger) {
  const Rules& rules = rules_of(run.kind);
  const bool old = run.version < kTorch2;
  if (rules.library == Library::kBitsandbytes) {
    bitsandbytes_step(parameters, run, ledger);
    return;
  }
  if (run.kind == Optimizer::kMuon) {
    muon_step(run, parameters, ledger);
    return;
  }
  if (run.implementation == OptimizerImplementation::kFused) {
    return;
  }
  const bool in_lists =
      run.implementation == OptimizerImplementation::kForEach && rules.lists[old ? 0 : 1] >= 0;
  if (in_lists && !(run.kind == Optimizer::kAdamax && old)) {
    foreach_step(parameters, rules.lists[old ? 0 : 1], ledger);
    return;
  }
  switch (run.kind) {
    case Optimizer::kAdam:
    case Optimizer::kAdamW:
    case Optimizer::kNAdam:
    case Optimizer::kLAMB: adam_step(parameters, ledger); return;
    case Optimizer::kAdagrad:
    case Optimizer::kRMSprop: root_step(parameters, ledger); return;
    case Optimizer::kRowWiseAdagrad: row_wise_step(parameters, ledger); return;
    case Optimizer::kAdafactor: adafactor_step(parameters, ledger); return;
    case Optimizer::kRAdam: radam_step(parameters, old, ledger); return;
    case Optimizer::kAdadelta: adadelta_step(parameters, ledger); return;
    case Optimizer::kAdamax: adamax_step(parameters, run, ledger); return;
    case Optimizer::kLion: lion_step(parameters, ledger); return;
    default: return;  // SGD updates in place
  }
}

}  // namespace plimsoll::estimator::trace
