#include "estimator/estimate/spec_run.h"

#include <algorithm>
#include <utility>

#include "estimator/catalog/capabilities.h"
#include "estimator/estimate/initialisation.h"
#include "estimator/execute/run_trace.h"
#include "estimator/fixed_costs/fixed_costs.h"
#include "estimator/parallel/optimizer_support.h"
#include "estimator/parallel/schedule.h"
#include "estimator/parallel/stage_memory.h"
#include "estimator/spec/dlrm.h"
#include "estimator/spec/transformer_spec.h"
#include "estimator/trace/optimizer.h"
#include "estimator/transformer/transformer.h"

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

Result<void> check_kernels(const EstimateRequest& request) {
  const crds::TrainingSpec& training = *request.training;
  if (spec_torch_version(training) == 0) {
    return invalid("training.torchVersion is not a version of PyTorch, such as 2.6: " +
                   training.torch_version.substr(0, 16));
  }
  if (!request.model->transformer && training.parallelism.strategy == ParallelStrategy::kMegatron) {
    return bad_field("strategy", "Megatron is for transformers");
  }
  if (request.model->dlrm && training.compile != crds::Compilation::kNone) {
    return invalid("training.compile is for transformers");
  }
  if (request.model->dlrm && training.float8 != crds::Float8::kNone) {
    return invalid("training.float8 is for transformers");
  }
  if (request.model->dlrm && training.fine_tuning) {
    return invalid("training.fineTuning is for transformers");
  }
  if (request.model->dlrm && training.loss_chunks > 1) {
    return invalid("training.lossChunks is for transformers");
  }
  if (training.float8 != crds::Float8::kNone && training.precision != crds::Precision::kBF16Mixed &&
      training.precision != crds::Precision::kBF16) {
    return invalid("training.float8 needs precision BF16Mixed or BF16: torchao casts from 16 bits");
  }
  if (training.cudnn_benchmark) {
    return invalid(
        "training.cudnnBenchmark is for model.graph: of a spec's layers at most the first is a convolution");
  }
  if (request.model->dlrm && training.parallelism.reduce_dtype != crds::ReduceDtype::kAuto) {
    return bad_field("reduceDtype", "reduceDtype is for transformers");
  }
  if (training.optimizer_in_backward && training.parallelism.strategy == ParallelStrategy::kMegatron) {
    return invalid("training.optimizerInBackward does not go with parallelism.strategy Megatron");
  }
  if (training.float8 == crds::Float8::kLinearAllGather &&
      training.parallelism.strategy != ParallelStrategy::kFSDP2) {
    return invalid("training.float8 LinearAllGather needs parallelism.strategy FSDP2");
  }
  return {};
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
  if (Result<void> checked = check_kernels(request); !checked) {
    return checked;
  }
  if (Result<void> checked = check_initialisation(*request.training); !checked) {
    return checked;
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
  if (Result<void> checked =
          check_replicate(parallelism, holders_of(request.training->parallelism, request.trainers));
      !checked) {
    return checked;
  }
  if (Result<void> checked = check_steps(parallelism, request.training->optimizer_in_backward,
                                         holders_of(request.training->parallelism, request.trainers),
                                         request.training->gradient_accumulation);
      !checked) {
    return checked;
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
  return check_optimizer(request.training->optimizer, parallelism,
                         holders_of(request.training->parallelism, request.trainers), false);
}

Result<void> check_parts(const TransformerSpec& spec, const crds::Parallelism& parallelism) {
  const std::int64_t parts = parallelism.pipeline * parallelism.pipeline_chunks;
  if (parts > 1 && (spec.encoder_decoder || !spec.towers.empty() || spec.image.height > 0)) {
    return bad_field("pipeline", "supports decoders and encoders of texts, but not models with both");
  }
  if (parts > spec.layers) {
    return bad_field("pipeline", "x pipelineChunks is " + std::to_string(parts) + ", and the model has " +
                                     std::to_string(spec.layers) + " layers");
  }
  return {};
}

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

Result<std::vector<LiveTensor>> largest_live(const TraceRun& run, SpecParts& parts,
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

// Number of ranks among those that hold the same part that may differ.
std::int64_t owners(const EstimateRequest& request, std::int64_t holders, bool keeps_fp32) {
  const bool whole_parameters =
      request.training->parallelism.strategy == ParallelStrategy::kZeRO1 && !keeps_fp32;
  return whole_parameters && holders <= kMaxOwners ? holders : 1;
}

}  // namespace

bool casts_parameters(const crds::TrainingSpec& training) {
  const ParallelStrategy strategy = training.parallelism.strategy;
  return half_precision(training.precision) && strategy != ParallelStrategy::kAuto &&
         strategy != ParallelStrategy::kDDP;
}

void compute_in_half(crds::TrainingSpec& training) {
  training.precision = crds::Precision::kBF16;  // FP16 has the same width
  if (training.fine_tuning) {  // adapters are cast with the others, whatever peft made them in
    training.fine_tuning->autocast_adapter_dtype = false;
  }
}

bool keeps_gradients(const crds::TrainingSpec& training, bool has_graph) {
  constexpr TorchVersion kFrees = 200;
  if (training.set_to_none || has_graph) {
    return !training.set_to_none.value_or(true);
  }
  // Kept gradients are not modelled with these (check_loop).
  const bool unmodelled = training.optimizer_in_backward || training.parallelism.pipeline > 1 ||
                          training.parallelism.offload != crds::Offload::kNone;
  return !unmodelled && spec_torch_version(training) < kFrees;
}

bool reduces_in_half(const crds::Parallelism& parallelism) {
  return parallelism.reduce_dtype == crds::ReduceDtype::kHalf ||
         (parallelism.reduce_dtype == crds::ReduceDtype::kAuto &&
          parallelism.strategy == ParallelStrategy::kFSDP);
}

crds::OptimizerImplementation trained_implementation(const crds::TrainingSpec& training) {
  using crds::Optimizer;
  using crds::OptimizerImplementation;
  const Optimizer optimizer = training.optimizer;
  const bool fused = optimizer == Optimizer::kAdam || optimizer == Optimizer::kAdamW ||
                     optimizer == Optimizer::kSGD || optimizer == Optimizer::kMomentum;
  return fused && training.parallelism.strategy == ParallelStrategy::kMegatron &&
                 training.optimizer_implementation == OptimizerImplementation::kDefault
             ? OptimizerImplementation::kFused
             : training.optimizer_implementation;
}

bool caches_casts(const crds::TrainingSpec& training) {
  return half_precision(training.precision) && !casts_parameters(training) &&
         training.compile == crds::Compilation::kNone;
}

TorchVersion spec_torch_version(const crds::TrainingSpec& training) {
  return training.torch_version.empty() ? kSpecTorchVersion : torch_version_of(training.torch_version);
}

Result<TransformerSpec> trained_spec(const EstimateRequest& request) {
  Result<TransformerSpec> spec = transformer_spec(*request.model->transformer);
  // Adapters are found by the names of transformers' modules.
  const bool megatron =
      request.training->parallelism.strategy == ParallelStrategy::kMegatron && !request.training->fine_tuning;
  return spec && megatron ? Result(as_megatron(*std::move(spec))) : spec;
}

Result<Recording> record_whole(const EstimateRequest& request, std::int64_t batch) {
  Result<ForwardGraph> graph = ForwardGraph();
  if (request.model->dlrm) {
    graph = lower_dlrm(*request.model->dlrm, *request.training, request.budget);
  } else {
    const Result<TransformerSpec> spec = trained_spec(request);
    graph =
        spec ? lower_transformer(*spec, *request.training,
                                 {.device = request.device, .has_flash = has_flash(request)}, request.budget)
             : Result<ForwardGraph>(spec.error());
  }
  if (!graph) {
    return graph.error();
  }
  return record(*graph, {.device = request.device,
                         .batch = batch,
                         .input_batch = batch,
                         .caches_casts = caches_casts(*request.training),
                         .budget = request.budget});
}

// FSDP shards over all of them (torchtitan/distributed/parallel_dims.py: the mesh dp_shard_cp), Megatron-LM's
// distributed optimizer too (parallel_state.py: the data parallel group with context parallelism), as does
// DeepSpeed's ZeRO with sequence parallelism (deepspeed/utils/groups.py: _get_sequence_data_parallel_group).
std::int64_t holders_of(const crds::Parallelism& parallelism, std::int64_t trainers) {
  return trainers / (parallelism.tensor * parallelism.pipeline);
}

// Replicas of a whole model are all equal, except where they share experts; they differ from a single trainer by their buckets.
std::int64_t trainers_that_matter(const EstimateRequest& request) {
  const crds::Parallelism& parallelism = request.training->parallelism;
  const bool whole =
      parallelism.strategy == ParallelStrategy::kAuto || parallelism.strategy == ParallelStrategy::kDDP;
  // Saturates; sizes that are no sizes are an error of the run.
  const Bytes replica = Bytes{parallelism.tensor} * parallelism.pipeline * parallelism.context;
  const bool equal = whole && parallelism.expert == 1 && replica.count > 0 &&
                     replica.count <= request.trainers && request.trainers % replica.count == 0;
  return equal ? std::min(request.trainers, 2 * replica.count) : request.trainers;
}

bool has_flash(const EstimateRequest& request) {
  const bool asked = request.model != nullptr && request.model->transformer &&
                     request.model->transformer->attention == crds::AttentionKind::kSDPA;
  const auto capability = request.gpu == nullptr ? std::nullopt : request.gpu->compute_capability;
  return !asked || !capability || capabilities_of(*capability).flash_attention_2;
}

Result<SpecRun> run_spec(const EstimateRequest& request) {
  if (request.model->dlrm) {
    return run_spec(request, nullptr);
  }
  const Result<TransformerSpec> spec = trained_spec(request);
  return spec ? run_spec(request, &*spec) : spec.error();
}

Result<SpecRun> run_spec(const EstimateRequest& request, const TransformerSpec* spec, KnownSpecParts* known) {
  Result<void> checked = check_split(request);
  if (checked && spec != nullptr) {
    checked = check_parts(*spec, request.training->parallelism);
  }
  if (!checked) {
    return checked.error();
  }
  const Result<OptimizerRun> optimizer =
      optimizer_run(request.training->optimizer, trained_implementation(*request.training), request.device,
                    spec_torch_version(*request.training));
  if (!optimizer) {
    return optimizer.error();
  }
  crds::TrainingSpec training = *request.training;
  const crds::Parallelism& parallelism = training.parallelism;
  const std::int64_t holders = holders_of(request.training->parallelism, request.trainers);
  const bool keeps_fp32 = request.model->transformer && casts_parameters(training);
  if (keeps_fp32) {
    compute_in_half(training);
  }
  if (training.parallelism.strategy == ParallelStrategy::kAuto && holders > 1) {
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
      .caches_casts = caches_casts(training),
      .budget = request.budget};
  const TraceProducer producer{
      .torch = {}, .version = spec_torch_version(training), .threads = 0, .cpu_capability = {}};
  const StageMemory memory =
      stage_memory_of(producer.version, parallelism.pipeline_chunks, parallelism.strategy);
  TraceRunRequest iteration{
      .batch = options.batch,
      .optimizer = training.optimizer,
      .implementation = trained_implementation(training),
      .checkpointing = training.activation_checkpointing,
      .replication = {.strategy = training.parallelism.strategy,
                      .replicas = holders,
                      .replicate = parallelism.replicate,
                      .gradient_as_bucket_view = parallelism.gradient_as_bucket_view,
                      .reshard_after_forward = parallelism.reshard_after_forward,
                      .reduces_in_half = reduces_in_half(parallelism),
                      .reduces_once = parallelism.pipeline > 1,
                      .kept_scatters = memory.last_scatter_stays ? parallelism.pipeline_chunks : 0,
                      .collectives_copy = request.device == Device::kCpu,
                      .reduce_bucket_elements = parallelism.reduce_bucket_size,
                      .offload = parallelism.offload,
                      .offload_percent = parallelism.offload_percent,
                      .steps_in_backward = training.optimizer_in_backward,
                      .without_padding = request.without_padding},
      .set_to_none = !keeps_gradients(training, false),
      .averaged_model = training.averaged_model,
      .grad_scaler = training.grad_scaler,
      .saving = request.training->checkpoint_saving,
      .between = request.between,
      .keeps_fp32 = keeps_fp32,
      .gathers_float8 = training.float8 == crds::Float8::kLinearAllGather,
      .compiled = training.compile != crds::Compilation::kNone,
      // Of transformers' models under accelerate. With FSDP2 the loop is taken to compute the loss, as torchtitan's does.
      .root_returns_loss = request.model->transformer && !request.model->transformer->config.empty() &&
                           parallelism.strategy == ParallelStrategy::kFSDP,
      .micro_batches = request.training->gradient_accumulation,
      .experts_over = parallelism.expert,
      .budget = request.budget};

  SpecRun run{.heaviest = Ledger(1), .allocated = {}, .dense_parameters = {}};
  KnownSpecParts own;
  SpecParts& parts =
      (known == nullptr ? own : *known).of({request.model, training, spec, options, has_flash(request)});
  iteration.prepared = &parts.prepared();
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
    iteration.exchanges.clear();
    for (const Recording* recording : *chunks) {
      traces.push_back(&recording->trace);
      if (parallelism.pipeline > 1) {
        const auto chunk = static_cast<std::int64_t>(iteration.exchanges.size());
        iteration.exchanges.push_back(
            {.received = recording->received,
             .result = recording->result,
             .received_gradient = recording->received_gradient,
             .sent_gradient = recording->sent_gradient,
             .last = stage + 1 == parallelism.pipeline && chunk + 1 == parallelism.pipeline_chunks});
      }
    }
    const std::int64_t steps = 2 * parallelism.pipeline_chunks * micro_batches;
    charge(request.budget, static_cast<std::uint64_t>(steps));
    const BudgetBytes schedule(request.budget, Bytes{sizeof(ScheduleStep)} * steps);
    iteration.schedule =
        pipeline_schedule(stage, parallelism.pipeline, parallelism.pipeline_chunks, micro_batches);
    for (std::int64_t rank = 0; rank < owners(request, holders, keeps_fp32); ++rank) {
      iteration.replication.rank = rank;
      Result<TraceRun> trainer = run_trace(traces, producer, iteration);
      if (!trainer && trainer.error().code == ErrorCode::kTooLarge) {
        run.beyond_any_machine = true;
        return run;
      }
      if (!trainer) {
        return trainer.error();
      }
      for (std::string& warning : trainer->warnings) {
        if (std::find(run.warnings.begin(), run.warnings.end(), warning) == run.warnings.end()) {
          run.warnings.push_back(std::move(warning));
        }
      }
      run.allocated.push_back(trainer->ledger.peak());
      if (trainer->ledger.peak() > run.heaviest.peak()) {
        Result<std::vector<LiveTensor>> largest = largest_live(*trainer, parts, *chunks, stage);
        if (!largest) {
          return largest.error();
        }
        run.largest_live = *std::move(largest);
        if (request.without_padding || !gathers(training.parallelism.strategy)) {
          run.floor = MemoryFloor(*trainer, request);
        }
        run.host = trainer->host;
        run.replicated = std::move(trainer->replicated);
        run.heaviest = std::move(trainer->ledger);
      }
    }
  }
  if (spec != nullptr && spec->tied && !request.model->transformer->config.empty()) {
    constexpr std::int64_t kFloat = 4;
    const std::int64_t width = request.training->precision == crds::Precision::kBF16 ? kFloat / 2 : kFloat;
    run.dropped = Bytes{spec->vocab} * spec->hidden * width;
  }
  if (parallelism.tensor * parallelism.pipeline > 1 || keeps_fp32) {
    run.dense_parameters = parts.whole_model(*request.training).value_or(run.dense_parameters);
  }
  return run;
}

}  // namespace plimsoll::estimator::estimate
