#include "estimator/layer_costs/spec_layers.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "estimator/estimate/spec_run.h"
#include "estimator/spec/record.h"
#include "estimator/spec/transformer_spec.h"
#include "estimator/speed/kernel_time.h"
#include "estimator/speed/stage_time.h"
#include "estimator/transformer/transformer.h"

namespace plimsoll::estimator::inline layer_costs {
namespace {

enum class Place : std::uint8_t { kEmbedding, kBlock, kHead };

// What the copies of ProfiledLayers share. A layer of which the model has one or more is a kind.
class SpecLayers {
 public:
  SpecLayers(const EstimateRequest& request, const crds::TrainingSpec& training, TransformerSpec spec,
             const KernelTimes& times)
      : request_(request), training_(training), spec_(std::move(spec)), times_(times) {
    producer_.version = spec_torch_version(training);
  }

  // Fills all of `layers` but the function.
  Result<void> find(ProfiledLayers& layers, const HostTraining& host) {
    std::vector<std::pair<LayerKind, std::size_t>> known;  // of blocks
    const auto add = [&](Place place, std::int64_t layer) -> Result<void> {
      Result<ForwardGraph> graph = lower(place, layer);
      if (!graph) {
        return graph.error();
      }
      kinds_.push_back({.place = place, .graph = *std::move(graph)});
      const Recording recording = recording_of(kinds_.back(), 1);
      const Result<TraceShapes> shapes =
          TraceShapes::at(recording.trace, 1, {.halve_floats = false, .budget = request_.budget});
      if (!shapes) {
        return shapes.error();
      }
      LayerSizes sizes = layer_sizes(recording.trace, *shapes, host);
      for (const Bytes buffer : buffers_of(place)) {
        sizes.buffers += buffer;
      }
      sizes.input = input_of(kinds_.back(), recording);
      layers.kinds.push_back(sizes);
      return {};
    };
    Result<void> added = add(Place::kEmbedding, 0);
    layers.kind_of.push_back(0);
    for (std::int64_t layer = 0; layer < spec_.layers && added; ++layer) {
      charge(request_.budget, 1);
      const LayerKind kind = spec_.kind_of(layer);
      auto found =
          std::find_if(known.begin(), known.end(), [&](const auto& each) { return each.first == kind; });
      if (found == known.end()) {
        added = add(Place::kBlock, layer);
        found = known.insert(known.end(), {kind, layers.kinds.size() - 1});
      }
      layers.kind_of.push_back(found->second);
    }
    if (added) {
      added = add(Place::kHead, 0);
      layers.kind_of.push_back(layers.kinds.size() - 1);
    }
    if (spec_.tied) {
      layers.tied = {0, layers.kind_of.size() - 1};
    }
    return added;
  }

  Result<LayerCosts> costs(std::size_t number, std::int64_t microbatch) const {
    const Kind& kind = kinds_[number];
    const Recording recording = recording_of(kind, microbatch);
    LayerTrace alone{.trace = &recording.trace,
                     .held = {recording.received, recording.result, recording.received_gradient}};
    hold_tables(kind, recording.trace, alone.held);
    if (kind.place == Place::kHead && recording.result >= 0) {
      alone.loss_begin = recording.trace.storages[index(recording.result)].allocated_at + 1;
    }
    Result<LayerMemory> memory =
        layer_memory(alone, producer_, {.batch = microbatch, .budget = request_.budget});
    if (!memory) {
      return memory.error();
    }
    for (const Bytes buffer : buffers_of(kind.place)) {
      memory->forward += block_of(buffer);
      memory->backward += block_of(buffer);
    }
    if (kind.place ==
        Place::kHead) {  // the loss, its gradient, and the weight of all targets, until backward has ended
      memory->backward += block_of(Bytes{width_bytes(ElementType::kFP32)}) * 3;
    }
    const StageTime time = stage_time(
        kind.graph, times_, {.batch = microbatch, .causal = spec_.causal(), .budget = request_.budget});
    return LayerCosts{.memory = *memory,
                      .forward_seconds = time.forward_seconds(),
                      .backward_seconds = time.forward_seconds() + time.backward_seconds()};
  }

 private:
  struct Kind {
    Place place = Place::kBlock;
    ForwardGraph graph;
  };

  Bytes block_of(Bytes bytes) const {
    return request_.device == Device::kCpu
               ? bytes
               : Bytes{(bytes.count + kCudaGranule - 1) / kCudaGranule} * kCudaGranule;
  }

