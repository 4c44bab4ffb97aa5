#include "estimator/estimate/explain.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/json/edit.h"
#include "estimator/estimate/spec_run.h"
#include "estimator/fixed_costs/fixed_costs.h"
#include "estimator/trace/optimizer.h"

namespace plimsoll::estimator::inline estimate {
namespace {

using crds::ActivationCheckpointing;
using crds::ParallelStrategy;

// The rule of a part, and where it comes from.
struct Rule {
  std::string text;
  std::vector<std::string> sources;
};

class Explainer {
 public:
  Explainer(const EstimateRequest& request, const Estimate& estimate)
      : request_(request),
        estimate_(estimate),
        training_(*request.training),
        parallelism_(training_.parallelism),
        origins_(fixed_cost_origins(request)) {}

  std::vector<PartExplanation> parts() const {
    const Breakdown& bytes = estimate_.breakdown;
    const bool amp = request_.method == Method::kAmp;
    return {
        part("parameters", bytes.parameters, amp ? paper("the dense parameters") : stored(parameters()),
             {{"denseParameterBytes", estimate_.dense_parameters.count},
              {"precision", crds::name_of(training_.precision)},
              {"strategy", crds::name_of(strategy())},
              {"replicas", replicas()},
              {"shards", shards()},
              {"tensor", parallelism_.tensor},
              {"pipeline", parallelism_.pipeline},
              {"expert", parallelism_.expert}}),
        part("gradients", bytes.gradients, amp ? not_in_the_paper() : kept(gradients()),
             {{"peakPhase", estimate_.peak_phase},
              {"strategy", crds::name_of(strategy())},
              {"replicas", replicas()},
              {"gradientAccumulation", training_.gradient_accumulation}}),
        part("optimizerState", bytes.optimizer_state, amp ? paper("what the optimizer keeps") : state(),
             state_figures()),
        part("inputs", bytes.inputs, amp ? not_in_the_paper() : inputs(),
             {{"batchSizePerTrainer", training_.batch_size_per_trainer}, {"batchesInFlight", batches()}}),
        part("activations", bytes.activations, amp ? paper(kPaperActivations) : activations(),
             activation_figures()),
        part("temporaries", bytes.temporaries, amp ? not_in_the_paper() : temporaries(),
             with_largest({{"peakPhase", estimate_.peak_phase}},
                          {"kernel temporary", "temporary", "gathered or scattered"})),
        part("ddpBuckets", bytes.ddp_buckets, amp ? paper("a gradient buffer for each parameter") : buckets(),
             {{"strategy", crds::name_of(strategy())},
              {"replicas", replicas()},
              {"gradientAsBucketView", parallelism_.gradient_as_bucket_view ? "true" : "false"}}),
        part("embeddings", bytes.embeddings, embeddings(), {{"trainers", request_.trainers}}),
        part("allocatorSlack", bytes.allocator_slack, amp ? not_in_the_paper() : slack(), slack_figures()),
        part("workspace", bytes.workspace, amp ? not_in_the_paper() : of(origins_.workspace), gpu_figures()),
        part("communication", bytes.communication, of(origins_.communication),
             {{"trainers", request_.trainers}, {"groups", communicators(request_)}}),
        part("cudaContext", bytes.cuda_context, context(), gpu_figures()),
    };
  }

 private:
  static constexpr const char* kPaperActivations =
      "the larger of forward's and backward's sum of node outputs, from ten micro-batch sizes by linear regression";

  static PartExplanation part(std::string name, Bytes bytes, Rule rule, std::vector<Figure> figures) {
    return {.part = std::move(name),
            .bytes = bytes,
            .rule = std::move(rule.text),
            .sources = std::move(rule.sources),
            .figures = std::move(figures)};
  }
  static Rule of(const FixedCostOrigin& origin) { return {origin.rule, {origin.source}}; }
  static Rule paper(std::string text) { return {std::move(text), {"AMP (SoCC'23), sections 8.2 and 9.2.1"}}; }
  static Rule not_in_the_paper() { return paper("not in the paper's formula"); }

