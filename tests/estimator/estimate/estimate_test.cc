#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <random>

#include "estimator/estimate/estimate.h"
#include "estimator/fixed_costs/fixed_costs.h"
#include "tests/testing/random_seed.h"

namespace plimsoll::estimator {
namespace {

using crds::ActivationCheckpointing;
using crds::Interaction;
using crds::Optimizer;
using crds::ParallelStrategy;
using crds::Precision;

// A job and a request for its estimate. Change them, then call result().
struct OriginalRequest {
  crds::ModelSpec model;
  crds::TrainingSpec training;
  std::optional<GpuModel> gpu = *GpuCatalog::built_in().find("A100-80GB");
  EstimateRequest request;

  OriginalRequest() {
    model.dlrm.emplace();
    training.batch_size_per_trainer = 4;
    training.optimizer = Optimizer::kSGD;
  }
  crds::DlrmModel& dlrm() { return *model.dlrm; }

  Result<Estimate> result() {
    request.model = &model;
    request.training = &training;
    request.gpu = gpu ? &*gpu : nullptr;
    return estimate_memory(request);
  }
  Estimate operator()() {
    Result<Estimate> estimate = result();
    EXPECT_TRUE(estimate.ok()) << (estimate ? "" : to_string(estimate.error()));
    return estimate ? *estimate : Estimate{};
  }
};

// Dense 8 -> Linear 16, ReLU -> Linear 1 -> BCE. No tables.
OriginalRequest two_layers(Device device) {
  OriginalRequest requested;
  requested.dlrm().dense_features = 8;
  requested.dlrm().bottom_mlp = {16};
  requested.dlrm().top_mlp = {1};
  requested.dlrm().interaction = Interaction::kCat;
  requested.request.device = device;
  return requested;
}

// Like MLPerf's DLRM-DCNv2.
OriginalRequest dlrm(Interaction interaction) {
  OriginalRequest requested;
  requested.dlrm().dense_features = 13;
  requested.dlrm().bottom_mlp = {512, 256, 128};
  requested.dlrm().top_mlp = {1024, 1024, 512, 256, 1};
  requested.dlrm().interaction = interaction;
  requested.dlrm().cross_layers = 3;
  requested.dlrm().cross_rank = 512;
  requested.dlrm().tables = {{.name = "t", .count = 26, .rows = 1'000'000, .dim = 128, .pooling_factor = 10}};
  requested.training.batch_size_per_trainer = 8192;
  return requested;
}

// 2,190 different tables, as in Model-A of the AMP paper.
OriginalRequest model_a() {
  OriginalRequest requested;
  requested.dlrm().dense_features = 256;
  requested.dlrm().bottom_mlp = {512, 256, 128};
  requested.dlrm().top_mlp = {512, 256, 1};
  requested.dlrm().interaction = Interaction::kCat;
  constexpr std::int64_t kWidths[] = {16, 32, 64, 96, 128, 192, 256};
  for (int i = 0; i < 2190; ++i) {
    requested.dlrm().tables.push_back({.name = "t" + std::to_string(i),
                                       .rows = 1000 + i,
                                       .dim = kWidths[i % 7],
                                       .pooling_factor = 1.0 + i % 20,
                                       .lookup_frequency = 0.5});
  }
  requested.training.batch_size_per_trainer = 1024;
  requested.training.optimizer = Optimizer::kAdam;
  requested.request.trainers = 128;
  return requested;
}

// Batch 4, CPU, SGD. The first layer has 8*16+16 = 144 parameters, the second 16+1 = 17: 161 * 4 B = 644 B.
// Inputs: features 4*8*4 = 128 B and labels 4*4 = 16 B. Forward leaves the ReLU's result (256 B: saved by the
// ReLU and by the second layer), the logits (16 B: saved by the loss) and the loss (4 B). Backward, bytes
// above parameters and inputs:
//   loss          276 left by forward + 4 (gradient 1) + 16 (of the logits)                             = 296
//   second layer  256 (ReLU) + 16 (gradient given) + 256 (of its input) + 64 + 4 (its parameters')      = 596
//   ReLU          256 (saved) + 256 (given) + 256 (of its input) + 68                                   = 836
//   first layer   256 (given) + 68 + 512 + 64 (its parameters'); no gradient of the features            = 900
// and the step of plain SGD has only the gradients. So the peak is at the first layer.
TEST(EstimateMemory, TwoLayersByHand) {
  const Estimate estimate = two_layers(Device::kCpu)();
  EXPECT_EQ(estimate.dense_parameters.count, 644);
  EXPECT_EQ(estimate.breakdown.parameters.count, 644);
  EXPECT_EQ(estimate.breakdown.inputs.count, 144);
  EXPECT_EQ(estimate.breakdown.gradients.count, 644);
  EXPECT_EQ(estimate.breakdown.temporaries.count, 256);
  EXPECT_EQ(estimate.breakdown.activations.count, 0);
  EXPECT_EQ(estimate.peak.allocated.count, 644 + 144 + 900);
  EXPECT_EQ(estimate.peak_phase, "Backward");
}

// The same at batch 100: tensors that grow with the batch (64 B per sample and tensor of 16) now dominate, so
// the peak is the ReLU's backward: saved, given and new of 6400 B each, and the second layer's gradients.
TEST(EstimateMemory, TwoLayersByHandAtALargerBatch) {
  OriginalRequest requested = two_layers(Device::kCpu);
  requested.training.batch_size_per_trainer = 100;
  const Estimate estimate = requested();
  EXPECT_EQ(estimate.breakdown.activations.count, 6400);
  EXPECT_EQ(estimate.breakdown.temporaries.count, 2 * 6400);
  EXPECT_EQ(estimate.breakdown.gradients.count, 68);
  EXPECT_EQ(estimate.breakdown.inputs.count, 100 * (32 + 4));
  EXPECT_EQ(estimate.peak.allocated.count, 644 + 3600 + 3 * 6400 + 68);
}

// Adam's state is 2 x 644 B, and its single-tensor step needs twice the largest parameter (8*16*4 = 512 B) at
// the step: 644 of gradients + 1024 is more than backward's 900.
TEST(EstimateMemory, TwoLayersByHandWithAdam) {
  OriginalRequest requested = two_layers(Device::kCpu);
  requested.training.optimizer = Optimizer::kAdam;
  const Estimate estimate = requested();
  EXPECT_EQ(estimate.peak_phase, "OptimizerStep");
  EXPECT_EQ(estimate.breakdown.optimizer_state.count, 1288 + 4 * 4);
  EXPECT_EQ(estimate.breakdown.temporaries.count, 1024);
  EXPECT_EQ(estimate.peak.allocated.count, 644 + 1288 + 4 * 4 + 144 + 644 + 1024);
}

TEST(EstimateMemory, OptimizersKeepWhatTheyKeep) {
  const std::pair<Optimizer, std::int64_t> kept[] = {
      {Optimizer::kSGD, 0},
      {Optimizer::kMomentum, 644},
      // On the CPU, each of the four parameters also has a step count.
      {Optimizer::kAdam, 1288 + 4 * 4},
      {Optimizer::kAdamW, 1288 + 4 * 4},
      {Optimizer::kAdagrad, 644 + 4 * 4},
      {Optimizer::kRMSprop, 644 + 4 * 4},
      {Optimizer::kLAMB, 1288},
      // One fp32 per row: weights have 16 and 1 rows, biases one.
      {Optimizer::kRowWiseAdagrad, 4 * (16 + 1 + 1 + 1)},
  };
  for (const auto& [optimizer, bytes] : kept) {
    OriginalRequest requested = two_layers(Device::kCpu);
    requested.training.optimizer = optimizer;
    EXPECT_EQ(requested().breakdown.optimizer_state.count, bytes) << crds::name_of(optimizer);
  }
}

// On CUDA each block is a multiple of 512 B: four parameters of at most one granule each.
TEST(EstimateMemory, CudaCountsWholeGranules) {
  OriginalRequest requested = two_layers(Device::kCuda);
  const Estimate estimate = requested();
  EXPECT_EQ(estimate.breakdown.parameters.count, 4 * 512);
  EXPECT_EQ(estimate.breakdown.inputs.count, 2 * 512);
  EXPECT_EQ(estimate.dense_parameters.count, 644);
}

TEST(EstimateMemory, TheCpuHasNoFixedCosts) {
  OriginalRequest requested = dlrm(Interaction::kDCN);
  requested.request.device = Device::kCpu;
  requested.request.trainers = 64;
  const Estimate estimate = requested();
  EXPECT_EQ(estimate.breakdown.workspace.count, 0);
  EXPECT_EQ(estimate.breakdown.communication.count, 0);
  EXPECT_EQ(estimate.breakdown.cuda_context.count, 0);
  EXPECT_EQ(estimate.breakdown.allocator_slack.count, 0);
  EXPECT_EQ(estimate.peak.allocated, estimate.breakdown.total());
  EXPECT_EQ(estimate.peak.upper_bound, estimate.peak.allocated);
}

TEST(EstimateMemory, WithoutACardItsCostsAreLeftOut) {
  OriginalRequest requested = dlrm(Interaction::kCat);
  requested.gpu.reset();
  const Estimate estimate = requested();
  EXPECT_EQ(estimate.breakdown.cuda_context.count, 0);
  EXPECT_EQ(estimate.breakdown.workspace.count, 0);
}

TEST(EstimateMemory, FixedCostsComeFromTheTableOrFromWhatWasLearned) {
  OriginalRequest requested = dlrm(Interaction::kCat);
  requested.request.trainers = 128;
  requested.request.embedding_bytes = 30_GiB;
  const Estimate before = requested();
  EXPECT_EQ(before.breakdown.cuda_context, 1463_MiB);
  EXPECT_EQ(before.breakdown.communication, 2_GiB);
  EXPECT_EQ(before.breakdown.embeddings, 30_GiB);
  // Two handles of 8.125 MiB, and 4 MiB of cuBLASLt; Hopper's are 32 MiB each.
  EXPECT_EQ(before.breakdown.workspace, 20_MiB + 256_KiB);
  requested.gpu = *GpuCatalog::built_in().find("H100-80GB");
  EXPECT_EQ(requested().breakdown.workspace, 96_MiB);
  requested.request.runtime.cublas_workspace = 1_MiB;
  EXPECT_EQ(requested().breakdown.workspace, 34_MiB);
  requested.request.runtime.cublas_workspace.reset();

  requested.request.learned = {.gpu_model = "",
                               .cuda_context = 500_MiB,
                               .communication = 700_MiB,
                               .workspace = 50_MiB,
                               .convolution_workspace = {},
                               .startup = {},
                               .shortfall = std::nullopt,
                               .peak_correction = 2.0};
  const Estimate learned = requested();
  EXPECT_EQ(learned.breakdown.cuda_context, 500_MiB);
  EXPECT_EQ(learned.breakdown.communication, 700_MiB);
  EXPECT_EQ(learned.breakdown.workspace, 50_MiB);
  EXPECT_EQ(learned.breakdown.activations, 2 * before.breakdown.activations);
  EXPECT_EQ(learned.breakdown.temporaries, 2 * before.breakdown.temporaries);
  EXPECT_EQ(learned.breakdown.parameters, before.breakdown.parameters);
  EXPECT_NE(learned.learned, Bytes{});
  // A value set by a user does not count as learned.
  requested.request.given = requested.request.learned;
  EXPECT_EQ(requested().learned, Bytes{});
  EXPECT_EQ(requested().peak.upper_bound, learned.peak.upper_bound);
  requested.request.learned.shortfall = 3_GiB;
  EXPECT_EQ(requested().learned, 3_GiB);
}

TEST(EstimateMemory, AWildCorrectionIsReinedIn) {
  OriginalRequest requested = dlrm(Interaction::kCat);
  const Bytes plain = requested().breakdown.activations;
  requested.request.learned.peak_correction = 1000;
  EXPECT_EQ(requested().breakdown.activations, 4 * plain);
  requested.request.learned.peak_correction = -1;
  EXPECT_EQ(requested().breakdown.activations, Bytes::ceil(static_cast<double>(plain.count) * 0.5));
  requested.request.learned.peak_correction = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(requested().breakdown.activations, plain);
}

// AMP, Finding 12: from 1.5 to 2 GB per trainer, up to a constant limit.
TEST(EstimateMemory, CommunicationGrowsWithinItsLimit) {
  EXPECT_EQ(communication_bytes(1).count, 0);
  EXPECT_EQ(communication_bytes(2), 1536_MiB);
  EXPECT_EQ(communication_bytes(16), 1536_MiB + 256_MiB);  // halfway, for 16 = sqrt(2 * 128)
  EXPECT_EQ(communication_bytes(128), 2_GiB);
  EXPECT_EQ(communication_bytes(100'000), 2_GiB);
  for (std::int64_t n = 1; n < 200; ++n) {
    EXPECT_LE(communication_bytes(n), communication_bytes(n + 1)) << n;
  }
}

TEST(EstimateMemory, SumsExactlyWhateverIsAsked) {
  for (const auto method : {Method::kPlimsoll, Method::kAmp}) {
    for (const auto interaction : {Interaction::kDot, Interaction::kCat, Interaction::kDCN}) {
      for (const auto precision : {Precision::kFP32, Precision::kTF32, Precision::kBF16Mixed,
                                   Precision::kFP16Mixed, Precision::kBF16}) {
        for (const auto checkpointing : {ActivationCheckpointing::kNone, ActivationCheckpointing::kSelective,
                                         ActivationCheckpointing::kFull}) {
          for (const auto strategy :
               {ParallelStrategy::kAuto, ParallelStrategy::kDDP, ParallelStrategy::kFSDP,
                ParallelStrategy::kZeRO1, ParallelStrategy::kZeRO2, ParallelStrategy::kZeRO3}) {
            for (const std::int64_t trainers : {1, 7, 64}) {
              OriginalRequest requested = dlrm(interaction);
              requested.training.precision = precision;
              requested.training.activation_checkpointing = checkpointing;
              requested.training.parallelism.strategy = strategy;
              requested.request.trainers = trainers;
              requested.request.method = method;
              requested.request.embedding_bytes = 3_GiB;
              const Estimate estimate = requested();
              ASSERT_EQ(estimate.peak.upper_bound, estimate.breakdown.total());
              ASSERT_LE(estimate.peak.allocated, estimate.peak.reserved);
              ASSERT_LE(estimate.peak.reserved, estimate.peak.upper_bound);
              ASSERT_GT(estimate.peak.allocated, 3_GiB);
              ASSERT_GE(estimate.breakdown.activations.count, 0);
              ASSERT_GE(estimate.breakdown.temporaries.count, 0);
            }
          }
        }
      }
    }
  }
}

// The tensors of more samples, or of more trainers under data parallelism, never take less memory. The cached
// memory of the allocator may shrink, in PyTorch as in its replay: a size that splits well leaves fewer gaps.
TEST(EstimateMemory, GrowsWithTheBatchAndTheTrainers) {
  const std::uint32_t seed = plimsoll::testing::random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 300; ++round) {
    OriginalRequest requested = dlrm(static_cast<Interaction>(below(3)));
    requested.dlrm().tables = {{.name = "a", .count = 1 + below(30), .rows = 10, .dim = 1 + below(300)},
                               {.name = "b", .count = 1 + below(30), .rows = 10, .dim = 128}};
    requested.training.optimizer = static_cast<Optimizer>(below(8));
    requested.training.precision = static_cast<Precision>(below(5));
    requested.training.activation_checkpointing = static_cast<ActivationCheckpointing>(below(3));
    requested.training.batch_size_per_trainer = 1 + below(10'000);
    requested.request.trainers = 1 + below(200);
    requested.request.method = below(4) == 0 ? Method::kAmp : Method::kPlimsoll;
    const Peak before = requested().peak;
    requested.training.batch_size_per_trainer += 1 + below(1000);
    const Peak larger = requested().peak;
    requested.request.trainers += 1 + below(100);
    const Peak wider = requested().peak;
    for (const auto& [less, more] : {std::pair(before, larger), std::pair(larger, wider)}) {
      ASSERT_LE(less.allocated, more.allocated);
      ASSERT_LE(less.upper_bound.count, more.upper_bound.count + more.upper_bound.count / 8);
    }
  }
}

TEST(EstimateMemory, DataParallelismTakesBuckets) {
  OriginalRequest requested = dlrm(Interaction::kDot);
  requested.training.parallelism.strategy = ParallelStrategy::kAuto;
  EXPECT_EQ(requested().breakdown.ddp_buckets.count, 0);
  requested.request.trainers = 2;
  const Estimate two = requested();
  EXPECT_EQ(two.breakdown.ddp_buckets, two.breakdown.parameters);
  requested.training.parallelism.strategy = ParallelStrategy::kDDP;
  requested.request.trainers = 1;  // selected explicitly, the wrapper is used even with one trainer
  EXPECT_EQ(requested().breakdown.ddp_buckets, two.breakdown.ddp_buckets);
}

TEST(EstimateMemory, ShardingDividesWhatItSaysItDivides) {
  OriginalRequest requested = dlrm(Interaction::kDot);
  requested.training.optimizer = Optimizer::kAdam;
  requested.training.batch_size_per_trainer = 1;
  requested.request.device = Device::kCpu;
  requested.request.trainers = 8;
  const std::int64_t whole = requested().dense_parameters.count;
  const auto about = [](std::int64_t bytes, std::int64_t expected) {
    return std::abs(bytes - expected) <= 1000;  // each tensor's share is rounded up
  };
  // Owners get whole parameters, so the largest share is at least an eighth.
  requested.training.parallelism.strategy = ParallelStrategy::kZeRO1;
  const Estimate owner = requested();
  EXPECT_GE(owner.breakdown.optimizer_state.count, 2 * whole / 8);
  EXPECT_LT(owner.breakdown.optimizer_state.count, 2 * whole);
  EXPECT_EQ(owner.allocated_by_rank.size(), 8U);
  EXPECT_EQ(owner.breakdown.parameters.count, whole);
  EXPECT_EQ(owner.breakdown.ddp_buckets.count, whole);
  requested.training.parallelism.strategy = ParallelStrategy::kZeRO2;
  EXPECT_TRUE(about(requested().breakdown.optimizer_state.count, 2 * whole / 8));
  EXPECT_TRUE(about(requested().breakdown.parameters.count, whole + whole / 8)) << "DeepSpeed updates a copy";
  EXPECT_EQ(requested().breakdown.ddp_buckets.count, 500'000'000 * 4) << "DeepSpeed's bucket";
  // One gradient is whole until its owner has it; 1024 x 1024 is the largest.
  EXPECT_LE(requested().breakdown.gradients.count, whole / 8 + 1024 * 1024 * 4 + 1000);
  requested.training.parallelism.strategy = ParallelStrategy::kFSDP;
  EXPECT_TRUE(about(requested().breakdown.parameters.count, whole / 8));
  EXPECT_TRUE(about(requested().breakdown.optimizer_state.count, 2 * whole / 8));
  requested.training.parallelism.strategy = ParallelStrategy::kZeRO3;
  EXPECT_GE(requested().breakdown.parameters.count, 2 * whole / 8)
      << "and parameters of up to 100,000 elements";
  EXPECT_TRUE(about(requested().breakdown.optimizer_state.count, 2 * whole / 8));
}

TEST(EstimateMemory, PrecisionChangesWhatItStores) {
  OriginalRequest requested = dlrm(Interaction::kDot);
  const Estimate fp32 = requested();
  requested.training.precision = Precision::kTF32;
  EXPECT_EQ(requested().peak.upper_bound, fp32.peak.upper_bound);
  requested.training.precision = Precision::kBF16Mixed;
  const Estimate mixed = requested();
  EXPECT_EQ(mixed.breakdown.parameters, fp32.breakdown.parameters);
  EXPECT_LT(mixed.peak.upper_bound, fp32.peak.upper_bound);
  requested.training.precision = Precision::kFP16Mixed;
  EXPECT_EQ(requested().peak.upper_bound, mixed.peak.upper_bound);
  requested.training.precision = Precision::kBF16;
  const Estimate bf16 = requested();
  EXPECT_LT(bf16.peak.upper_bound, mixed.peak.upper_bound);
  EXPECT_LE(2 * bf16.breakdown.parameters, fp32.breakdown.parameters + 64_KiB);
}

// Mixed precision, with a batch so small that only weights matter: at the peak there are also the 16-bit
// copies of the weights (2 B per parameter) that backward has not used yet.
TEST(EstimateMemory, AutocastKeepsHalfCopiesOfTheWeights) {
  OriginalRequest requested = two_layers(Device::kCpu);
  requested.dlrm().dense_features = 1000;
  requested.dlrm().bottom_mlp = {1000, 1000};
  requested.training.batch_size_per_trainer = 1;
  requested.training.precision = Precision::kBF16Mixed;
  // Backward of the last cast but one, of the first layer's weight: gradients of all parameters but that layer's bias in
  // fp32, and this layer's gradients also in 16 bits.
  const std::int64_t bias = 1000;
  const std::int64_t parameters = 2 * (1000 * 1000 + bias) + 1001;
  const Estimate estimate = requested();
  EXPECT_EQ(estimate.breakdown.gradients.count, 4 * (parameters - bias));
  EXPECT_EQ(estimate.breakdown.temporaries.count, 2 * (1000 * 1000 + bias));
}

TEST(EstimateMemory, FullCheckpointingTakesLessWhereActivationsDecide) {
  OriginalRequest requested = dlrm(Interaction::kDCN);
  requested.training.batch_size_per_trainer = 65536;
  const Bytes none = requested().peak.upper_bound;
  requested.training.activation_checkpointing = ActivationCheckpointing::kFull;
  EXPECT_LT(requested().peak.upper_bound, none);
}

// Batch 100 of the two layers, both blocks checkpointed: forward keeps the tensor between them (6400 B).
// Backward of the top block allocates its gradient (6400 B) and frees the tensor; the bottom block's second
// forward then allocates the results of its layer and its ReLU (2 x 6400 B).
TEST(EstimateMemory, FullCheckpointingByHand) {
  OriginalRequest requested = two_layers(Device::kCpu);
  requested.training.batch_size_per_trainer = 100;
  requested.training.activation_checkpointing = ActivationCheckpointing::kFull;
  const Estimate estimate = requested();
  EXPECT_EQ(estimate.breakdown.activations.count, 2 * 6400);
  EXPECT_EQ(estimate.breakdown.temporaries.count, 6400);
  EXPECT_EQ(estimate.breakdown.gradients.count, 68);
}

// The same, but matrix products are kept: the bottom layer's result (6400 B), which plain autograd would
// free, and the tensor between the blocks (6400 B). The peak is the top's backward: gradients of the logits
// (400 B) and of its input (6400 B). So selective checkpointing increases the memory of an MLP.
TEST(EstimateMemory, SelectiveCheckpointingByHand) {
  OriginalRequest requested = two_layers(Device::kCpu);
  requested.training.batch_size_per_trainer = 100;
  requested.training.activation_checkpointing = ActivationCheckpointing::kSelective;
  const Estimate estimate = requested();
  EXPECT_EQ(estimate.breakdown.activations.count, 2 * 6400);
  EXPECT_EQ(estimate.breakdown.temporaries.count, 6400 + 400);
  EXPECT_EQ(estimate.breakdown.gradients.count, 68);
}

TEST(EstimateMemory, InputsOfThreeBatchesAreInFlightWhereThereAreTables) {
  OriginalRequest requested = dlrm(Interaction::kCat);
  requested.training.batch_size_per_trainer = 1024;
  const std::int64_t sparse = 1024 * (26 * 10 + 26) * 8;  // indices, and an offset per table and sample
  const std::int64_t dense = 1024 * 13 * 4;
  const std::int64_t labels = 1024 * 4;
  EXPECT_EQ(requested().breakdown.inputs.count, 3 * (sparse + dense + labels));
  requested.request.device = Device::kCpu;
  EXPECT_EQ(requested().breakdown.inputs.count, sparse + dense + labels);
}

TEST(EstimateMemory, IdenticalTablesMayBeOneGroupOrMany) {
  OriginalRequest grouped = dlrm(Interaction::kDot);
  grouped.dlrm().tables = {{.name = "t", .count = 40, .rows = 10, .dim = 64}};
  OriginalRequest single = dlrm(Interaction::kDot);
  single.dlrm().tables.clear();
  for (int i = 0; i < 40; ++i) {
    single.dlrm().tables.push_back({.name = "t" + std::to_string(i), .rows = 10, .dim = 64});
  }
  EXPECT_EQ(to_json(grouped().breakdown), to_json(single().breakdown));
}

// Node outputs of the paper's trace that require a gradient: 64 + 64 + 4 B per sample; exactly linear, so ten
// micro-batches predict it. DDP and optimizer are linear in the 644 B of parameters.
TEST(EstimateMemory, AmpByHand) {
  OriginalRequest requested = two_layers(Device::kCuda);
  requested.training.batch_size_per_trainer = 1000;
  requested.training.optimizer = Optimizer::kAdam;
  requested.request.method = Method::kAmp;
  requested.request.trainers = 128;
  const Estimate estimate = requested();
  EXPECT_NEAR(static_cast<double>(estimate.breakdown.activations.count), 132'000, 2);
  EXPECT_EQ(estimate.breakdown.parameters.count, 644);
  EXPECT_EQ(estimate.breakdown.ddp_buckets.count, 644);
  EXPECT_EQ(estimate.breakdown.optimizer_state.count, 2 * 644);
  EXPECT_EQ(estimate.breakdown.communication, 2_GiB);
  EXPECT_EQ(estimate.breakdown.cuda_context, 1463_MiB);
  EXPECT_EQ(estimate.breakdown.workspace.count + estimate.breakdown.allocator_slack.count +
                estimate.breakdown.inputs.count + estimate.breakdown.gradients.count +
                estimate.breakdown.temporaries.count,
            0);
}

TEST(EstimateMemory, AmpAndOursOnADlrm) {
  for (const auto interaction : {Interaction::kDot, Interaction::kCat, Interaction::kDCN}) {
    OriginalRequest requested = dlrm(interaction);
    requested.request.trainers = 16;
    const Estimate ours = requested();
    requested.request.method = Method::kAmp;
    const Estimate amp = requested();
    std::printf("%-3s batch 8192: ours %s allocated, %s at most; AMP %s\n", crds::name_of(interaction),
                to_string(ours.peak.allocated).c_str(), to_string(ours.peak.upper_bound).c_str(),
                to_string(amp.peak.upper_bound).c_str());
    EXPECT_EQ(amp.dense_parameters, ours.dense_parameters);
    EXPECT_NE(amp.peak.upper_bound, ours.peak.upper_bound);
  }
}

TEST(EstimateMemory, AGraphThatWasNotReadSaysSo) {
  OriginalRequest graph;
  graph.model.dlrm.reset();
  graph.model.graph = crds::GraphReference{.config_map_name = "gpt-graph", .key = "graph.json.gz"};
  const Result<Estimate> estimate = graph.result();
  ASSERT_FALSE(estimate.ok());
  EXPECT_EQ(estimate.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(estimate.error().message.find("gpt-graph could not be read"), std::string::npos);
  OriginalRequest empty;
  empty.model.dlrm.reset();
  EXPECT_EQ(empty.result().error().code, ErrorCode::kInvalid);
  EXPECT_EQ(estimate_memory({}).error().code, ErrorCode::kInvalid);
}

TEST(EstimateMemory, RefusesWhatCannotBe) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
  for (const std::int64_t bad : {std::int64_t{0}, std::int64_t{-1}, kMax, kMin}) {
    OriginalRequest requested = dlrm(Interaction::kDot);
    requested.training.batch_size_per_trainer = bad;
    ASSERT_FALSE(requested.result().ok()) << bad;
    EXPECT_EQ(requested.result().error().code, ErrorCode::kInvalid);
    EXPECT_NE(requested.result().error().message.find("batchSizePerTrainer"), std::string::npos);

    requested = dlrm(Interaction::kDot);
    requested.request.trainers = bad;
    ASSERT_FALSE(requested.result().ok()) << bad;
    EXPECT_NE(requested.result().error().message.find("trainers"), std::string::npos);

    requested = dlrm(Interaction::kDot);
    requested.dlrm().top_mlp[0] = bad;
    ASSERT_FALSE(requested.result().ok()) << bad;
    EXPECT_EQ(requested.result().error().code, ErrorCode::kInvalid);
  }
  OriginalRequest requested = dlrm(Interaction::kDot);
  requested.request.embedding_bytes = Bytes{-1};
  EXPECT_FALSE(requested.result().ok());
}

// Dimensions that are valid alone but not together: the result is larger than any GPU, never a small number.
TEST(EstimateMemory, AbsurdSizesDoNotWrap) {
  constexpr std::int64_t kWide = std::int64_t{1} << 32;
  const std::function<void(OriginalRequest&)> cases[] = {
      [](OriginalRequest& a) { a.training.batch_size_per_trainer = kWide; },
      [](OriginalRequest& a) {
        a.dlrm().top_mlp = {kWide, kWide, 1};
      },
      [](OriginalRequest& a) { a.dlrm().tables[0].dim = kWide; },
      [](OriginalRequest& a) {
        a.dlrm().tables[0].count = 99'999;
        a.training.batch_size_per_trainer = 1 << 20;
      },
      [](OriginalRequest& a) {
        a.dlrm().bottom_mlp = {kWide, kWide};
        a.training.batch_size_per_trainer = kWide;
      },
      [](OriginalRequest& a) { a.dlrm().tables[0].pooling_factor = 1e12; },
  };
  for (const auto method : {Method::kPlimsoll, Method::kAmp}) {
    for (const auto interaction : {Interaction::kDot, Interaction::kDCN}) {
      for (std::size_t i = 0; i < std::size(cases); ++i) {
        OriginalRequest requested = dlrm(interaction);
        requested.request.method = method;
        requested.request.embedding_bytes = Bytes::max();
        cases[i](requested);
        const Result<Estimate> estimate = requested.result();
        if (estimate) {
          EXPECT_EQ(estimate->peak.upper_bound, Bytes::max()) << i;
          EXPECT_EQ(estimate->peak.upper_bound, estimate->breakdown.total()) << i;
        } else {
          EXPECT_EQ(estimate.error().code, ErrorCode::kInvalid) << i;
        }
        requested.request.embedding_bytes = Bytes{};
        const Result<Estimate> reserved = requested.result();
        if (reserved) {
          EXPECT_GT(reserved->peak.upper_bound, 1024_GiB) << i;
        }
      }
    }
  }
}

// It runs several times inside an admission. The time is printed but not asserted.
TEST(EstimateMemory, ModelAIsCheap) {
  OriginalRequest requested = model_a();
  constexpr int kRounds = 200;
  for (const auto method : {Method::kPlimsoll, Method::kAmp}) {
    requested.request.method = method;
    const auto begin = std::chrono::steady_clock::now();
    Bytes last;
    for (int i = 0; i < kRounds; ++i) {
      requested.request.trainers = 1 + i;
      last = requested().peak.upper_bound;
    }
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    std::printf("2190 tables, method %s: %.1f us an estimate\n", method == Method::kAmp ? "amp" : "plimsoll",
                took.count() / kRounds);
    EXPECT_GT(last, 2_GiB);
  }
}

}  // namespace
}  // namespace plimsoll::estimator