  Result<ForwardGraph> lower(Place place, std::int64_t layer) const {
    const bool block = place == Place::kBlock;
    const std::int64_t first = place == Place::kHead ? spec_.layers : layer;
    return lower_transformer(spec_, training_,
                             {.first_layer = first,
                              .last_layer = block ? first + 1 : first,
                              .embeds = place == Place::kEmbedding,
                              .predicts = place == Place::kHead,
                              .device = request_.device,
                              .has_flash = has_flash(request_)},
                             request_.budget);
  }

  Recording recording_of(const Kind& kind, std::int64_t microbatch) const {
    return record(kind.graph, {.device = request_.device,
                               .batch = microbatch,
                               .input_batch = microbatch,
                               .keeps_result = kind.place != Place::kHead,
                               .caches_casts = false,  // plimsoll.harmony casts the weights itself
                               .budget = request_.budget});
  }

  // What the block's caller has made, such as tables of positions.
  static void hold_tables(const Kind& kind, const Trace& trace, std::vector<std::int32_t>& held) {
    for (std::int32_t i = 0; kind.place == Place::kBlock && i < kind.graph.op_count(); ++i) {
      const Span outputs = trace.operators[index(i)].outputs;
      for (std::int32_t at = outputs.begin; kind.graph.op(i).unit < 0 && at < outputs.begin + outputs.size;
           ++at) {
        held.push_back(trace.tensors[index(trace.operands[index(at)])].storage);
      }
    }
  }

  // Of one sample: the ids of its tokens, or what the layer before returns.
  Bytes input_of(const Kind& kind, const Recording& recording) const {
    return kind.place == Place::kEmbedding
               ? Bytes{spec_.sequence} * width_bytes(ElementType::kInt64)
               : Bytes{recording.trace.storages[index(recording.received)].bytes.at(1)};
  }

  // nn.Buffers of Hugging Face's modules (transformers 5.23): inv_freq and original_inv_freq of the rotary embedding that
  // plimsoll.harmony gives each block (models/llama/modeling_llama.py); position_ids and token_type_ids
  // (models/bert/modeling_bert.py).
  std::vector<Bytes> buffers_of(Place place) const {
    if (place == Place::kBlock && spec_.positions == Positions::kRotary) {
      const std::int64_t width = spec_.kv_rank > 0      ? spec_.rope_dim
                                 : spec_.partial_rotary ? spec_.rotary_dim
                                                        : spec_.head_dim;
      const ElementType type =
          training_.precision == crds::Precision::kBF16 ? ElementType::kBF16 : ElementType::kFP32;
      return {2, Bytes{width / 2} * width_bytes(type)};
    }
    if (place == Place::kEmbedding && spec_.token_types > 0 && spec_.positions == Positions::kLearned) {
      return {2, Bytes{spec_.max_positions} * width_bytes(ElementType::kInt64)};
    }
    return {};
  }

  const EstimateRequest request_;
  const crds::TrainingSpec& training_;
  const TransformerSpec spec_;
  const KernelTimes times_;
  TraceProducer producer_;
  std::vector<Kind> kinds_;
};

Result<void> check_chain(const TransformerSpec& spec) {
  const char* const what = spec.encoder_decoder    ? "an encoder-decoder"
                           : !spec.towers.empty()  ? "a model of two towers"
                           : spec.image.height > 0 ? "a model of images"
                           : spec.layers < 1       ? "a model without blocks"
                                                   : nullptr;
  return what == nullptr
             ? Result<void>()
             : Error(ErrorCode::kUnsupported,
                     std::string(what) +
                         " is not known as a list of layers, each of which takes what the one before "
                         "returns; a swap plan needs one");
}

}  // namespace

Result<ProfiledLayers> layers_of_spec(const EstimateRequest& request, const crds::TrainingSpec& training,
                                      const HostTraining& host) {
  Result<TransformerSpec> spec = transformer_spec(*request.model->transformer);
  if (!spec) {
    return spec.error();
  }
  if (Result<void> checked = check_chain(*spec); !checked) {
    return checked.error();
  }
  // Its flash kernel for the CPU takes no dropout (sdp_utils_cpp.h: check_for_dropout), and the functions that PyTorch then runs are
  // not lowered.
  if (request.device == Device::kCpu && spec->attention != crds::AttentionKind::kEager &&
      spec->attention_dropout > 0) {
    return Error(
        ErrorCode::kUnsupported,
        "attention with dropout by SDPA is not modelled on the CPU: choose attention Eager, or set the config's "
        "dropout of attention to 0");
  }
  const Result<KernelTimes> times = KernelTimes::of(*request.gpu, training);
  if (!times) {
    return times.error();
  }
  return profiled(std::make_shared<SpecLayers>(request, training, *std::move(spec), *times), host);
}

}  // namespace plimsoll::estimator::layer_costs