  bool graph() const { return request_.graph != nullptr; }
  bool tables() const { return request_.model != nullptr && !request_.model->tables().empty(); }
  std::int64_t replicas() const {
    const std::int64_t of_one = parallelism_.tensor * parallelism_.pipeline * parallelism_.context;
    return std::max<std::int64_t>(1, request_.trainers / std::max<std::int64_t>(1, of_one));
  }
  // Trainers that parameters are split among: those of the tokens, too (torch's mesh dp_shard_cp).
  std::int64_t shards() const {
    switch (strategy()) {
      case ParallelStrategy::kFSDP:
      case ParallelStrategy::kFSDP2:
      case ParallelStrategy::kZeRO3:
        return std::max<std::int64_t>(
            1, replicas() * parallelism_.context / std::max<std::int64_t>(1, parallelism_.replicate));
      case ParallelStrategy::kAuto:
      case ParallelStrategy::kDDP:
      case ParallelStrategy::kZeRO1:
      case ParallelStrategy::kZeRO2:
      case ParallelStrategy::kMegatron: break;
    }
    return 1;
  }
  bool quantised() const {
    return training_.fine_tuning && training_.fine_tuning->quantization != crds::Quantization::kNone;
  }
  static void add(Rule& rule, bool applies, const char* text, const char* source) {
    if (applies) {
      rule.text += text;
      rule.sources.emplace_back(source);
    }
  }
  const char* offload_source() const {
    const bool fsdp = strategy() == ParallelStrategy::kFSDP || strategy() == ParallelStrategy::kFSDP2;
    return strategy() == ParallelStrategy::kMegatron
               ? "megatron/core/optimizer/cpu_offloading/hybrid_optimizer.py"
           : fsdp ? "torch/distributed/fsdp: CPUOffloadPolicy, CPUOffload"
                  : "deepspeed/runtime/zero/offload_config.py";
  }
  const char* pipeline_source() const {
    return strategy() == ParallelStrategy::kMegatron
               ? "arXiv 2104.04473, section 2.2; megatron/core/pipeline_parallel/schedules.py"
               : "arXiv 2104.04473, section 2.2; torch/distributed/pipelining/stage.py";
  }
  ParallelStrategy strategy() const {
    const bool automatic = parallelism_.strategy == ParallelStrategy::kAuto;
    return automatic && replicas() > 1 ? ParallelStrategy::kDDP : parallelism_.strategy;
  }
  std::int64_t batches() const {
    return tables() && request_.device == Device::kCuda ? kSparseBatchesInFlight : 1;
  }

  // What splits one replica, after the rule of how replicas share it.
  Rule with_parts(Rule rule) const {
    if (parallelism_.tensor > 1) {
      rule.text += "; of the layers that are split, this rank's slice";
      rule.sources.emplace_back("Megatron-LM (arXiv 1909.08053), section 3");
    }
    if (parallelism_.pipeline > 1) {
      rule.text += "; of the stage whose peak is highest";
      rule.sources.emplace_back(pipeline_source());
    }
    if (parallelism_.expert > 1) {
      rule.text += "; of the experts, this rank's share";
      rule.sources.emplace_back("GShard (arXiv 2006.16668), section 3");
    }
    return rule;
  }

  Rule parameters() const {
    if (estimate_.peak_phase == kBeforeIterations) {
      return {"what a trainer holds of the model before the first iteration: all that was made, and shards",
              {"docs/estimation.md, Before the first iteration"}};
    }
    switch (strategy()) {
      case ParallelStrategy::kFSDP:
        return with_parts({"1 / shards of each unit's flat parameter, padded to equal shards",
                           {"torch/distributed/fsdp/_flat_param.py"}});
      case ParallelStrategy::kFSDP2:
        return with_parts(
            {"1 / shards of each parameter, split along its first dimension and padded to equal rows",
             {"torch/distributed/fsdp/_fully_shard/_fsdp_param.py"}});
      case ParallelStrategy::kZeRO3:
        return with_parts({"1 / shards of the parameters (ZeRO stage 3)",
                           {"arXiv 1910.02054, section 5; deepspeed/runtime/zero/stage3.py"}});
      case ParallelStrategy::kZeRO2:
        return with_parts({"all parameters in the precision of the computation (ZeRO stage 2)",
                           {"arXiv 1910.02054, section 5; deepspeed/runtime/zero/stage_1_and_2.py"}});
      case ParallelStrategy::kMegatron:
        return with_parts(
            {"all parameters in the precision of the computation, in contiguous buffers, and 1 / replicas "
             "of their fp32 copy",
             {"megatron/core/distributed/param_and_grad_buffer.py; "
              "megatron/core/optimizer/distrib_optimizer.py"}});
      case ParallelStrategy::kAuto:
      case ParallelStrategy::kDDP:
      case ParallelStrategy::kZeRO1: break;
    }
    return with_parts(
        {"every replica holds all parameters and buffers; a storage counts once, however many use it",
         {"torch/nn/modules/module.py; torch/nn/parallel/distributed.py"}});
  }

