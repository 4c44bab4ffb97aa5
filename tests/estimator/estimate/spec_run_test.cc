#include "estimator/estimate/spec_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "estimator/catalog/gpu_catalog.h"
#include "estimator/estimate/estimate.h"
#include "estimator/trace/shapes.h"

namespace plimsoll::estimator {
namespace {

using crds::ParallelStrategy;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct SpecJob {
  crds::ModelSpec model;
  crds::TrainingSpec training;
  EstimateRequest request;

  SpecJob() {
    training.batch_size_per_trainer = 4;
    training.optimizer = crds::Optimizer::kSGD;
    request.device = Device::kCpu;
  }
  const EstimateRequest& operator()() {
    request.model = &model;
    request.training = &training;
    return request;
  }
  SpecRun run() {
    Result<SpecRun> run = run_spec((*this)());
    EXPECT_TRUE(run.ok()) << (run ? "" : to_string(run.error()));
    return run ? *std::move(run) : SpecRun{.heaviest = Ledger(1), .allocated = {}, .dense_parameters = {}};
  }
  std::string refusal() {
    const Result<SpecRun> run = run_spec((*this)());
    EXPECT_FALSE(run.ok());
    return run ? "" : run.error().message;
  }
};

// Dense 8 -> Linear 16, ReLU -> Linear 1 -> BCE.
SpecJob two_layers() {
  SpecJob job;
  job.model.dlrm.emplace();
  job.model.dlrm->dense_features = 8;
  job.model.dlrm->bottom_mlp = {16};
  job.model.dlrm->top_mlp = {1};
  job.model.dlrm->interaction = crds::Interaction::kCat;
  return job;
}

SpecJob transformer(std::int64_t layers = 4) {
  SpecJob job;
  job.model.transformer.emplace();
  job.model.transformer->layers = layers;
  job.model.transformer->hidden = 64;
  job.model.transformer->heads = 4;
  job.model.transformer->ffn = 128;
  job.model.transformer->vocab = 100;
  job.model.transformer->sequence_length = 16;
  return job;
}

// estimate_test.cc derives these by hand: 644 bytes of parameters, 144 of inputs, and 900 at the first layer's
// backward.
TEST(SpecRun, OneTrainerByHand) {
  const SpecRun run = two_layers().run();
  EXPECT_EQ(run.heaviest.peak(), Bytes{644 + 144 + 900});
  EXPECT_THAT(run.allocated, ElementsAre(Bytes{644 + 144 + 900}));
  EXPECT_EQ(run.dense_parameters, 644_B);
  EXPECT_FALSE(run.beyond_any_machine);
  ASSERT_FALSE(run.largest_live.empty());
  EXPECT_LE(run.largest_live.size(), 10U);
  // The first weight, 8 x 16 floats, and its gradient.
  EXPECT_EQ(run.largest_live.front().bytes, Bytes{8 * 16 * 4});
  EXPECT_EQ(run.largest_live.front().kind, "parameter");
}

TEST(SpecRun, ALoopKeepsItsGradientsAsZeroGradsDefaultOfItsPyTorch) {
  crds::TrainingSpec training;
  EXPECT_FALSE(keeps_gradients(training, false)) << "the newest version";
  training.torch_version = "2.0";
  EXPECT_FALSE(keeps_gradients(training, false));
  training.torch_version = "1.13";
  EXPECT_TRUE(keeps_gradients(training, false));
  EXPECT_FALSE(keeps_gradients(training, true)) << "a graph's loop";
  training.set_to_none = true;
  EXPECT_FALSE(keeps_gradients(training, false));
  training.set_to_none = false;
  training.torch_version = "2.15";
  EXPECT_TRUE(keeps_gradients(training, false));
  EXPECT_TRUE(keeps_gradients(training, true));
}

TEST(SpecRun, NothingIsRefusedForWhatPyTorchsDefaultWas) {
  crds::TrainingSpec training;
  training.torch_version = "1.13";
  training.optimizer_in_backward = true;
  EXPECT_FALSE(keeps_gradients(training, false));
  training.optimizer_in_backward = false;
  training.parallelism.pipeline = 2;
  EXPECT_FALSE(keeps_gradients(training, false));
  training.parallelism.pipeline = 1;
  training.parallelism.offload = crds::Offload::kOptimizer;
  EXPECT_FALSE(keeps_gradients(training, false));
}

TEST(SpecRun, StagesOfAPipelineAreRanks) {
  SpecJob job = transformer();
  const Bytes whole = job.run().dense_parameters;
  job.request.trainers = 4;
  job.training.batch_size_per_trainer = 8;
  job.training.gradient_accumulation = 8;
  job.training.parallelism.pipeline = 4;
  const SpecRun stages = job.run();
  EXPECT_EQ(stages.allocated.size(), 4U);
  EXPECT_EQ(stages.heaviest.peak(), *std::max_element(stages.allocated.begin(), stages.allocated.end()));
  EXPECT_EQ(stages.dense_parameters, whole) << "of all stages";
}

// torchtitan, context parallel 8: +142 %, for the parameters were sharded over data parallelism alone. Context
// parallelism does not multiply what a trainer holds of the parameters and their state.
TEST(SpecRun, ContextParallelismDoesNotMultiplyShards) {
  for (const ParallelStrategy strategy : {ParallelStrategy::kFSDP, ParallelStrategy::kFSDP2,
                                          ParallelStrategy::kZeRO2, ParallelStrategy::kZeRO3}) {
    SpecJob job = transformer();
    job.training.optimizer = crds::Optimizer::kAdam;
    job.training.parallelism.strategy = strategy;
    job.request.trainers = 8;
    const auto held = [&](std::int64_t context) {
      job.training.parallelism.context = context;
      const SpecRun run = job.run();
      return std::pair(run.heaviest.at_peak(Part::kParameters), run.heaviest.at_peak(Part::kOptimizerState));
    };
    const auto data_parallel = held(1);
    for (const std::int64_t context : {2, 4, 8}) {
      EXPECT_EQ(held(context), data_parallel) << crds::name_of(strategy) << " " << context;
    }
  }
}

TEST(SpecRun, HsdpHoldsAsMuchAsFsdpOnAGroup) {
  SpecJob job = transformer();
  job.training.parallelism.strategy = ParallelStrategy::kFSDP2;
  job.request.trainers = 4;
  const Bytes of_four = job.run().heaviest.peak();
  job.request.trainers = 8;
  EXPECT_LT(job.run().heaviest.peak(), of_four);
  job.training.parallelism.replicate = 2;
  EXPECT_EQ(job.run().heaviest.peak(), of_four);
  job.training.parallelism.replicate = 3;
  EXPECT_THAT(job.refusal(), HasSubstr("training.parallelism.replicate is 3"));
}

// torchtitan, 405B with 1F1B: -72 %. All gradients are whole at the end of the last micro-batch's backward.
TEST(SpecRun, InAPipelineFsdp2HoldsWholeGradients) {
  SpecJob job = transformer(8);
  job.training.parallelism.strategy = ParallelStrategy::kFSDP2;
  job.training.parallelism.pipeline = 2;
  job.training.batch_size_per_trainer = 8;
  job.training.gradient_accumulation = 4;
  job.request.trainers = 16;
  const SpecRun run = job.run();
  // Half of the layers, their gradients whole and their parameters gathered.
  constexpr std::int64_t kLayer = 4 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64);
  EXPECT_GT(run.heaviest.peak(), Bytes{4 * kLayer});
  job.training.parallelism.reshard_after_forward = false;
  EXPECT_GE(job.run().heaviest.peak(), Bytes{2 * 4 * kLayer});
}

// torch.compile: fewer tensors in each step from layers alone to the whole model with its loss.
TEST(SpecRun, CompilingMaterialisesLess) {
  SpecJob job = transformer();
  job.training.batch_size_per_trainer = 64;
  Bytes last = job.run().heaviest.peak();
  for (const crds::Compilation compile : {crds::Compilation::kLayers, crds::Compilation::kModel}) {
    job.training.compile = compile;
    const Bytes peak = job.run().heaviest.peak();
    EXPECT_LT(peak, last) << crds::name_of(compile);
    last = peak;
  }
}

// 64 x 16 tokens have 102,400 logits: in fp32 with their log-softmax, its gradient and their own.
TEST(SpecRun, ALossInChunksHasTheLogitsOfOneChunk) {
  SpecJob job = transformer(1);
  job.model.transformer->vocab = 10000;
  job.training.batch_size_per_trainer = 64;
  const Bytes whole = job.run().heaviest.peak();
  constexpr std::int64_t kLogits = std::int64_t{64} * 16 * 10000 * 4;
  job.training.loss_chunks = 8;
  const Bytes chunked = job.run().heaviest.peak();
  EXPECT_LT(chunked, whole - Bytes{2 * kLogits});
  EXPECT_GT(chunked, Bytes{4 * kLogits / 8});
  job.training.loss_chunks = 17;
  EXPECT_THAT(job.refusal(), HasSubstr("training.lossChunks is 17 and must be from 1 to the 16 tokens"));
}

// A T4 has no flash kernel, and so scores of grouped heads; a card that is not known is assumed to have one.
TEST(SpecRun, WithoutFlashKernelsGroupedHeadsHaveScores) {
  const GpuCatalog catalog = GpuCatalog::built_in();
  SpecJob job = transformer();
  job.model.transformer->kv_heads = 2;
  job.model.transformer->attention = crds::AttentionKind::kSDPA;
  job.training.precision = crds::Precision::kFP16Mixed;
  job.request.device = Device::kCuda;
  const auto peak_on = [&](const char* gpu) {
    job.request.gpu = gpu == nullptr ? nullptr : catalog.find(gpu);
    return job.run().heaviest.peak();
  };
  EXPECT_GT(peak_on("T4"), peak_on("A100-80GB"));
  EXPECT_EQ(peak_on(nullptr), peak_on("A100-80GB"));
  job.request.gpu = catalog.find("T4");
  EXPECT_FALSE(has_flash(job()));
  job.model.transformer->attention = crds::AttentionKind::kEager;
  EXPECT_TRUE(has_flash(job())) << "no such kernel is asked for";
}

// One search over both cards keeps their runs apart.
TEST(Estimator, ACardWithoutFlashKernelsHasARunOfItsOwn) {
  const GpuCatalog catalog = GpuCatalog::built_in();
  SpecJob job = transformer();
  job.model.transformer->kv_heads = 2;
  job.training.precision = crds::Precision::kFP16Mixed;
  job.request.device = Device::kCuda;
  Estimator estimator;
  const auto activations_on = [&](const char* gpu) {
    job.request.gpu = catalog.find(gpu);
    return estimator.estimate(job())->breakdown.activations;
  };
  const Bytes on_t4 = activations_on("T4"), on_a100 = activations_on("A100-80GB");
  EXPECT_GT(on_t4, on_a100);
  EXPECT_EQ(activations_on("T4"), on_t4);
}

TEST(SpecRun, Float8GathersLessAndNeedsSixteenBits) {
  SpecJob job = transformer();
  job.request.trainers = 8;
  job.request.device = Device::kCuda;
  job.training.batch_size_per_trainer = 1;
  job.training.precision = crds::Precision::kBF16Mixed;
  job.training.parallelism.strategy = ParallelStrategy::kFSDP2;
  job.training.parallelism.reshard_after_forward = false;
  const Bytes usual = job.run().heaviest.peak();
  job.training.float8 = crds::Float8::kLinearAllGather;
  EXPECT_LT(job.run().heaviest.peak(), usual);
  job.training.parallelism.strategy = ParallelStrategy::kFSDP;
  EXPECT_THAT(job.refusal(), HasSubstr("training.float8 LinearAllGather needs parallelism.strategy FSDP2"));
  job.training.precision = crds::Precision::kFP32;
  EXPECT_THAT(job.refusal(), HasSubstr("training.float8 needs precision BF16Mixed or BF16"));
}

TEST(SpecRun, PaddedExpertsAreAWarningUnlessTrainersShareThem) {
  SpecJob job = transformer();
  job.model.transformer->experts = 8;
  job.model.transformer->experts_per_token = 2;
  job.training.parallelism.strategy = ParallelStrategy::kFSDP2;
  job.request.trainers = 8;
  EXPECT_TRUE(job.run().warnings.empty());
  const Bytes on_eight = job.run().heaviest.peak();
  job.request.trainers = 64;
  const SpecRun padded = job.run();
  EXPECT_GT(padded.heaviest.peak(), on_eight) << "as in PyTorch";
  ASSERT_EQ(padded.warnings.size(), 1U);
  EXPECT_THAT(padded.warnings.front(), HasSubstr("weight of experts has 8 rows, which FSDP2 pads to 64"));
  job.request.trainers = 8;
  job.training.parallelism.expert = 8;
  const SpecRun shared = job.run();
  EXPECT_LT(shared.heaviest.peak(), on_eight);
  EXPECT_TRUE(shared.warnings.empty());
}

// A LoRA matrix of 16 rows was told to be sharded along another dimension, as experts are.
TEST(SpecRun, PaddedAdaptersAreNoWarning) {
  SpecJob job = transformer();
  job.model.transformer->hidden = 4096;
  job.model.transformer->heads = 32;
  job.model.transformer->ffn = 8192;
  crds::FineTuning& tuning = job.training.fine_tuning.emplace();
  tuning.method = crds::FineTuningMethod::kLoRA;
  tuning.rank = 16;
  tuning.target_modules = {"q_proj"};
  job.training.parallelism.strategy = ParallelStrategy::kFSDP2;
  job.request.trainers = 64;
  EXPECT_TRUE(job.run().warnings.empty());
}

// Mixtral under FSDP2: memory rose with trainers, because an expert weight of 8 rows is padded to their number.
TEST(SpecRun, ExpertsWithParametersOfTheirOwnAreNotPadded) {
  SpecJob job = transformer();
  job.model.transformer->experts = 8;
  job.model.transformer->experts_per_token = 2;
  job.model.transformer->split_experts = true;
  job.training.parallelism.strategy = ParallelStrategy::kFSDP2;
  job.request.trainers = 8;
  const SpecRun on_eight = job.run();
  job.request.trainers = 64;
  const SpecRun on_many = job.run();
  EXPECT_LT(on_many.heaviest.peak(), on_eight.heaviest.peak());
  EXPECT_TRUE(on_many.warnings.empty());
  job.request.trainers = 1;
  const SpecRun split = job.run();
  job.model.transformer->split_experts = false;
  EXPECT_EQ(split.dense_parameters, job.run().dense_parameters);
  job.model.transformer->split_experts = true;
  job.request.trainers = 8;
  job.training.parallelism.expert = 8;  // each trainer has one
  EXPECT_LT(job.run().heaviest.peak(), on_eight.heaviest.peak());
  job.model.transformer->experts = job.model.transformer->experts_per_token = 0;
  EXPECT_THAT(job.refusal(), HasSubstr("splitExperts is for models with experts"));
}

// torchtitan's 405B on PyTorch 2.6: buffers, outputs and sent gradients of all micro-batches stay.
TEST(SpecRun, OlderPipelinesKeepWhatTheyExchange) {
  SpecJob job = transformer(8);
  job.training.parallelism.pipeline = 4;
  job.training.batch_size_per_trainer = 32;
  job.training.gradient_accumulation = 8;
  job.request.trainers = 4;
  const SpecRun newest = job.run();
  job.training.torch_version = "2.6";
  const SpecRun older = job.run();
  constexpr std::int64_t kExchanged = 4 * 16 * 64 * 4;  // of a micro-batch: samples, tokens, width, fp32
  ASSERT_EQ(older.allocated.size(), 4U);
  // A stage between others: eight buffers of each kind and eight outputs. At the first backward seven of the inputs
  // and outputs would be there anyway on the first stages, fewer on later ones.
  for (std::size_t stage = 0; stage + 1 < older.allocated.size(); ++stage) {
    const Bytes more = older.allocated[stage] - newest.allocated[stage];
    EXPECT_GE(more, Bytes{(static_cast<std::int64_t>(stage) + 8) * kExchanged}) << stage;
    EXPECT_LE(more, Bytes{4 * 8 * kExchanged}) << stage;
  }
  job.training.torch_version = "two";
  EXPECT_THAT(job.refusal(), HasSubstr("training.torchVersion is not a version of PyTorch"));
}

TEST(SpecRun, FsdpReducesInThePrecisionOfTheComputationUnlessTold) {
  using crds::ReduceDtype;
  const auto in_half = [](ParallelStrategy strategy, ReduceDtype dtype) {
    return reduces_in_half({.strategy = strategy, .reduce_dtype = dtype});
  };
  EXPECT_TRUE(in_half(ParallelStrategy::kFSDP, ReduceDtype::kAuto));
  EXPECT_FALSE(in_half(ParallelStrategy::kFSDP, ReduceDtype::kFP32));
  EXPECT_FALSE(in_half(ParallelStrategy::kFSDP2, ReduceDtype::kAuto));
  EXPECT_TRUE(in_half(ParallelStrategy::kFSDP2, ReduceDtype::kHalf));
  SpecJob job = two_layers();
  job.training.parallelism = {.strategy = ParallelStrategy::kFSDP2, .reduce_dtype = ReduceDtype::kHalf};
  EXPECT_THAT(job.refusal(), HasSubstr("reduceDtype is for transformers"));
}

// The logits of all micro-batches stayed on the last stage, as torch.distributed.pipelining keeps them.
TEST(SpecRun, TheLastStageOfMegatronKeepsNoLogits) {
  const auto more_of_eight_micro_batches = [](ParallelStrategy strategy) {
    SpecJob job = transformer(4);
    job.model.transformer->vocab = 5000;
    job.training.parallelism.pipeline = 2;
    job.training.parallelism.strategy = strategy;
    job.request.trainers = 2;
    std::int64_t taken[2];
    for (const std::int64_t micro_batches : {8, 16}) {
      job.training.gradient_accumulation = micro_batches;
      job.training.batch_size_per_trainer = 4 * micro_batches;
      const std::vector<Bytes> allocated = job.run().allocated;
      EXPECT_EQ(allocated.size(), 2U);
      taken[micro_batches / 8 - 1] = allocated.empty() ? 0 : allocated.back().count;
    }
    return taken[1] - taken[0];
  };
  constexpr std::int64_t kLogits = 4 * 16 * 5000 * 4;  // of a micro-batch: samples, tokens, words, fp32
  constexpr std::int64_t kInputs = 4 * 16 * 2 * 8;     // tokens and labels
  EXPECT_GE(more_of_eight_micro_batches(ParallelStrategy::kDDP), 8 * kLogits);
  EXPECT_LE(more_of_eight_micro_batches(ParallelStrategy::kMegatron), 8 * kInputs);
}

TEST(SpecRun, MegatronsAdamIsFusedUnlessAnotherIsAsked) {
  using crds::OptimizerImplementation;
  crds::TrainingSpec training;
  EXPECT_EQ(trained_implementation(training), OptimizerImplementation::kDefault);
  training.parallelism.strategy = ParallelStrategy::kMegatron;
  EXPECT_EQ(trained_implementation(training), OptimizerImplementation::kFused);
  training.optimizer_implementation = OptimizerImplementation::kForEach;
  EXPECT_EQ(trained_implementation(training), OptimizerImplementation::kForEach);
  training.optimizer_implementation = OptimizerImplementation::kDefault;
  training.optimizer = crds::Optimizer::kAdagrad;
  training.parallelism.strategy = ParallelStrategy::kMegatron;
  EXPECT_EQ(trained_implementation(training), OptimizerImplementation::kDefault);
}

TEST(SpecRun, MegatronIsForTransformersAndHasItsOwnStep) {
  SpecJob other = two_layers();
  other.training.parallelism.strategy = ParallelStrategy::kMegatron;
  EXPECT_THAT(other.refusal(), HasSubstr("Megatron is for transformers"));
  SpecJob job = transformer();
  job.training.parallelism.strategy = ParallelStrategy::kMegatron;
  job.training.optimizer_in_backward = true;
  EXPECT_THAT(job.refusal(), HasSubstr("optimizerInBackward does not go with parallelism.strategy Megatron"));
}

TEST(SpecRun, KernelsOfTransformersAreRefusedForOtherModels) {
  SpecJob job = two_layers();
  job.training.compile = crds::Compilation::kModel;
  EXPECT_THAT(job.refusal(), HasSubstr("training.compile is for transformers"));
  job.training.compile = crds::Compilation::kNone;
  job.training.loss_chunks = 2;
  EXPECT_THAT(job.refusal(), HasSubstr("training.lossChunks is for transformers"));
  job.training.loss_chunks = 1;
  job.training.cudnn_benchmark = true;
  EXPECT_THAT(job.refusal(), HasSubstr("training.cudnnBenchmark is for model.graph"));
}

TEST(SpecRun, OwnersUnderZeRO1AreRanksUpToALimit) {
  SpecJob job = two_layers();
  job.training.optimizer = crds::Optimizer::kMomentum;
  job.training.parallelism.strategy = ParallelStrategy::kZeRO1;
  job.request.trainers = 3;
  const SpecRun owners = job.run();
  EXPECT_EQ(owners.allocated.size(), 3U);
  EXPECT_EQ(owners.heaviest.peak(), *std::max_element(owners.allocated.begin(), owners.allocated.end()));
  job.request.trainers = 1000;
  EXPECT_EQ(job.run().allocated.size(), 1U) << "the first represents all";
}

TEST(SpecRun, PartsThatDoNotDivideTheTrainersAreRefused) {
  SpecJob job = transformer();
  job.request.trainers = 6;
  job.training.parallelism.tensor = 4;
  EXPECT_THAT(job.refusal(), HasSubstr("multiple of parallelism.tensor x pipeline x context, 4, is 6"));
  job.training.parallelism.tensor = 1;
  job.training.parallelism.expert = 4;
  EXPECT_THAT(job.refusal(), HasSubstr("training.parallelism.expert is 4"));
  job.training.parallelism.expert = 1;
  job.training.parallelism.pipeline = 6;
  EXPECT_THAT(job.refusal(), HasSubstr("the model has 4 layers"));
  job.training.parallelism.pipeline = 4097;
  EXPECT_THAT(job.refusal(), HasSubstr("training.parallelism.pipeline must be from 1 to 4096"));
  job.training.parallelism.pipeline = 1;
  job.training.gradient_accumulation = 3;
  EXPECT_THAT(job.refusal(), HasSubstr("training.gradientAccumulation is 3"));
  job.training.parallelism.pipeline = 2;
  job.training.parallelism.pipeline_chunks = 2;
  job.training.gradient_accumulation = 1;
  EXPECT_THAT(job.refusal(), HasSubstr("multiple of its 2 stages"));
}

TEST(SpecRun, ADlrmIsNotSplit) {
  SpecJob job = two_layers();
  job.request.trainers = 2;
  job.training.parallelism.tensor = 2;
  EXPECT_THAT(job.refusal(), HasSubstr("the only parallelism of a dlrm model"));
}

TEST(SpecRun, AnOptimizerThatPyTorchLacksIsRefused) {
  SpecJob job = two_layers();
  job.training.optimizer = crds::Optimizer::kLAMB;
  job.training.optimizer_implementation = crds::OptimizerImplementation::kFused;
  const Result<SpecRun> run = run_spec(job());
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.error().code, ErrorCode::kUnsupported);
}

