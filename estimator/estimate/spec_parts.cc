#include "estimator/estimate/spec_parts.h"

#include <algorithm>
#include <utility>

#include "estimator/spec/dlrm.h"
#include "estimator/transformer/transformer.h"

namespace plimsoll::estimator::inline estimate {

SpecParts::SpecParts(const Source& source)
    : model_(source.model),
      training_(source.training),
      spec_(source.spec == nullptr ? std::nullopt : std::optional(*source.spec)),
      options_(source.options),
      has_flash_(source.has_flash) {}

// All else of a model is equal in one search (Estimator).
bool SpecParts::is_of(const Source& source) const {
  return source.model == model_ &&
         (source.spec == nullptr ? 0 : source.spec->layers) == (spec_ ? spec_->layers : 0) &&
         source.options.device == options_.device && source.has_flash == has_flash_ &&
         source.training == training_;
}

Result<std::vector<const Recording*>> SpecParts::of_stage(std::int64_t stage) {
  std::vector<const Recording*> recordings;
  for (std::int64_t chunk = 0; chunk < training_.parallelism.pipeline_chunks; ++chunk) {
    charge(options_.budget, 1);
    const TransformerPart part = part_of(stage, chunk);
    Lowered& lowered = graphs_[key_of(part)];
    if (lowered.recording == nullptr) {
      Result<ForwardGraph> graph = lower(part);
      if (!graph) {
        return graph.error();
      }
      lowered.graph = std::make_unique<const ForwardGraph>(*std::move(graph));
      lowered.first_layer = part.first_layer;
      options_.keeps_result = !part.predicts;
      lowered.recording = std::make_unique<const Recording>(record(*lowered.graph, options_));
    }
    recordings.push_back(lowered.recording.get());
  }
  return recordings;
}

Bytes SpecParts::parameter_bytes(std::int64_t stage) {
  Bytes sum;
  for (std::int64_t chunk = 0; chunk < training_.parallelism.pipeline_chunks; ++chunk) {
    const ForwardGraph& graph = *graphs_.at(key_of(part_of(stage, chunk))).graph;
    charge(options_.budget, graph.tensors().size());
    sum += graph.parameter_bytes();
  }
  return sum;
}

Result<std::string> SpecParts::name_of(std::int64_t stage, std::int64_t chunk, TensorId tensor) {
  const TransformerPart part = part_of(stage, chunk);
  const Lowered& shared = graphs_.at(key_of(part));
  if (shared.first_layer == part.first_layer) {
    return shared.graph->name_of(tensor);
  }
  auto own = named_.find({stage, chunk});
  if (own == named_.end()) {
    Result<ForwardGraph> graph = lower(part);
    if (!graph) {
      return graph.error();
    }
    own = named_.emplace(std::pair(stage, chunk), *std::move(graph)).first;
  }
  return own->second.name_of(tensor);
}

std::optional<Bytes> SpecParts::whole_model(const crds::TrainingSpec& training) {
  if (!whole_model_) {
    const Result<ForwardGraph> whole =
        spec_ ? lower_transformer(*spec_, training, {.device = options_.device}, options_.budget)
              : lower_dlrm(*model_->dlrm, training, options_.budget);
    whole_model_ = whole ? std::optional(whole->parameter_bytes()) : std::nullopt;
  }
  return *whole_model_;
}

TransformerPart SpecParts::part_of(std::int64_t stage, std::int64_t chunk) const {
  if (!spec_) {
    return {};
  }
  const crds::Parallelism& parallelism = training_.parallelism;
  const std::int64_t parts = parallelism.pipeline * parallelism.pipeline_chunks;
  const std::int64_t part = chunk * parallelism.pipeline + stage;
  return {.tensor = parallelism.tensor,
          .sequence = parallelism.sequence,
          .context = parallelism.context,
          .expert = parallelism.expert,
          .first_layer = part * spec_->layers / parts,
          .last_layer = (part + 1) * spec_->layers / parts,
          .embeds = part == 0,
          .predicts = part + 1 == parts,
          .device = options_.device,
          .has_flash = has_flash_};
}

SpecParts::Key SpecParts::key_of(const TransformerPart& part) const {
  if (!spec_) {
    return {};
  }
  const bool by_name = training_.activation_checkpointing == crds::ActivationCheckpointing::kPerModule;
  const std::int64_t layers = part.last_layer - part.first_layer;
  const std::int64_t dense = spec_->experts == 0
                                 ? layers
                                 : std::clamp<std::int64_t>(spec_->first_dense - part.first_layer, 0, layers);
  const bool numbered = by_name || !spec_->uniform() || training_.fine_tuning;
  return {layers, dense, part.embeds, part.predicts, numbered ? part.first_layer : 0};
}

Result<ForwardGraph> SpecParts::lower(const TransformerPart& part) const {
  return spec_ ? lower_transformer(*spec_, training_, part, options_.budget)
               : lower_dlrm(*model_->dlrm, training_, options_.budget);
}

SpecParts& KnownSpecParts::of(const SpecParts::Source& source) {
  constexpr std::size_t kKept = 3;  // equal layers are extrapolated from three models
  const auto known =
      std::find_if(parts_.begin(), parts_.end(), [&](const SpecParts& each) { return each.is_of(source); });
  if (known != parts_.end()) {
    parts_.splice(parts_.begin(), parts_, known);
    return parts_.front();
  }
  while (parts_.size() >= kKept) {
    parts_.pop_back();
  }
  return parts_.emplace_front(source);
}

}  // namespace plimsoll::estimator::estimate
