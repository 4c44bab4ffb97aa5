#include "estimator/estimate/spec_run.h"

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "estimator/execute/run_trace.h"
#include "estimator/fixed_costs/fixed_costs.h"
#include "estimator/parallel/schedule.h"
#include "estimator/spec/dlrm.h"
#include "estimator/spec/record.h"
#include "estimator/spec/transformer.h"
#include "estimator/spec/transformer_spec.h"
#include "estimator/trace/optimizer.h"

namespace plimsoll::estimator::inline estimate {
namespace {

using crds::ParallelStrategy;

constexpr std::size_t kLargest = 10;
// Maximum number of ranks of ZeRO-1 that are run one by one; with more, the first represents all.
constexpr std::int64_t kMaxOwners = 16;
// After this many rounds of micro-batches an iteration repeats: gradients exist and each stage is full.
constexpr std::int64_t kSteadyRounds = 3;

Error bad_field(const std::string& field, const std::string& what) {
  return invalid("training.parallelism." + field + " " + what);
}

bool half_precision(crds::Precision precision) {
  return precision == crds::Precision::kBF16Mixed || precision == crds::Precision::kFP16Mixed;
}

// FSDP's MixedPrecision and DeepSpeed compute in half precision throughout and keep an fp32 copy for the
// optimizer, while torch.autocast casts operator by operator.
bool casts_parameters(const crds::TrainingSpec& training) {
  const ParallelStrategy strategy = training.parallelism.strategy;
  return half_precision(training.precision) && strategy != ParallelStrategy::kAuto &&
         strategy != ParallelStrategy::kDDP;
}

Result<void> check_split(const EstimateRequest& request) {
  const crds::Parallelism& parallelism = request.training->parallelism;
  const std::pair<const char*, std::int64_t> splits[] = {{"tensor", parallelism.tensor},
                                                         {"pipeline", parallelism.pipeline},
                                                         {"context", parallelism.context},
                                                         {"expert", parallelism.expert},
                                                         {"pipelineChunks", parallelism.pipeline_chunks}};
  constexpr std::int64_t kMaxSize = 4096;
  std::int64_t product = 1;
  for (const auto& [field, size] : splits) {
    if (size < 1 || size > kMaxSize) {
      return bad_field(field,
                       "must be from 1 to " + std::to_string(kMaxSize) + ", is " + std::to_string(size));
    }
  }
  if (request.model->dlrm && (parallelism.tensor > 1 || parallelism.pipeline > 1 || parallelism.context > 1 ||
                              parallelism.expert > 1)) {
    return bad_field(
        "strategy",
        "is the only parallelism of a dlrm model; tensor, pipeline, context and expert are for transformers");
  }
  product = parallelism.tensor * parallelism.pipeline * parallelism.context;
  if (request.trainers % product != 0) {
    return invalid("trainers must be a multiple of parallelism.tensor x pipeline x context, " +
                   std::to_string(product) + ", is " + std::to_string(request.trainers));
  }
  const std::int64_t replicas = request.trainers / product;
  if (replicas % parallelism.expert != 0 && parallelism.expert % replicas != 0) {
    return bad_field("expert", "is " + std::to_string(parallelism.expert) + " and must divide the " +
                                   std::to_string(replicas) + " replicas of the model");
  }
  const std::int64_t parts = request.training->gradient_accumulation;
  if (parts < 1 || request.training->batch_size_per_trainer % parts != 0) {
    return invalid("training.gradientAccumulation is " + std::to_string(parts) +
                   " and must divide batchSizePerTrainer, " +
                   std::to_string(request.training->batch_size_per_trainer));
  }
  if (parallelism.pipeline_chunks > 1 && parts % parallelism.pipeline != 0) {
    return invalid("training.gradientAccumulation is " + std::to_string(parts) +
                   ": an interleaved pipeline needs a multiple of its " +
                   std::to_string(parallelism.pipeline) + " stages");
  }
  return {};
}

Result<void> check_parts(const TransformerSpec& spec, const crds::Parallelism& parallelism) {
  const std::int64_t parts = parallelism.pipeline * parallelism.pipeline_chunks;
  if (parts > 1 && spec.encoder_decoder) {
    return bad_field("pipeline", "supports decoders and encoders, but not models with both");
  }
  if (parts > spec.layers) {
    return bad_field("pipeline", "x pipelineChunks is " + std::to_string(parts) + ", and the model has " +
                                     std::to_string(spec.layers) + " layers");
  }
  return {};
}

// Lowers and records the parts that each stage holds. Parts that differ only in the numbers of their layers
// share one graph.
class Parts {
 public:
  // `spec`: of a transformer; null for a DLRM, which is a single part.
  Parts(const EstimateRequest& request, const crds::TrainingSpec& training, const TransformerSpec* spec,
        const RecordOptions& options)
      : request_(request), training_(training), spec_(spec), options_(options) {}