// Two layers of 2^20 columns: an activation of 2^32 samples has 2^54 bytes, and there are several.
TEST(SpecRun, MemoryBeyondAnyMachineIsMarked) {
  SpecJob job = two_layers();
  job.model.dlrm->bottom_mlp = {1 << 20, 1 << 20};
  job.training.batch_size_per_trainer = std::int64_t{1} << 32;
  EXPECT_TRUE(job.run().beyond_any_machine);
}

TEST(TrainersThatMatter, ReplicasOfTheWholeModelAreAlike) {
  SpecJob job = transformer();
  job.request.trainers = 64;
  const auto matter = [&] { return trainers_that_matter(job()); };
  EXPECT_EQ(matter(), 2);
  job.training.parallelism.strategy = ParallelStrategy::kDDP;
  EXPECT_EQ(matter(), 2);
  job.training.parallelism.tensor = 2;
  EXPECT_EQ(matter(), 4) << "two replicas of two trainers";
  job.request.trainers = 63;
  EXPECT_EQ(matter(), 63) << "not divisible: an error of its own";
  job.request.trainers = 64;
  job.training.parallelism.expert = 4;
  EXPECT_EQ(matter(), 64);
  job.training.parallelism.expert = 1;
  job.training.parallelism.tensor = 1;
  job.training.parallelism.strategy = ParallelStrategy::kFSDP;
  EXPECT_EQ(matter(), 64);
  job.request.trainers = 1;
  EXPECT_EQ(matter(), 1);
}

TEST(TrainersThatMatter, AnEqualNumberHasAnEqualRun) {
  SpecJob job = transformer();
  job.request.trainers = 2;
  const SpecRun two = job.run();
  job.request.trainers = 64;
  const SpecRun many = job.run();
  EXPECT_EQ(two.heaviest.peak_moment().parts, many.heaviest.peak_moment().parts);
  EXPECT_EQ(two.heaviest.events().size(), many.heaviest.events().size());
}

TEST(RecordWhole, HasEveryParameterOnce) {
  for (SpecJob job : {two_layers(), transformer()}) {
    const Result<Recording> recording = record_whole(job(), 4);
    ASSERT_TRUE(recording.ok()) << to_string(recording.error());
    const Result<TraceShapes> shapes = TraceShapes::at(recording->trace, 4);
    ASSERT_TRUE(shapes.ok());
    EXPECT_EQ(parameter_bytes(recording->trace, *shapes), job.run().dense_parameters);
  }
}

}  // namespace
}  // namespace plimsoll::estimator