  // How the parameters are stored, beside how trainers share them.
  Rule stored(Rule rule) const {
    add(rule, parallelism_.replicate > 1, "; each group of `replicate` holds all of them (HSDP)",
        "torch/distributed/fsdp/_fully_shard/_fsdp_common.py, HSDPMeshInfo");
    add(rule, parallelism_.offload == crds::Offload::kParameters, "; the shards are in the host's memory",
        offload_source());
    add(rule, training_.fine_tuning.has_value(),
        "; frozen ones in the type that they are loaded in, and the adapters' A and B beside them",
        "peft/tuners/lora/layer.py");
    add(rule, quantised(), "; quantised ones packed, with their blocks' or rows' scales",
        "bitsandbytes/nn/modules.py; bitsandbytes/functional.py, QuantState");
    add(rule, training_.averaged_model, "; and an average of all weights", "torch/optim/swa_utils.py");
    return rule;
  }

  // Which gradients there are, and how long, beside how trainers share them.
  Rule kept(Rule rule) const {
    add(rule, training_.fine_tuning.has_value(), "; frozen parameters have none",
        "peft/tuners/tuners_utils.py, _mark_only_adapters_as_trainable");
    add(rule, strategy() == ParallelStrategy::kFSDP2 && parallelism_.pipeline > 1,
        "; in a pipeline they are whole until the last micro-batch's backward has ended",
        "torch/distributed/pipelining/stage.py, backward_maybe_with_nosync");
    add(rule, training_.optimizer_in_backward, "; each is freed once its parameter is updated",
        "torchtitan/components/optimizer.py, OptimizersInBackwardContainer");
    add(rule, parallelism_.offload != crds::Offload::kNone && strategy() != ParallelStrategy::kMegatron,
        "; reduced ones are moved to the host's memory", offload_source());
    return rule;
  }

  Rule gradients() const {
    const std::string freed = std::string(
                                  "those alive at the peak: backward makes them one by one, and "
                                  "zero_grad(set_to_none=True) frees them before the next ") +
                              (request_.zero_grad_before_backward ? "backward" : "forward");
    const std::string at_peak =
        !keeps_gradients(training_, graph())
            ? freed
            : "all of them: zero_grad(set_to_none=False) keeps them, and backward makes a "
              "second one while it adds to the first";
    std::vector<std::string> sources = {"torch/csrc/autograd/functions/accumulate_grad.h",
                                        "torch/optim/optimizer.py"};
    switch (strategy()) {
      case ParallelStrategy::kFSDP:
        sources.emplace_back("torch/distributed/fsdp/_runtime_utils.py");
        return {at_peak + "; a unit's are reduced to 1 / replicas once its backward has ended", sources};
      case ParallelStrategy::kFSDP2:
        sources.emplace_back("torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py");
        return {at_peak + "; a unit's are reduced to 1 / replicas once its backward has ended", sources};
      case ParallelStrategy::kZeRO2:
      case ParallelStrategy::kZeRO3:
        sources.emplace_back("arXiv 1910.02054, section 5");
        return {at_peak + "; 1 / replicas of them remain once they are reduced", sources};
      case ParallelStrategy::kDDP:
      case ParallelStrategy::kZeRO1:
        sources.emplace_back("torch/csrc/distributed/c10d/reducer.cpp");
        return {at_peak + (parallelism_.gradient_as_bucket_view ? "; each is freed once it is in its bucket"
                                                                : "; DDP's buckets are counted apart"),
                sources};
      case ParallelStrategy::kMegatron:
        return {
            "all of them in fp32 (main_grad), all the time; the 16-bit one of a parameter is freed once it is added",
            {"megatron/core/distributed/param_and_grad_buffer.py",
             "megatron/core/distributed/distributed_data_parallel.py, _make_backward_post_hook"}};
      case ParallelStrategy::kAuto: break;
    }
    return {at_peak, sources};
  }

