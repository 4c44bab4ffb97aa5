#include "estimator/speed/iteration_time.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "estimator/catalog/host_link.h"
#include "estimator/estimate/graph_estimate.h"
#include "estimator/estimate/spec_run.h"
#include "estimator/spec/dlrm.h"
#include "estimator/spec/transformer_spec.h"
#include "estimator/speed/data_parallel_time.h"
#include "estimator/speed/graph_time.h"
#include "estimator/speed/kernel_time.h"
#include "estimator/speed/stage_time.h"
#include "estimator/transformer/transformer.h"

namespace plimsoll::estimator::inline speed {
namespace {

using crds::ParallelStrategy;

constexpr std::array<const char*, kSpents> kSpentNames = {
    "matrix products",          "attention",
    "memory-bound operators",   "recomputation",
    "tensor parallel exchange", "context parallel exchange",
    "expert exchange",          "waiting for the CPU"};

struct Layout {
  crds::TrainingSpec training;  // as it is computed
  std::int64_t micro_batches = 1;
  std::int64_t micro_batch = 1;
  std::int64_t replicas = 1;  // take samples of their own
  std::int64_t holders = 1;   // hold the same part
  Links links;
};

Result<Layout> layout_of(const EstimateRequest& job) {
  Layout layout;
  layout.training = *job.training;
  const crds::Parallelism& parallelism = job.training->parallelism;
  const std::int64_t parts = job.training->gradient_accumulation;
  for (const auto& [name, count] :
       {std::pair{"tensor", parallelism.tensor}, std::pair{"pipeline", parallelism.pipeline},
        std::pair{"context", parallelism.context}, std::pair{"expert", parallelism.expert},
        std::pair{"replicate", parallelism.replicate},
        std::pair{"pipelineChunks", parallelism.pipeline_chunks}}) {
    if (count < 1) {
      return invalid("training.parallelism." + std::string(name) + " must be at least 1, is " +
                     std::to_string(count));
    }
  }
  if (job.trainers > 1 &&
      (job.gpu->intra_node_bandwidth.count <= 0 || job.gpu->inter_node_bandwidth.count <= 0)) {
    return Error(ErrorCode::kUnsupported, "the bandwidths between GPUs of " + job.gpu->name +
                                              " are not known: set nodeGBps and networkGbps of its GPUModel");
  }
  const Bytes replica = Bytes{parallelism.tensor} * parallelism.pipeline * parallelism.context;
  if (replica.count < 1 || job.trainers < 1 || job.trainers % replica.count != 0) {
    return invalid("trainers must be a multiple of parallelism.tensor x pipeline x context, is " +
                   std::to_string(job.trainers));
  }
  if (parts < 1 || job.training->batch_size_per_trainer < parts) {
    return invalid("training.gradientAccumulation is " + std::to_string(parts) +
                   " and must divide batchSizePerTrainer, " +
                   std::to_string(job.training->batch_size_per_trainer));
  }
  layout.holders = holders_of(parallelism, job.trainers);
  if (job.model->transformer && casts_parameters(*job.training)) {
    compute_in_half(layout.training);
  }
  if (parallelism.strategy == ParallelStrategy::kAuto && layout.holders > 1) {
    layout.training.parallelism.strategy = ParallelStrategy::kDDP;
  }
  layout.micro_batches = parts;
  layout.micro_batch = job.training->batch_size_per_trainer / parts;
  layout.replicas = job.trainers / replica.count;
  // GpuModel has NVLink's two directions together, as data sheets do (gpus.yaml).
  layout.links = {.intra = static_cast<double>(job.gpu->intra_node_bandwidth.count) / 2,
                  .inter = static_cast<double>(job.gpu->inter_node_bandwidth.count),
                  .host = host_link_bandwidth_of_one(*job.gpu)};
  return layout;
}

StageOptions stage_options(const SpeedRequest& request, const Layout& layout, bool causal) {
  const EstimateRequest& job = request.job;
  const crds::TrainingSpec& training = layout.training;
  const crds::Parallelism& parallelism = training.parallelism;
  return {.batch = layout.micro_batch,
          .causal = causal,
          .fusion = training.compile != crds::Compilation::kNone          ? Fusion::kCompiled
                    : parallelism.strategy == ParallelStrategy::kMegatron ? Fusion::kMegatron
                                                                          : Fusion::kNone,
          .checkpointing = training.activation_checkpointing,
          .tensor = group_of(parallelism.tensor, 1, job.per_node),
          .context = group_of(parallelism.context, parallelism.tensor, job.per_node),
          .expert = group_of(parallelism.expert, parallelism.tensor * parallelism.context, job.per_node),
          .links = layout.links,
          .overlaps_tensor = request.overlaps_exchanges,
          .budget = job.budget};
}

DataParallelGroups groups_of(const SpeedRequest& request, const Layout& layout) {
  const EstimateRequest& job = request.job;
  const crds::Parallelism& parallelism = layout.training.parallelism;
  const std::int64_t replicate = std::max<std::int64_t>(1, parallelism.replicate);
  const std::int64_t shards = std::max<std::int64_t>(1, layout.holders / replicate);
  return {.shards = group_of(shards, parallelism.tensor, job.per_node),
          .replicas = group_of(replicate, parallelism.tensor * shards, job.per_node),
          .experts = group_of(std::max<std::int64_t>(1, shards / parallelism.expert),
                              parallelism.tensor * parallelism.expert, job.per_node),
          .links = layout.links,
          .half_gradients = request.half_gradients || job.training->precision == crds::Precision::kFP16Mixed,
          .megatron_overlaps = request.overlaps_exchanges};
}

// The parts of the pipeline that differ: the first, one between, and the last stage. Its chunks are timed as one.
Result<std::vector<ForwardGraph>> lower_stages(const EstimateRequest& job, const Layout& layout) {
  std::vector<ForwardGraph> graphs;
  const auto add = [&](Result<ForwardGraph> graph) {
    if (!graph) {
      return Result<void>(graph.error());
    }
    graphs.push_back(*std::move(graph));
    return Result<void>();
  };
  if (job.model->dlrm) {
    Result<void> added = add(lower_dlrm(*job.model->dlrm, layout.training, job.budget));
    return added ? Result<std::vector<ForwardGraph>>(std::move(graphs)) : added.error();
  }
  const Result<TransformerSpec> spec = transformer_spec(*job.model->transformer);
  if (!spec) {
    return spec.error();
  }
  const crds::Parallelism& parallelism = layout.training.parallelism;
  const std::int64_t stages = parallelism.pipeline;
  std::vector<std::int64_t> different = {0};
  if (stages > 2) {
    different.push_back(stages / 2);
  }
  if (stages > 1) {
    different.push_back(stages - 1);
  }
  for (const std::int64_t stage : different) {
    const TransformerPart part{.tensor = parallelism.tensor,
                               .sequence = parallelism.sequence,
                               .context = parallelism.context,
                               .expert = parallelism.expert,
                               .first_layer = stage * spec->layers / stages,
                               .last_layer = (stage + 1) * spec->layers / stages,
                               .embeds = stage == 0,
                               .predicts = stage + 1 == stages,
                               .device = job.device,
                               .has_flash = has_flash(job)};
    if (Result<void> added = add(lower_transformer(*spec, layout.training, part, job.budget)); !added) {
      return added.error();
    }
  }
  return graphs;
}

// The residual stream is sent forward and its gradient back, for each micro-batch and chunk.
double sends(const EstimateRequest& job, const Layout& layout) {
  const crds::Parallelism& parallelism = layout.training.parallelism;
  if (parallelism.pipeline < 2) {
    return 0;
  }
  const Result<TransformerSpec> spec = transformer_spec(*job.model->transformer);
  // Each rank of a tensor group sends its part, which the receivers gather where they do not want parts (Megatron-LM
  // megatron/p2p_communication.py: scatter_gather_tensors_in_pipeline).
  const bool parts = parallelism.sequence || parallelism.strategy == ParallelStrategy::kMegatron;
  const double split = static_cast<double>(parallelism.context * (parts ? parallelism.tensor : 1));
  constexpr double kHalf = 2;
  const double bytes = kHalf * static_cast<double>(layout.micro_batch) * static_cast<double>(spec->sequence) *
                       static_cast<double>(spec->hidden) / split;
  const bool between_nodes = job.trainers / parallelism.pipeline >= job.per_node;
  return 2 * static_cast<double>(parallelism.pipeline_chunks * layout.micro_batches) *
         send_seconds(bytes, between_nodes, layout.links);
}

Result<std::vector<StageTime>> spec_stages(const EstimateRequest& job, const Layout& layout,
                                           const KernelTimes& times, const StageOptions& options) {
  const Result<std::vector<ForwardGraph>> graphs = lower_stages(job, layout);
  if (!graphs) {
    return graphs.error();
  }
  std::vector<StageTime> stages;
  for (const ForwardGraph& graph : *graphs) {
    stages.push_back(stage_time(graph, times, options));
  }
  return stages;
}

Result<std::vector<StageTime>> graph_stages(const EstimateRequest& job, const KernelTimes& times,
                                            const StageOptions& options) {
  const crds::Parallelism& parallelism = job.training->parallelism;
  if (parallelism.tensor > 1 || parallelism.pipeline > 1 || parallelism.context > 1 ||
      parallelism.expert > 1) {
    return Error(
        ErrorCode::kUnsupported,
        "the time of an exported graph is not known with training.parallelism.tensor, pipeline, context or expert");
  }
  const crds::ActivationCheckpointing checkpointing = options.checkpointing;
  if (checkpointing != crds::ActivationCheckpointing::kNone &&
      checkpointing != crds::ActivationCheckpointing::kFull) {
    return Error(
        ErrorCode::kUnsupported,
        "the time of an exported graph is known with training.activationCheckpointing None or Full alone");
  }
  const Result<SelectedTrace> chosen = select_trace(job);
  const Result<TraceShapes> shapes =
      chosen ? TraceShapes::at(*chosen->trace, options.batch,
                               {.halve_floats = chosen->halve_floats, .budget = job.budget})
             : chosen.error();
  if (!shapes) {
    return shapes.error();
  }
  return std::vector<StageTime>{graph_time(*chosen->trace, *shapes, times, options)};
}

double uncertainty_of(const EstimateRequest& job) {
  return job.graph != nullptr                          ? kGraphUncertainty
         : job.model->dlrm                             ? kTablesUncertainty
         : job.training->float8 != crds::Float8::kNone ? kFloat8Uncertainty
                                                       : kTransformerUncertainty;
}

bool has_tables(const EstimateRequest& job) {
  return !job.model->tables().empty() || (job.graph != nullptr && !job.graph->embeddings.empty());
}

Result<bool> is_causal(const crds::ModelSpec& model) {
  if (!model.transformer) {
    return false;
  }
  const Result<TransformerSpec> spec = transformer_spec(*model.transformer);
  return spec ? Result<bool>(spec->causal()) : spec.error();
}

}  // namespace

Result<IterationTime> iteration_time(const SpeedRequest& request) {
  const EstimateRequest& job = request.job;
  if (job.gpu == nullptr) {
    return Error(ErrorCode::kUnsupported, "the time of an iteration needs a GPU model");
  }
  if (has_tables(job) && !request.embedding_seconds) {
    return Error(ErrorCode::kUnsupported,
                 "the time of a model with embedding tables needs their sharding plan");
  }
  const Result<KernelTimes> times = KernelTimes::of(*job.gpu, *job.training);
  const Result<bool> causal = is_causal(*job.model);
  const Result<Layout> layout = layout_of(job);
  if (!times || !causal || !layout) {
    return !times ? times.error() : !causal ? causal.error() : layout.error();
  }
  const StageOptions options = stage_options(request, *layout, *causal);
  const Result<std::vector<StageTime>> stages =
      job.graph != nullptr ? graph_stages(job, *times, options) : spec_stages(job, *layout, *times, options);
  if (!stages) {
    return stages.error();
  }
  const auto slowest =
      std::max_element(stages->begin(), stages->end(),
                       [](const StageTime& a, const StageTime& b) { return a.seconds() < b.seconds(); });
  const crds::Parallelism& parallelism = layout->training.parallelism;
  const auto micro_batches = static_cast<double>(layout->micro_batches);
  IterationTime result;
  result.uncertainty = uncertainty_of(job);
  const auto add = [&](const char* name, double seconds) {
    if (seconds > 0) {
      result.parts.push_back({.name = name, .seconds = seconds});
      result.seconds += seconds;
    }
  };
  for (std::size_t i = 0; i < kSpents; ++i) {
    add(kSpentNames[i], micro_batches * slowest->spent[i]);
  }
  // 1F1B and GPipe; interleaved stages wait for a chunk of a micro-batch each (arXiv 2104.04473 section 2.2).
  add("pipeline bubble", static_cast<double>(parallelism.pipeline - 1) /
                             static_cast<double>(parallelism.pipeline_chunks) * slowest->seconds());
  add("pipeline exchange", sends(job, *layout));
  const DataParallelTime shared =
      data_parallel_time(*slowest, layout->training, groups_of(request, *layout), *times);
  add("data parallel exchange", shared.exposed);
  add("optimizer", shared.optimizer);
  add("optimizer on the host", shared.host.update);
  add("copies to the host and back", shared.host.transfers);
  add("embeddings", request.embedding_seconds.value_or(0));
  const double samples = static_cast<double>(layout->replicas) * static_cast<double>(layout->micro_batches) *
                         static_cast<double>(layout->micro_batch);
  result.samples_per_second = result.seconds > 0 ? samples / result.seconds : 0;
  return result;
}

}  // namespace plimsoll::estimator::speed
