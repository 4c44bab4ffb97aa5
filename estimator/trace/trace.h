// Trace: one training iteration of any PyTorch model, as it was recorded (docs/graph.md): every ATen operator
// of forward, loss and backward in the order of execution, every storage with its size as a function of the
// batch, and when each is freed. import_graph.h reads it, estimator/execute/run_trace.h executes it.
//
//   Trace trace = graph.traces.front();
//   trace.storages.front().bytes.at(256);   // at batch 256
//
// Indices are of the trace's own tables and have been checked by the importer; -1 is "none". A time t is
// after operator t-1 and before operator t. A value type; const access from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/budget.h"
#include "base/bytes.h"

namespace plimsoll::estimator::inline trace {

// A polynomial in the batch size: c[0] + c[1] * B + ...
struct Count {
  std::array<double, 4> c{};

  // Rounded to the nearest integer; saturates at the ends of 64 bits.
  std::int64_t at(std::int64_t batch) const;
  // Of a spec's trace, which holds for one batch, all are constant.
  static Count constant(std::int64_t value) { return {{static_cast<double>(value), 0, 0, 0}}; }
  bool depends_on_batch() const { return c[1] != 0 || c[2] != 0 || c[3] != 0; }
};

enum class StorageRole : std::uint8_t {
  kParameter,
  kBuffer,
  kInput,
  kOutput,
  kLoss,
  kActivation,
  kGradient,  // a parameter's .grad when backward has ended
  kBackward,  // anything else made in backward
};

struct TraceStorage {
  Count bytes;
  StorageRole role = StorageRole::kActivation;
  std::int32_t allocated_at = -1;  // the operator; -1: before the iteration
  std::int32_t released_at = -1;   // the time when all but autograd has freed it; -1: never
  std::int64_t count = 1;          // stands for so many equal storages that live and die together
};

// A range of a pool.
struct Span {
  std::int32_t begin = 0;
  std::int32_t size = 0;
};

struct TraceLayout {
  Span shape;  // of Trace::counts
  Span strides;
  bool contiguous = true;  // row-major; no strides are listed then
};

struct TraceTensor {
  std::int32_t storage = -1;
  std::int32_t layout = 0;
  std::int16_t dtype = 0;
};

using AttributeValue = std::variant<std::monostate, Count, std::vector<Count>, std::string>;
struct Attribute {
  std::string name;
  AttributeValue value;  // numbers and truth values are counts
};
using Attributes = std::vector<Attribute>;

struct TraceOperator {
  std::int32_t name = 0;
  std::int32_t module = 0;
  std::int32_t attributes = -1;
  Span inputs;  // of Trace::operands; -1 for an absent argument
  Span outputs;
};

// What autograd keeps for backward.
struct TraceSaved {
  std::int32_t tensor = 0;
  std::int32_t packed_at = 0;     // the time when it was saved
  std::int32_t unpacked_at = -1;  // the time when backward first asked for it
  std::int32_t released_at = -1;  // the time when its node let it go; -1: never
};

// Bytes that a kernel took inside when it was run by itself, beyond what it keeps.
struct TraceTemporary {
  std::int32_t op = 0;
  Count bytes;
};

struct TraceParameter {
  std::string name;
  std::int32_t storage = -1;
  std::int32_t layout = 0;
  std::int16_t dtype = 0;
  bool trainable = true;
  std::vector<std::int32_t> gradient;  // storages: dense one, sparse indices and values
  bool sparse_gradient = false;
  std::int32_t unit = -1;  // where module_groups says units: the one that it belongs to
};

struct TraceBuffer {
  std::string name;
  std::int32_t storage = -1;
};

enum class Device { kCuda, kCpu };

// Which modules FSDP wraps together and activation checkpointing computes again as one; -1: none.
struct ModuleGroup {
  std::int32_t unit = -1;
  std::int32_t block = -1;
};

struct Trace {
  // Its long tables take their memory from `budget`, which must outlive it.
  explicit Trace(Budget* budget = nullptr)
      : storages(budget),
        tensors(budget),
        operands(budget),
        operators(budget),
        saved(budget),
        temporaries(budget),
        parameters(budget) {}

  Device device = Device::kCpu;
  std::string precision;  // "FP32", "BF16Mixed", ...
  std::string method;
  std::vector<std::string> notes;         // what a person should know of the recording
  std::vector<std::int64_t> batch_sizes;  // recorded; one alone: it holds for no other
  std::vector<std::string> dtypes;
  std::vector<std::string> modules;
  std::vector<ModuleGroup> module_groups;  // by module; empty: found by the modules' names
  std::vector<std::string> operator_names;
  std::vector<Attributes> attributes;
  std::vector<Count> counts;
  std::vector<TraceLayout> layouts;
  BudgetVector<TraceStorage> storages;
  BudgetVector<TraceTensor> tensors;
  BudgetVector<std::int32_t> operands;
  BudgetVector<TraceOperator> operators;
  BudgetVector<TraceSaved> saved;
  // Where kernels were measured: operators in neither list take nothing inside.
  bool measured = false;
  BudgetVector<TraceTemporary> temporaries;
  std::vector<std::int32_t> unmeasured;
  std::int32_t forward_end = 0;  // operators before it are the model's forward,
  std::int32_t loss_end = 0;     // those before this the loss, the rest backward
  // Of a trace that was put together from several passes: each forward (estimator/parallel/pipeline.h). Empty: the one.
  std::vector<Span> passes;
  BudgetVector<TraceParameter> parameters;
  std::vector<TraceBuffer> buffers;
};

// major * 100 + minor: 1.13 is 113, 2.15 is 215.
using TorchVersion = std::int32_t;

struct TraceProducer {
  std::string torch;
  TorchVersion version = 0;
  std::int64_t threads = 0;    // of PyTorch's CPU kernels when it was recorded; 0: not told
  std::string cpu_capability;  // "AVX512", "AVX2", ...; empty: not told
};

struct TraceFile {
  std::string name;
  TraceProducer producer;
  std::vector<Trace> traces;  // at most one of each device and precision
};

// What a trace, or all of a file, takes in this process, about.
Bytes memory_of(const Trace& trace);
Bytes memory_of(const TraceFile& graph);

// Bytes of an element of a dtype as PyTorch names it; 0 for a name that it does not have.
std::int64_t width_of_dtype(const std::string& name);
bool is_floating_dtype(const std::string& name);

}  // namespace plimsoll::estimator::trace
