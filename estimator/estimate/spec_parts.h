// SpecParts: what a spec (DLRM or transformer) lowers to and records, part by part of a pipeline: all that does not depend
// on the number of trainers. A search over many numbers keeps it (KnownSpecParts) and only runs the iterations.
//
//   KnownSpecParts known;
//   SpecParts& parts = known.of({&model, training, &spec, options});
//   Result<std::vector<const Recording*>> chunks = parts.of_stage(0);
//
// Not thread-safe. Refers to the model and the budget, which must outlive it.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "crds/training_job.h"
#include "estimator/execute/run_trace.h"
#include "estimator/spec/record.h"
#include "estimator/spec/transformer_spec.h"
#include "estimator/transformer/transformer_part.h"

namespace plimsoll::estimator::inline estimate {

// Lowers and records the parts that each stage holds. Parts that differ only in the numbers of their layers
// share one graph.
class SpecParts {
 public:
  struct Source {
    const crds::ModelSpec* model = nullptr;
    const crds::TrainingSpec& training;
    const TransformerSpec* spec = nullptr;  // of a transformer; null for a DLRM, which is a single part
    const RecordOptions& options;
    bool has_flash = true;  // TransformerPart's
  };
  explicit SpecParts(const Source& source);

  bool is_of(const Source& source) const;

  // The parts of a stage. Stages with equal parts get equal pointers.
  Result<std::vector<const Recording*>> of_stage(std::int64_t stage);
  // Parameters of all parts of the stage.
  Bytes parameter_bytes(std::int64_t stage);
  // Name of a tensor of a chunk, with the number of its own layer.
  Result<std::string> name_of(std::int64_t stage, std::int64_t chunk, TensorId tensor);
  // Parameters of the whole model on one trainer, as `training` has them; nothing if it cannot be lowered.
  std::optional<Bytes> whole_model(const crds::TrainingSpec& training);
  // Of the recordings.
  PreparedTraces& prepared() { return prepared_; }

 private:
  // Number of layers, number of dense ones, whether the part embeds and predicts; the first layer, if modules
  // are matched by name or the kinds of layers alternate.
  using Key = std::tuple<std::int64_t, std::int64_t, bool, bool, std::int64_t>;
  struct Lowered {
    std::unique_ptr<const ForwardGraph> graph;
    std::int64_t first_layer = 0;  // the layer number in the graph's names
    std::unique_ptr<const Recording> recording;
  };

  TransformerPart part_of(std::int64_t stage, std::int64_t chunk) const;
  Key key_of(const TransformerPart& part) const;
  Result<ForwardGraph> lower(const TransformerPart& part) const;

  const crds::ModelSpec* const model_;
  const crds::TrainingSpec training_;
  const std::optional<TransformerSpec> spec_;
  RecordOptions options_;
  const bool has_flash_;
  std::map<Key, Lowered> graphs_;
  // By stage and chunk, if the shared graph has other layer numbers.
  std::map<std::pair<std::int64_t, std::int64_t>, ForwardGraph> named_;
  std::optional<std::optional<Bytes>> whole_model_;
  PreparedTraces prepared_;
};

// The parts of the last few trainings of one model, which have other batches, or of its first layers only.
class KnownSpecParts {
 public:
  SpecParts& of(const SpecParts::Source& source);

 private:
  std::list<SpecParts> parts_;  // the last used first
};

}  // namespace plimsoll::estimator::estimate
