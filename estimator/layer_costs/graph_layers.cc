#include "estimator/layer_costs/graph_layers.h"

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "estimator/estimate/graph_estimate.h"
#include "estimator/layer_costs/graph_cut.h"
#include "estimator/layer_costs/graph_parts.h"
#include "estimator/ledger/ledger.h"
#include "estimator/speed/graph_time.h"
#include "estimator/speed/kernel_time.h"

namespace plimsoll::estimator::inline layer_costs {
namespace {

// All that tells layers apart but their names.
std::vector<std::int64_t> signature_of(const LayerCut& cut) {
  std::vector<std::int64_t> all;
  const Trace& rows = cut.rows;
  for (const TraceOperator& op : rows.operators) {
    all.insert(all.end(), {op.name, op.attributes, op.inputs.size, op.outputs.size});
  }
  all.insert(all.end(), rows.operands.begin(), rows.operands.end());
  for (const TraceTensor& tensor : rows.tensors) {
    all.insert(all.end(), {tensor.storage, tensor.layout, tensor.dtype});
  }
  for (const TraceStorage& storage : rows.storages) {
    for (const double c : storage.bytes.c) {
      all.push_back(std::bit_cast<std::int64_t>(c));
    }
    all.insert(all.end(),
               {static_cast<std::int64_t>(storage.role), storage.allocated_at, storage.released_at});
  }
  for (const TraceSaved& saved : rows.saved) {
    all.insert(all.end(), {saved.tensor, saved.packed_at, saved.unpacked_at, saved.released_at});
  }
  for (const TraceParameter& parameter : rows.parameters) {
    all.insert(all.end(), {parameter.storage, parameter.layout});
  }
  for (const TraceTensor& input : cut.inputs) {
    all.insert(all.end(), {input.layout, input.dtype});
  }
  all.push_back(cut.loss_begin);
  return all;
}

class GraphLayers {
 public:
  GraphLayers(const EstimateRequest& request, SelectedTrace selected, const KernelTimes& times)
      : request_(request), selected_(selected), times_(times) {}

  Result<void> find(ProfiledLayers& layers, const HostTraining& host) {
    Result<GraphParts> parts = graph_parts(*selected_.trace, request_.budget);
    if (!parts) {
      return parts.error();
    }
    parts_ = *std::move(parts);
    Result<GraphCut> cut = GraphCut::of(*selected_.trace, parts_, request_.budget);
    if (!cut) {
      return cut.error();
    }
    cut_.emplace(*std::move(cut));
    const Result<TraceShapes> shapes = shapes_of(*selected_.trace, 1);
    if (!shapes) {
      return shapes.error();
    }
    std::map<std::vector<std::int64_t>, std::size_t> known;
    for (std::size_t layer = 0; layer < cut_->layers(); ++layer) {
      LayerCut alone = cut_->layer(layer);
      std::vector<std::int64_t> signature = signature_of(alone);
      charge(request_.budget, signature.size());
      const auto [found, added] = known.emplace(std::move(signature), kinds_.size());
      if (added) {
        if (Result<void> done = add(std::move(alone), *shapes, host, layers); !done) {
          return done;
        }
      }
      layers.kind_of.push_back(found->second);
    }
    layers.tied = cut_->tied();
    return {};
  }

  Result<LayerCosts> costs(std::size_t number, std::int64_t microbatch) const {
    const Kind& kind = kinds_[number];
    if (kind.alone.rows.operators
            .empty()) {  // its result is its input, and so is the gradient that it is given
      const Bytes input = rounded(kind.input * microbatch);
      return LayerCosts{.memory = {.forward = input, .backward = input * 2}};
    }
    const Trace trace = whole_trace(kind);
    Result<LayerMemory> memory = layer_memory(
        {.trace = &trace, .held = {}, .loss_begin = kind.alone.loss_begin}, request_.graph->producer,
        {.batch = microbatch,
         .halve_floats = selected_.halve_floats,
         .gpu_family = convolution_family_of(request_),
         .convolution_workspace = request_.learned.convolution_workspace,
         .lenient = request_.lenient,
         .budget = request_.budget});
    const Result<TraceShapes> shapes = shapes_of(trace, microbatch);
    if (!memory || !shapes) {
      return !memory ? memory.error() : shapes.error();
    }
    memory->backward += kind.largest_vector;
    const StageTime time =
        graph_time(trace, *shapes, times_, {.batch = microbatch, .budget = request_.budget});
    return LayerCosts{.memory = *memory,
                      .forward_seconds = time.forward_seconds(),
                      .backward_seconds = time.forward_seconds() + time.backward_seconds()};
  }