  // The parts of a stage. Stages with equal parts get equal pointers.
  Result<std::vector<const Recording*>> of_stage(std::int64_t stage) {
    std::vector<const Recording*> recordings;
    for (std::int64_t chunk = 0; chunk < training_.parallelism.pipeline_chunks; ++chunk) {
      charge(request_.budget, 1);
      const TransformerPart part = part_of(stage, chunk);
      Lowered& lowered = graphs_[key_of(part)];
      if (lowered.graph == nullptr) {
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

  // Parameters of all parts of the stage.
  Bytes parameter_bytes(std::int64_t stage) {
    Bytes sum;
    for (std::int64_t chunk = 0; chunk < training_.parallelism.pipeline_chunks; ++chunk) {
      const ForwardGraph& graph = *graphs_.at(key_of(part_of(stage, chunk))).graph;
      charge(request_.budget, graph.tensors().size());
      sum += graph.parameter_bytes();
    }
    return sum;
  }

  // Name of a tensor of a chunk, with the number of its own layer. Use it for one stage only.
  Result<std::string> name_of(std::int64_t stage, std::int64_t chunk, TensorId tensor) {
    const TransformerPart part = part_of(stage, chunk);
    const Lowered& shared = graphs_.at(key_of(part));
    if (shared.first_layer == part.first_layer) {
      return shared.graph->name_of(tensor);
    }
    auto own = named_.find(chunk);
    if (own == named_.end()) {
      Result<ForwardGraph> graph = lower(part);
      if (!graph) {
        return graph.error();
      }
      own = named_.emplace(chunk, *std::move(graph)).first;
    }
    return own->second.name_of(tensor);
  }

 private:
  // Number of layers, number of dense ones, whether the part embeds and predicts; the first layer, if modules
  // are matched by name.
  using Key = std::tuple<std::int64_t, std::int64_t, bool, bool, std::int64_t>;
  struct Lowered {
    std::unique_ptr<const ForwardGraph> graph;
    std::int64_t first_layer = 0;  // the layer number in the graph's names
    std::unique_ptr<const Recording> recording;
  };

  TransformerPart part_of(std::int64_t stage, std::int64_t chunk) const {
    if (spec_ == nullptr) {
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
            .predicts = part + 1 == parts};
  }

  Key key_of(const TransformerPart& part) const {
    if (spec_ == nullptr) {
      return {};
    }
    const bool by_name = training_.activation_checkpointing == crds::ActivationCheckpointing::kPerModule;
    const std::int64_t layers = part.last_layer - part.first_layer;
    const std::int64_t dense =
        spec_->experts == 0 ? layers
                            : std::clamp<std::int64_t>(spec_->first_dense - part.first_layer, 0, layers);
    return {layers, dense, part.embeds, part.predicts, by_name ? part.first_layer : 0};
  }

  Result<ForwardGraph> lower(const TransformerPart& part) const {
    return spec_ == nullptr ? lower_dlrm(*request_.model->dlrm, training_, request_.budget)
                            : lower_transformer(*spec_, training_, part, request_.budget);
  }

  const EstimateRequest& request_;
  const crds::TrainingSpec& training_;
  const TransformerSpec* spec_;
  RecordOptions options_;
  std::map<Key, Lowered> graphs_;
  std::map<std::int64_t, ForwardGraph> named_;  // by chunk, if the shared graph has other layer numbers
};

// The graph's tensor that a block belongs to.
TensorId tensor_of(const Recording& recording, const TraceRun::Origin& origin) {
  const Trace& trace = recording.trace;
  const auto id = static_cast<std::size_t>(origin.id);
  using enum TraceRun::Source;
  if (origin.source == kKernel) {
    const TraceOperator& op = trace.operators[id];
    const Span results = origin.id < trace.loss_end ? op.outputs : op.inputs;
    return trace.operands[static_cast<std::size_t>(results.begin)];
  }
  const std::int32_t storage =
      origin.source == kStorage || origin.source == kRecomputed ? origin.id : trace.parameters[id].storage;
  return recording.tensor_of_storage[static_cast<std::size_t>(storage)];
}

Result<std::vector<LiveTensor>> largest_live(const TraceRun& run, Parts& parts,
                                             const std::vector<const Recording*>& chunks,
                                             std::int64_t stage) {
  std::vector<LiveTensor> largest;
  for (const BlockId id : run.ledger.largest_at_peak(kLargest)) {
    const Ledger::Block& block = run.ledger.blocks()[static_cast<std::size_t>(id)];
    const TraceRun::Origin& origin = run.origin_of(id);
    Result<std::string> name = parts.name_of(
        stage, origin.chunk, tensor_of(*chunks[static_cast<std::size_t>(origin.chunk)], origin));
    if (!name) {
      return name.error();
    }
    largest.push_back({*std::move(name), kind_of(block.part), block.bytes});
  }
  return largest;
}

// Number of ranks among the replicas that may differ.
std::int64_t owners(const EstimateRequest& request, std::int64_t replicas, bool keeps_fp32) {
  const bool whole_parameters =
      request.training->parallelism.strategy == ParallelStrategy::kZeRO1 && !keeps_fp32;
  return whole_parameters && replicas <= kMaxOwners ? replicas : 1;
}

}  // namespace

Result<Recording> record_whole(const EstimateRequest& request, std::int64_t batch) {
  Result<ForwardGraph> graph = ForwardGraph();
  if (request.model->dlrm) {
    graph = lower_dlrm(*request.model->dlrm, *request.training, request.budget);
  } else {
    const Result<TransformerSpec> spec = transformer_spec(*request.model->transformer);
    graph = spec ? lower_transformer(*spec, *request.training, {}, request.budget)
                 : Result<ForwardGraph>(spec.error());
  }
  if (!graph) {
    return graph.error();
  }
  return record(*graph,
                {.device = request.device, .batch = batch, .input_batch = batch, .budget = request.budget});
}

// Replicas of the whole model are all equal; they differ from a single trainer by their buckets.
std::int64_t trainers_that_matter(const EstimateRequest& request) {
  const crds::Parallelism& parallelism = request.training->parallelism;
  const bool whole =
      parallelism.strategy == ParallelStrategy::kAuto || parallelism.strategy == ParallelStrategy::kDDP;
  const bool split = parallelism.tensor != 1 || parallelism.pipeline != 1 || parallelism.context != 1 ||
                     parallelism.expert != 1;
  return whole && !split ? std::min<std::int64_t>(request.trainers, 2) : request.trainers;
}

Result<SpecRun> run_spec(const EstimateRequest& request) {
  if (request.model->dlrm) {
    return run_spec(request, nullptr);
  }
  const Result<TransformerSpec> spec = transformer_spec(*request.model->transformer);
  return spec ? run_spec(request, &*spec) : spec.error();
}

Result<SpecRun> run_spec(const EstimateRequest& request, const TransformerSpec* spec) {
  Result<void> checked = check_split(request);
  if (checked && spec != nullptr) {
    checked = check_parts(*spec, request.training->parallelism);
  }
  if (!checked) {
    return checked.error();
  }
  const Result<OptimizerRun> optimizer =
      optimizer_run(request.training->optimizer, request.training->optimizer_implementation, request.device,
                    kSpecTorchVersion);
  if (!optimizer) {
    return optimizer.error();
  }
  crds::TrainingSpec training = *request.training;
  const crds::Parallelism& parallelism = training.parallelism;
  const std::int64_t replicas =
      request.trainers / (parallelism.tensor * parallelism.pipeline * parallelism.context);
  const bool keeps_fp32 = request.model->transformer && casts_parameters(training);
  if (keeps_fp32) {
    training.precision = crds::Precision::kBF16;  // FP16 has the same width
  }
  if (training.parallelism.strategy == ParallelStrategy::kAuto && replicas > 1) {
    training.parallelism.strategy = ParallelStrategy::kDDP;
  }
  const std::int64_t max_rounds = parallelism.pipeline * kSteadyRounds;
  if (training.gradient_accumulation > max_rounds) {
    training.batch_size_per_trainer =
        training.batch_size_per_trainer / training.gradient_accumulation * max_rounds;
    training.gradient_accumulation = max_rounds;
  }

  const std::int64_t micro_batches = training.gradient_accumulation;
  const bool pipelined =
      request.device == Device::kCuda && request.model->dlrm && !request.model->dlrm->tables.empty();
  const RecordOptions options{
      .device = request.device,
      .batch = std::max<std::int64_t>(1, training.batch_size_per_trainer / micro_batches),
      .input_batch = training.batch_size_per_trainer,
      .batches_in_flight = pipelined ? kSparseBatchesInFlight : 1,
      .budget = request.budget};
  const TraceProducer producer{.torch = {}, .version = kSpecTorchVersion, .threads = 0, .cpu_capability = {}};
  TraceRunRequest iteration{.batch = options.batch,
                            .optimizer = training.optimizer,
                            .implementation = training.optimizer_implementation,
                            .checkpointing = training.activation_checkpointing,
                            .replication = {.strategy = training.parallelism.strategy,
                                            .replicas = replicas,
                                            .gradient_as_bucket_view = parallelism.gradient_as_bucket_view,
                                            .reshard_after_forward = parallelism.reshard_after_forward,
                                            .collectives_copy = request.device == Device::kCpu},
                            .keeps_fp32 = keeps_fp32,
                            .budget = request.budget};

  SpecRun run{.heaviest = Ledger(1), .allocated = {}, .dense_parameters = {}};
  Parts parts(request, training, spec, options);
  std::vector<const Recording*> last;  // of the previous stage
  std::size_t first_of_last = 0;       // index of its first rank in run.allocated
  Bytes parameters_of_last;
  for (std::int64_t stage = 0; stage < parallelism.pipeline; ++stage) {
    const Result<std::vector<const Recording*>> chunks = parts.of_stage(stage);
    if (!chunks) {
      return chunks.error();
    }
    // Stages with equal parts and equal schedules have equal peaks.
    const auto ahead = [&](std::int64_t of) {
      return warm_up(of, parallelism.pipeline, parallelism.pipeline_chunks, micro_batches);
    };
    if (stage > 0 && *chunks == last && ahead(stage) == ahead(stage - 1)) {
      const std::size_t ranks = run.allocated.size() - first_of_last;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        run.allocated.push_back(run.allocated[first_of_last + rank]);
      }
      run.dense_parameters += parameters_of_last;
      first_of_last += ranks;
      continue;
    }
    last = *chunks;
    first_of_last = run.allocated.size();
    parameters_of_last = parts.parameter_bytes(stage);
    run.dense_parameters += parameters_of_last;
    std::vector<const Trace*> traces;
    for (const Recording* recording : *chunks) {
      traces.push_back(&recording->trace);
    }
    const std::int64_t steps = 2 * parallelism.pipeline_chunks * micro_batches;
    charge(request.budget, static_cast<std::uint64_t>(steps));
    const BudgetBytes schedule(request.budget, Bytes{sizeof(ScheduleStep)} * steps);
    iteration.schedule =
        pipeline_schedule(stage, parallelism.pipeline, parallelism.pipeline_chunks, micro_batches);
    for (std::int64_t rank = 0; rank < owners(request, replicas, keeps_fp32); ++rank) {
      iteration.replication.rank = rank;
      Result<TraceRun> trainer = run_trace(traces, producer, iteration);
      if (!trainer && trainer.error().code == ErrorCode::kTooLarge) {
        run.beyond_any_machine = true;
        return run;
      }
      if (!trainer) {
        return trainer.error();
      }
      run.allocated.push_back(trainer->ledger.peak());
      if (trainer->ledger.peak() > run.heaviest.peak()) {
        Result<std::vector<LiveTensor>> largest = largest_live(*trainer, parts, *chunks, stage);
        if (!largest) {
          return largest.error();
        }
        run.largest_live = *std::move(largest);
        run.heaviest = std::move(trainer->ledger);
      }
    }
  }
  if (parallelism.tensor * parallelism.pipeline > 1 || keeps_fp32) {
    const Result<ForwardGraph> whole =
        spec == nullptr ? lower_dlrm(*request.model->dlrm, *request.training, request.budget)
                        : lower_transformer(*spec, *request.training, {}, request.budget);
    run.dense_parameters = whole ? whole->parameter_bytes() : run.dense_parameters;
  }
  return run;
}

}  // namespace plimsoll::estimator::estimate
