#include "estimator/layer_costs/layer_profile.h"

#include <algorithm>
#include <string>
#include <utility>

#include "estimator/estimate/spec_run.h"
#include "estimator/fixed_costs/fixed_costs.h"
#include "estimator/layer_costs/graph_layers.h"
#include "estimator/layer_costs/profiled_layers.h"
#include "estimator/layer_costs/spec_layers.h"
#include "estimator/speed/host_update.h"
#include "estimator/trace/optimizer.h"

namespace plimsoll::estimator::inline layer_costs {
namespace {

Error unsupported(const std::string& what) {
  return Error(ErrorCode::kUnsupported, what);
}

Result<void> check_microbatches(const std::vector<std::int64_t>& microbatches) {
  if (microbatches.empty() || microbatches.size() > kMaxSwapMicrobatches) {
    return invalid("a profile has 1 to " + std::to_string(kMaxSwapMicrobatches) + " microbatches");
  }
  std::int64_t last = 0;
  for (const std::int64_t size : microbatches) {
    if (size <= last || size > kMaxSwapSamples) {
      return invalid("microbatches must rise, from at least 1 to at most " + std::to_string(kMaxSwapSamples));
    }
    last = size;
  }
  return {};
}

Result<void> check_model(const EstimateRequest& job) {
  if (job.model == nullptr || job.training == nullptr) {
    return invalid("a profile needs a model and its training settings");
  }
  if (job.gpu == nullptr) {
    return unsupported("a profile needs a GPU model, for its times");
  }
  if (job.model->graph && job.graph == nullptr) {
    return unsupported("the graph in ConfigMap " + job.model->graph->config_map_name + " could not be read");
  }
  if (job.model->dlrm || !job.model->tables().empty() ||
      (job.graph != nullptr && !job.graph->embeddings.empty())) {
    return unsupported(
        "a model with embedding tables has no list of layers: plimsoll shard places its tables");
  }
  if (job.graph == nullptr && !job.model->transformer) {
    return invalid("model is empty: give model.transformer or model.graph");
  }
  return {};
}

// What plimsoll.harmony does not do.
Result<void> check_training(const crds::TrainingSpec& training) {
  const crds::Parallelism& parallelism = training.parallelism;
  for (const auto& [name, size] :
       {std::pair{"tensor", parallelism.tensor}, std::pair{"pipeline", parallelism.pipeline},
        std::pair{"context", parallelism.context}, std::pair{"expert", parallelism.expert}}) {
    if (size != 1) {
      return unsupported(
          "training.parallelism." + std::string(name) + " is " + std::to_string(size) +
          ": a swap plan is for models whose layers are whole, and says itself which GPU has which");
    }
  }
  if (training.precision == crds::Precision::kFP16Mixed) {
    return unsupported(
        "training.precision FP16Mixed needs its loss scaled, which plimsoll.harmony does not: use BF16Mixed");
  }
  const std::pair<bool, const char*> others[] = {{training.fine_tuning.has_value(), "fineTuning"},
                                                 {training.compile != crds::Compilation::kNone, "compile"},
                                                 {training.float8 != crds::Float8::kNone, "float8"},
                                                 {training.loss_chunks > 1, "lossChunks"},
                                                 {training.averaged_model, "averagedModel"}};
  for (const auto& [set, name] : others) {
    if (set) {
      return unsupported("training." + std::string(name) + " is not modelled for layers that are swapped");
    }
  }
  if (is_of_bitsandbytes(training.optimizer)) {
    return unsupported(
        "training.optimizer " + std::string(crds::name_of(training.optimizer)) +
        " runs on GPUs, and plimsoll.harmony updates layers on the host: choose one of torch.optim, such as AdamW");
  }
  return {};
}

// As the layers compute.
crds::TrainingSpec computed(const crds::TrainingSpec& training) {
  crds::TrainingSpec result = training;
  result.parallelism = {};
  result.activation_checkpointing = crds::ActivationCheckpointing::kNone;
  result.checkpoint_modules.clear();
  result.gradient_accumulation = 1;
  if (result.precision == crds::Precision::kBF16Mixed) {
    result.precision = crds::Precision::kBF16;
  }
  return result;
}

Result<HostTraining> host_training(const EstimateRequest& job) {
  const TorchVersion version =
      job.graph != nullptr ? job.graph->producer.version : spec_torch_version(*job.training);
  if (version == 0) {
    return invalid("training.torchVersion is not a version of PyTorch, such as 2.6: " +
                   job.training->torch_version.substr(0, 16));
  }
  const Result<OptimizerRun> run =
      optimizer_run(job.training->optimizer, crds::OptimizerImplementation::kDefault, Device::kCpu, version);
  return run ? Result<HostTraining>(HostTraining{
                   .optimizer = *run, .keeps_fp32 = job.training->precision == crds::Precision::kBF16Mixed})
             : run.error();
}

void add_layer(SwapProfile& profile, const LayerSizes& sizes, bool keeps_fp32,
               const crds::LearnedBounds& learned) {
  profile.weights.push_back(sizes.weights);
  profile.buffers.push_back(sizes.buffers);
  profile.state.push_back(sizes.state);
  profile.input.push_back(sizes.input);
  if (keeps_fp32) {
    profile.host_weights.push_back(sizes.host_weights);
  }
  profile.update_seconds.push_back(host_update_seconds(
      {.parameters = sizes.parameters,
       .weights = sizes.host_weights,
       .state = sizes.state,
       .moved = sizes.host_weights == sizes.weights ? Bytes{} : sizes.weights,
       .bandwidth = static_cast<double>(learned.host_update_bandwidth.value_or(Bytes{}).count)}));
}

}  // namespace

Result<SwapProfile> layer_profile(const LayerProfileRequest& request) {
  const EstimateRequest& job = request.job;
  Result<void> checked = check_microbatches(request.microbatches);
  checked = checked ? check_model(job) : checked;
  checked = checked ? check_training(*job.training) : checked;
  if (!checked) {
    return checked.error();
  }
  const Result<HostTraining> host = host_training(job);
  if (!host) {
    return host.error();
  }
  const crds::TrainingSpec training = computed(*job.training);
  const Result<ProfiledLayers> layers =
      job.graph != nullptr ? layers_of_graph(job, training, *host) : layers_of_spec(job, training, *host);
  if (!layers) {
    return layers.error();
  }
  if (layers->kind_of.size() > kMaxSwapLayers) {
    return Error(ErrorCode::kTooLarge, "the model has " + std::to_string(layers->kind_of.size()) +
                                           " layers, and a profile at most " +
                                           std::to_string(kMaxSwapLayers));
  }
  SwapProfile profile;
  profile.tied = layers->tied;
  for (const std::size_t kind : layers->kind_of) {
    charge(job.budget, 1);
    add_layer(profile, layers->kinds[kind], host->keeps_fp32, job.learned);
  }
  for (const std::int64_t microbatch : request.microbatches) {
    std::vector<LayerCosts> costs;
    for (std::size_t kind = 0; kind < layers->kinds.size(); ++kind) {
      const Result<LayerCosts> of_kind = layers->costs(kind, microbatch);
      if (!of_kind) {
        return of_kind.error();
      }
      costs.push_back(*of_kind);
    }
    SwapPass forward{.microbatch = microbatch, .seconds = {}, .memory = {}};
    SwapPass backward = forward;
    for (const std::size_t kind : layers->kind_of) {
      charge(job.budget, 1);
      forward.seconds.push_back(costs[kind].forward_seconds);
      forward.memory.push_back(costs[kind].memory.forward);
      backward.seconds.push_back(costs[kind].backward_seconds);
      backward.memory.push_back(costs[kind].memory.backward);
    }
    profile.forward.push_back(std::move(forward));
    profile.backward.push_back(std::move(backward));
  }
  return profile;
}

Bytes swap_capacity(const EstimateRequest& job, Bytes usable) {
  EstimateRequest one = job;
  one.trainers = 1;  // one process drives all GPUs, without NCCL
  const FixedCosts fixed = fixed_costs_of(one);
  return std::max(Bytes{}, usable - fixed.cuda_context - fixed.forward_workspace - fixed.backward_workspace);
}

}  // namespace plimsoll::estimator::layer_costs