  Rule state() const {
    std::vector<std::string> sources = {std::string("docs/estimation.md, The iteration (optimizers); ") +
                                        optimizer_source() +
                                        ", read from real steps by tests/accuracy/optimizer_steps.py"};
    std::string text = "what the optimizer keeps for each trained parameter from step to step";
    if (parallelism_.offload != crds::Offload::kNone) {
      text += parallelism_.offload_percent < 100
                  ? "; of " + std::to_string(parallelism_.offload_percent) +
                        " % of the elements it is in the host's memory, and their step runs there"
                  : std::string("; it is in the host's memory, and the step runs there");
      sources.emplace_back(offload_source());
    }
    if (std::string_view(crds::name_of(training_.optimizer)).starts_with("Paged")) {
      text +=
          "; states of 100,000 values and more are in CUDA's managed memory, which the driver moves to the host";
      sources.emplace_back("bitsandbytes/optim/optimizer.py, get_state_buffer");
    }
    switch (strategy()) {
      case ParallelStrategy::kZeRO1:
        text += "; only for the parameters that this rank owns: largest first, each to the rank with least";
        sources.emplace_back("torch/distributed/optim/zero_redundancy_optimizer.py");
        break;
      case ParallelStrategy::kZeRO2:
      case ParallelStrategy::kZeRO3:
        text += "; 1 / replicas of it, with the fp32 copy of the parameters";
        sources.emplace_back("arXiv 1910.02054, section 3.1");
        break;
      case ParallelStrategy::kMegatron:
        text += "; 1 / replicas of it";
        sources.emplace_back("megatron/core/optimizer/distrib_optimizer.py");
        break;
      case ParallelStrategy::kFSDP:
      case ParallelStrategy::kFSDP2: text += "; of this rank's shards"; break;
      case ParallelStrategy::kAuto:
      case ParallelStrategy::kDDP: break;
    }
    return {text, sources};
  }

  const char* optimizer_source() const {
    return is_of_bitsandbytes(training_.optimizer) ? "bitsandbytes/optim/optimizer.py" : "torch/optim";
  }

  std::vector<Figure> state_figures() const {
    std::vector<Figure> figures = {{"optimizer", crds::name_of(training_.optimizer)},
                                   {"implementation", crds::name_of(trained_implementation(training_))}};
    const TorchVersion version =
        graph() ? request_.graph->producer.version : spec_torch_version(*request_.training);
    const Result<OptimizerRun> run =
        optimizer_run(training_.optimizer, trained_implementation(training_), request_.device, version);
    if (run) {
      constexpr std::int64_t kSide = 1024;  // of a matrix that stands for all
      Bytes kept;
      for (const Bytes bytes : optimizer_state(*run, {.id = 0,
                                                     .bytes = Bytes{kSide} * (4 * kSide),
                                                     .elements = kSide * kSide,
                                                     .rows = kSide,
                                                     .columns = kSide,
                                                     .gradient = Bytes{kSide} * (4 * kSide)})) {
        kept += bytes;
      }
      figures.push_back({"stateBytesOfMatrix1024x1024", kept.count});
    }
    return figures;
  }

  Rule inputs() const {
    if (graph() && tables()) {
      return {
          "the tensors that the exporter found as the model's inputs, of all batches that the pipeline has in flight, "
          "and the indices of the lookups where the graph lacks them",
          {"trainer/plimsoll/recorder.py",
           "torchrec/distributed/train_pipeline/train_pipelines.py, TrainPipelineSparseDist"}};
    }
    if (graph()) {
      return {"the tensors that the exporter found as the model's inputs, at this batch size",
              {"trainer/plimsoll/recorder.py"}};
    }
    if (tables()) {
      return {
          "dense features, labels, and an int64 index a lookup and offset a table and sample, of all batches that "
          "the pipeline has in flight",
          {"torchrec/distributed/train_pipeline/train_pipelines.py, TrainPipelineSparseDist"}};
    }
    return {
        "the model's inputs and labels of one batch",
        {request_.model->dlrm ? "facebookresearch/dlrm, dlrm_s_pytorch.py" : "transformers, modeling_*.py"}};
  }