 private:
  struct Kind {
    LayerCut alone;
    Bytes input;  // of one sample
    // A bias' gradient is there beside its weight's: a node of autograd computes both before either is added to the sum so far.
    Bytes largest_vector;
  };

  Result<TraceShapes> shapes_of(const Trace& trace, std::int64_t batch) const {
    return TraceShapes::at(trace, batch, {.halve_floats = selected_.halve_floats, .budget = request_.budget});
  }

  // The tables are those of the whole model: there is one copy at a time.
  Trace whole_trace(const Kind& kind) const {
    charge(request_.budget, selected_.trace->counts.size() + selected_.trace->layouts.size() +
                                selected_.trace->attributes.size() + selected_.trace->modules.size());
    return cut_->whole(kind.alone);
  }

  Bytes rounded(Bytes bytes) const {
    return request_.device == Device::kCpu
               ? bytes
               : Bytes{(bytes.count + kCudaGranule - 1) / kCudaGranule} * kCudaGranule;
  }

  Result<void> add(LayerCut alone, const TraceShapes& whole, const HostTraining& host,
                   ProfiledLayers& layers) {
    Kind kind{.alone = std::move(alone), .input = {}, .largest_vector = {}};
    const Trace trace = whole_trace(kind);
    std::map<std::int32_t, Bytes> inputs;  // by storage: the largest view
    for (const TraceTensor& input : kind.alone.inputs) {
      const Bytes bytes =
          std::min(whole.tensor_of(input.layout, input.dtype).bytes(), whole.storage(input.storage));
      inputs[input.storage] = std::max(inputs[input.storage], bytes);
    }
    for (const auto& [storage, bytes] : inputs) {
      kind.input += bytes;
    }
    const Result<TraceShapes> shapes = shapes_of(trace, 1);
    if (!shapes) {
      return shapes.error();
    }
    LayerSizes sizes = layer_sizes(trace, *shapes, host);
    for (const SteppedParameter& parameter : stepped_parameters(trace, *shapes)) {
      const bool vector = parameter.dimensions < 2;
      kind.largest_vector = std::max(kind.largest_vector, vector ? rounded(parameter.bytes) : Bytes{});
    }
    sizes.input = kind.input;
    layers.kinds.push_back(sizes);
    kinds_.push_back(std::move(kind));
    return {};
  }

  const EstimateRequest request_;
  const SelectedTrace selected_;
  const KernelTimes times_;
  GraphParts parts_;
  std::optional<GraphCut> cut_;
  std::vector<Kind> kinds_;
};

}  // namespace

Result<ProfiledLayers> layers_of_graph(const EstimateRequest& request, const crds::TrainingSpec& training,
                                       const HostTraining& host) {
  EstimateRequest computed = request;
  computed.training = &training;
  const Result<SelectedTrace> selected = select_trace(computed);
  if (!selected) {
    return selected.error();
  }
  if (selected->trace->batch_sizes.size() == 1) {
    return Error(ErrorCode::kUnsupported,
                 "the graph was recorded at batch " + std::to_string(selected->trace->batch_sizes.front()) +
                     " alone, and a profile needs several microbatches: its notes say why");
  }
  const Result<KernelTimes> times = KernelTimes::of(*request.gpu, training);
  if (!times) {
    return times.error();
  }
  return profiled(std::make_shared<GraphLayers>(request, *selected, *times), host);
}

}  // namespace plimsoll::estimator::layer_costs
