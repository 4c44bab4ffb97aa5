// Trace: one training iteration of a PyTorch model, as it was recorded (docs/graph.md): every ATen operator
// of forward, loss and backward in the order of execution, every storage with its size as a function of the
// batch size, and when each is freed. import_graph.h reads it, estimator/execute/run_trace.h executes it.
//
//   Trace trace = graph.traces.front();
//   trace.storages.front().bytes.at(256);   // at batch 256
//
// Indices refer to the trace's own tables and were checked by the importer; -1 means "none". Time t is after
// operator t-1 and before operator t. A value type; const access is thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/budget.h"
#include "base/bytes.h"
#include "crds/training_job.h"

namespace plimsoll::estimator::inline trace {

// An id as an index of its table.
inline std::size_t index(std::int32_t id) {
  return static_cast<std::size_t>(id);
}

// A polynomial in the batch size: c[0] + c[1] * B + ...
struct Count {
  std::array<double, 4> c{};

  // Rounded to the nearest integer; saturates at the ends of 64 bits.
  std::int64_t at(std::int64_t batch) const;
  // In a trace of a spec, which is valid for one batch size, all counts are constant.
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
  kGradient,  // a parameter's .grad at the end of backward
  kBackward,  // any other storage allocated in backward
};

struct TraceStorage {
  Count bytes;
  StorageRole role = StorageRole::kActivation;
  std::int32_t allocated_at = -1;  // the operator that allocates it; -1: before the iteration
  std::int32_t released_at = -1;   // the time when everything except autograd has freed it; -1: never
  std::int64_t count = 1;          // equal storages, allocated and freed together
};

// A range of a table.
struct Span {
  std::int32_t begin = 0;
  std::int32_t size = 0;
};

struct TraceLayout {
  Span shape;  // in Trace::counts
  Span strides;
  bool contiguous = true;  // row-major; strides are then not listed
};

struct TraceTensor {
  std::int32_t storage = -1;
  std::int32_t layout = 0;
  std::int16_t dtype = 0;
};

using AttributeValue = std::variant<std::monostate, Count, std::vector<Count>, std::string>;
struct Attribute {
  std::string name;
  AttributeValue value;  // numbers and booleans are counts
};
using Attributes = std::vector<Attribute>;

struct TraceOperator {
  std::int32_t name = 0;
  std::int32_t module = 0;
  std::int32_t attributes = -1;
  Span inputs;  // in Trace::operands; -1 for an absent argument
  Span outputs;
};

// A tensor that autograd saves for backward.
struct TraceSaved {
  std::int32_t tensor = 0;
  std::int32_t packed_at = 0;     // time when it was saved
  std::int32_t unpacked_at = -1;  // time when backward first used it
  std::int32_t released_at = -1;  // time when its autograd node freed it; -1: never
};

// A kernel temporary, measured by running the operator alone.
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
  std::vector<std::int32_t> gradient;  // storages: the dense gradient, or indices and values of a sparse one
  bool sparse_gradient = false;
  std::int32_t unit = -1;  // its FSDP unit, if Trace::module_groups is set
  bool expert = false;     // of one expert each
};

struct TraceBuffer {
  std::string name;
  std::int32_t storage = -1;
};

enum class Device { kCuda, kCpu };

// The FSDP unit and the checkpointed block of a module; -1: none.
struct ModuleGroup {
  std::int32_t unit = -1;
  std::int32_t block = -1;
};

struct Trace {
  // The long tables take their memory from `budget`, which must outlive the trace.
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
  std::vector<std::string> notes;         // remarks of the exporter for the user
  std::vector<std::int64_t> batch_sizes;  // recorded ones; a single one: valid for no other batch size
  std::vector<std::string> dtypes;
  std::vector<std::string> modules;
  std::vector<ModuleGroup> module_groups;  // by module; empty: derived from the modules' names
  std::vector<std::string> operator_names;
  std::vector<Attributes> attributes;
  std::vector<Count> counts;
  std::vector<TraceLayout> layouts;
  BudgetVector<TraceStorage> storages;
  BudgetVector<TraceTensor> tensors;
  BudgetVector<std::int32_t> operands;
  BudgetVector<TraceOperator> operators;
  BudgetVector<TraceSaved> saved;
  // True if kernels were measured; operators in neither of the two lists then have no temporaries.
  bool measured = false;
  BudgetVector<TraceTemporary> temporaries;
  std::vector<std::int32_t> unmeasured;
  std::int32_t forward_end = 0;  // operators before it are the model's forward;
  std::int32_t loss_end = 0;     // from there to this one, the loss; then backward
  // The forward passes, if the trace has several (estimator/parallel/pipeline.h). Empty: a single one.
  std::vector<Span> passes;
  BudgetVector<TraceParameter> parameters;
  std::vector<TraceBuffer> buffers;
};

// major * 100 + minor: 1.13 is 113, 2.15 is 215.
using TorchVersion = std::int32_t;
// "2.15.0+cu132" -> 215. 0: not a version.
TorchVersion torch_version_of(std::string_view text);

struct TraceProducer {
  std::string torch;
  TorchVersion version = 0;
  std::int64_t threads = 0;    // of PyTorch's CPU kernels when it was recorded; 0: unknown
  std::string cpu_capability;  // "AVX512", "AVX2", ...; empty: unknown
};

struct TraceFile {
  std::string name;
  TraceProducer producer;
  std::vector<crds::EmbeddingTable> embeddings;  // that the traces look up and do not hold
  std::vector<Trace> traces;                     // at most one per device and precision
};

// Approximate memory of a trace, or of a file, in this process.
Bytes memory_of(const Trace& trace);
Bytes memory_of(const TraceFile& graph);

// Bytes per element of a PyTorch dtype; 0 for an unknown name.
std::int64_t width_of_dtype(const std::string& name);
bool is_floating_dtype(const std::string& name);

}  // namespace plimsoll::estimator::trace