  Rule activations() const {
    Rule rule{
        "results and saved tensors alive at the peak: a value is freed after its last use, or after the backward "
        "of the operator that saved it",
        {graph() ? "lifetimes as the exporter recorded them (docs/graph.md)"
                 : "PyTorch's tools/autograd/derivatives.yaml (estimator/spec/autograd_rules.cc)"}};
    if (training_.activation_checkpointing != ActivationCheckpointing::kNone) {
      rule.text += "; what checkpointed modules saved is made again in backward";
      rule.sources.emplace_back("torch/utils/checkpoint.py");
    }
    add(rule, parallelism_.sequence, "; between the layers' split parts tokens are split among trainers",
        "arXiv 2205.05198, section 4.2.2");
    add(rule, parallelism_.context > 1, "; each trainer has its part of each sample's tokens",
        "torch/distributed/tensor/experimental/_context_parallel/_attention.py");
    add(rule, parallelism_.pipeline > 1,
        strategy() == ParallelStrategy::kMegatron
            ? "; of all micro-batches that the stage holds at once"
            : "; of all micro-batches that the stage holds at once, with the buffers it receives in",
        pipeline_source());
    add(rule, training_.compile != crds::Compilation::kNone,
        "; what one compiled kernel computes inside is not kept, and computed again in backward",
        "torch/_functorch/partitioners.py, min_cut_rematerialization_partition");
    add(rule, training_.float8 != crds::Float8::kNone, "; operands of 8-bit products are saved as they are",
        "torchao/float8/float8_linear.py, matmul_with_hp_or_float8_args");
    add(rule, quantised(),
        "; inputs of frozen layers are not saved, but for LLM.int8(), and for 4 bits before bitsandbytes 0.43.2",
        "bitsandbytes/autograd/_functions.py");
    add(rule, training_.loss_chunks > 1, "; logits of one part of the tokens at a time",
        "torchtitan/components/loss.py, ChunkedLossWrapper");
    return rule;
  }

  std::vector<Figure> activation_figures() const {
    return with_largest({{"batchSizePerTrainer", training_.batch_size_per_trainer},
                         {"microBatches", training_.gradient_accumulation},
                         {"activationCheckpointing", crds::name_of(training_.activation_checkpointing)},
                         {"peakPhase", estimate_.peak_phase}},
                        {"activation"});
  }

  // The largest live tensors of these kinds, among the ten largest of all.
  std::vector<Figure> with_largest(std::vector<Figure> figures, const std::vector<std::string>& kinds) const {
    for (const LiveTensor& tensor : estimate_.largest_live) {
      if (std::find(kinds.begin(), kinds.end(), tensor.kind) != kinds.end()) {
        figures.push_back({"largest", tensor.name});
        figures.push_back({"largestBytes", tensor.bytes.count});
        break;
      }
    }
    return figures;
  }

  Rule temporaries() const {
    if (estimate_.peak_phase == kBeforeIterations) {
      return {"copies of what is sharded, before the first iteration",
              {"docs/estimation.md, Before the first iteration"}};
    }
    Rule rule{"memory that operators take and give back inside, and the optimizer step's, at the peak",
              {"estimator/kernels/rules.csv, which names each operator's source", optimizer_source()}};
    add(rule, quantised(), "; a quantised weight is made whole for each product",
        "bitsandbytes/autograd/_functions.py");
    add(rule, training_.float8 != crds::Float8::kNone, "; operands of a product cast to 8 bits",
        "torchao/float8/float8_linear.py");
    add(rule, parallelism_.context > 1, "; keys and values of all trainers, and fp32 sums of the ring",
        "torch/distributed/tensor/experimental/_context_parallel/_attention.py");
    add(rule, training_.checkpoint_saving != crds::CheckpointSaving::kNone,
        "; what a checkpoint gathers, if the peak is when it is saved",
        "torch/distributed/checkpoint/state_dict.py, torch/distributed/fsdp/_state_dict_utils.py");
    switch (strategy()) {
      case ParallelStrategy::kFSDP:
      case ParallelStrategy::kFSDP2:
      case ParallelStrategy::kZeRO3:
        rule.text += "; parameters gathered for the units that run, and the reduce-scatter's buffers";
        rule.sources.emplace_back(strategy() == ParallelStrategy::kFSDP2
                                      ? "torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py"
                                      : "torch/distributed/fsdp/_runtime_utils.py; deepspeed/runtime/zero");
        break;
      case ParallelStrategy::kZeRO2:
        rule.text += "; the copy of its bucket that DeepSpeed reduces";
        rule.sources.emplace_back("deepspeed/runtime/zero/stage_1_and_2.py, average_tensor");
        break;
      case ParallelStrategy::kAuto:
      case ParallelStrategy::kDDP:
      case ParallelStrategy::kZeRO1:
      case ParallelStrategy::kMegatron: break;
    }
    return rule;
  }

  Rule buckets() const {
    const std::vector<std::string> sources = {"torch/csrc/distributed/c10d/reducer.cpp"};
    const bool copies =
        request_.model != nullptr && request_.model->transformer && casts_parameters(training_);
    const bool zero1 =
        strategy() == ParallelStrategy::kZeRO1 && (copies || parallelism_.offload != crds::Offload::kNone);
    if (zero1 || strategy() == ParallelStrategy::kZeRO2 || strategy() == ParallelStrategy::kZeRO3) {
      return {
          "DeepSpeed's bucket of " + std::to_string(parallelism_.reduce_bucket_size) + " gradients, " +
              (strategy() == ParallelStrategy::kZeRO3 ? "all the time" : "during backward"),
          {"deepspeed/runtime/zero/config.py, reduce_bucket_size; stage_1_and_2.py, setup_buckets; stage3.py"}};
    }
    if (strategy() == ParallelStrategy::kDDP || strategy() == ParallelStrategy::kZeRO1) {
      return {"as much as the gradients of all parameters, kept from the first iteration on", sources};
    }
    return {"only DistributedDataParallel has buckets", sources};
  }

  Rule context() const {
    if (estimate_.breakdown.cuda_context < fixed_costs_of(request_).cuda_context) {
      return {
          "the cache fills the card (allocatorSlack), which is the more the less the context takes: a small context",
          {"docs/estimation.md, The upper bound"}};
    }
    return of(origins_.cuda_context);
  }

  static Rule embeddings() {
    return {
        "the shards, optimizer states and exchange buffers of the fullest trainer by the sharder's plan; zero "
        "without tables",
        {"AMP (SoCC'23), Findings 4, 10 and 11; docs/sharding.md"}};
  }

  Rule slack() const {
    if (request_.device == Device::kCpu) {
      return {"the CPU has no caching allocator", {"docs/estimation.md, Fixed costs"}};
    }
    return {
        "what the replayed allocator holds beyond the tensors (rounding, whole segments, cached blocks), the "
        "margins of the upper bound, and what past jobs lacked",
        {"c10/cuda/CUDACachingAllocator.cpp", "docs/estimation.md, The upper bound"}};
  }

  std::vector<Figure> slack_figures() const {
    const Bytes shortfall = request_.learned.shortfall.value_or(Bytes{});
    std::vector<Figure> figures;
    Bytes margins;
    for (const Margin& margin : estimate_.margins) {
      figures.push_back({margin.name + "MarginBytes", margin.bytes.count});
      margins += margin.bytes;
    }
    figures.insert(figures.begin(),
                   {{"beyondTensorsBytes", (estimate_.breakdown.allocator_slack - margins - shortfall).count},
                    {"reservedBytes", estimate_.peak.reserved.count},
                    {"allocatedBytes", estimate_.peak.allocated.count},
                    {"shortfallBytes", shortfall.count}});
    return figures;
  }

  std::vector<Figure> gpu_figures() const {
    std::vector<Figure> figures;
    if (request_.gpu != nullptr) {
      figures = {{"gpu", request_.gpu->name}, {"gpuFamily", request_.gpu->family}};
    }
    const std::string& given = training_.torch_version;
    figures.push_back({"torch", graph()         ? request_.graph->producer.torch
                                : given.empty() ? "not known"
                                                : given});
    return figures;
  }

  const EstimateRequest& request_;
  const Estimate& estimate_;
  const crds::TrainingSpec& training_;
  const crds::Parallelism& parallelism_;
  const FixedCostOrigins origins_;
};

}  // namespace

std::vector<PartExplanation> explain(const EstimateRequest& request, const Estimate& estimate) {
  return Explainer(request, estimate).parts();
}

Json to_json(const std::vector<PartExplanation>& parts) {
  JsonArray json;
  for (const PartExplanation& part : parts) {
    JsonObject each;
    each["part"] = part.part;
    each["bytes"] = Json::Int64(part.bytes.count);
    each["rule"] = part.rule;
    JsonArray sources;
    for (const std::string& source : part.sources) {
      sources.append(source);
    }
    each["sources"] = std::move(sources).take();
    JsonObject figures;
    for (const Figure& figure : part.figures) {
      figures[figure.name] = std::holds_alternative<std::int64_t>(figure.value)
                                 ? Json(Json::Int64(std::get<std::int64_t>(figure.value)))
                                 : Json(std::get<std::string>(figure.value));
    }
    each["figures"] = std::move(figures).take();
    json.append(std::move(each));
  }
  return json;
}

}  // namespace plimsoll::estimator::estimate
