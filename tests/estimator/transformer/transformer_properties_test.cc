// Properties of every transformer and training configuration: sums, monotonicity, sharding and checkpointing
// do not increase memory, errors name the field. Random cases print their seed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "estimator/estimate/estimate.h"
#include "estimator/estimate/spec_run.h"
#include "estimator/spec/transformer_spec.h"
#include "estimator/transformer/transformer.h"
#include "tests/estimator/recorded_ledger.h"
#include "tests/testing/random_seed.h"

namespace plimsoll::estimator {
namespace {

using crds::ActivationCheckpointing;
using crds::ParallelStrategy;
using ::testing::HasSubstr;

crds::TransformerModel small() {
  crds::TransformerModel model;
  model.layers = 4;
  model.hidden = 128;
  model.heads = 8;
  model.kv_heads = 4;
  model.ffn = 256;
  model.vocab = 512;
  model.sequence_length = 64;
  return model;
}

struct Job {
  crds::ModelSpec model;
  crds::TrainingSpec training;
  std::int64_t trainers = 1;
  Device device = Device::kCpu;

  Result<Estimate> result() const {
    return estimate_memory({.model = &model, .training = &training, .trainers = trainers, .device = device});
  }
  Estimate operator()() const {
    const Result<Estimate> estimate = result();
    EXPECT_TRUE(estimate.ok()) << to_string(estimate.error());
    return estimate.ok() ? *estimate : Estimate{};
  }
};

Job job_of(const crds::TransformerModel& model, std::int64_t batch = 4) {
  Job job;
  job.model.transformer = model;
  job.training.batch_size_per_trainer = batch;
  return job;
}

Job random_job(std::mt19937& random) {
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(n));
  };
  crds::TransformerModel model = small();
  model.layers = 1 + below(6);
  model.norm = static_cast<crds::Normalization>(below(2));
  model.activation = static_cast<crds::FeedForward>(below(4));
  model.positions = static_cast<crds::PositionEncoding>(below(3));
  model.attention = static_cast<crds::AttentionKind>(below(3));
  model.architecture = static_cast<crds::TransformerArchitecture>(below(3));
  model.experts = below(3) == 0 ? 4 : 0;
  model.experts_per_token = model.experts > 0 ? 2 : 0;
  model.biases = below(2) == 0;
  model.tied_embeddings = below(2) == 0;
  model.dropout = below(2) == 0 ? 0.1 : 0;
  Job job = job_of(model, 1 + below(8));
  job.training.precision = static_cast<crds::Precision>(below(5));
  constexpr crds::Optimizer kOptimizers[] = {crds::Optimizer::kSGD, crds::Optimizer::kAdamW,
                                             crds::Optimizer::kAdagrad, crds::Optimizer::kAdafactor,
                                             crds::Optimizer::kAdam8bit};
  job.training.optimizer = kOptimizers[below(5)];
  job.training.activation_checkpointing = static_cast<ActivationCheckpointing>(below(3));
  job.training.parallelism.strategy = static_cast<ParallelStrategy>(below(7));
  if (job.training.parallelism.strategy == ParallelStrategy::kFSDP2 &&
      job.training.optimizer == crds::Optimizer::kAdam8bit) {  // cannot be combined
    job.training.optimizer = crds::Optimizer::kRAdam;
  }
  job.trainers = 1 + below(8);
  job.device = below(2) == 0 ? Device::kCpu : Device::kCuda;
  return job;
}

TEST(TransformerProperties, MoreSamplesTakeMoreAndTheBreakdownSumsUp) {
  const std::uint32_t seed = plimsoll::testing::random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 60; ++i) {
    Job job = random_job(random);
    const Estimate before = job();
    EXPECT_EQ(before.breakdown.total(), before.peak.upper_bound);
    job.training.batch_size_per_trainer += 1;
    const Estimate after = job();
    ASSERT_LE(before.peak.allocated, after.peak.allocated);
    job.model.transformer->sequence_length *= 2;
    ASSERT_LE(after.peak.allocated, job().peak.allocated);
  }
}

// Parameters, gradients and state before the step, which ZeRO's stages shard.
std::int64_t held_before_the_step(const Job& job) {
  const Result<SpecRun> run = run_spec(
      {.model = &job.model, .training = &job.training, .trainers = job.trainers, .device = job.device});
  EXPECT_TRUE(run.ok());
  Bytes held;
  for (std::size_t i = 0; i < run->heaviest.begin_of(Phase::kOptimizerStep); ++i) {
    const MemoryEvent& event = run->heaviest.events()[i];
    const Ledger::Block& block = run->heaviest.blocks()[static_cast<std::size_t>(event.block)];
    if (block.part == Part::kParameters || block.part == Part::kGradients ||
        block.part == Part::kOptimizerState) {
      held = event.kind == MemoryEvent::Kind::kAllocate ? held + block.bytes : held - block.bytes;
    }
  }
  return held.count;
}

TEST(TransformerProperties, EachStageOfZeROHoldsNoMoreThanTheOneBefore) {
  for (const auto precision : {crds::Precision::kFP32, crds::Precision::kBF16Mixed}) {
    for (const std::int64_t trainers : {2, 3, 8, 64}) {
      crds::TransformerModel model = small();
      model.hidden = 1024;  // ZeRO-3 keeps small parameters whole
      model.ffn = 4096;
      Job job = job_of(model, 1);
      job.trainers = trainers;
      job.training.precision = precision;
      std::int64_t least = std::numeric_limits<std::int64_t>::max();
      for (const auto strategy :
           {ParallelStrategy::kZeRO1, ParallelStrategy::kZeRO2, ParallelStrategy::kZeRO3}) {
        job.training.parallelism.strategy = strategy;
        const std::int64_t held = held_before_the_step(job);
        EXPECT_LE(held, least) << crds::name_of(strategy) << " on " << trainers;
        least = held;
      }
    }
  }
}

// Layers after the second are copies of it; with checkpointing by name each of them is lowered separately.
TEST(TransformerProperties, CopiedLayersAreAsLoweredOnes) {
  for (const std::int64_t experts : {0, 4}) {
    crds::TransformerModel model = small();
    model.layers = 7;
    model.experts = experts;
    model.experts_per_token = experts > 0 ? 2 : 0;
    model.attention = crds::AttentionKind::kEager;
    Job copied = job_of(model);
    copied.training.activation_checkpointing = ActivationCheckpointing::kFull;
    copied.training.precision = crds::Precision::kBF16Mixed;
    copied.training.parallelism.strategy = ParallelStrategy::kFSDP2;
    copied.trainers = 3;
    Job lowered = copied;
    lowered.training.activation_checkpointing = ActivationCheckpointing::kPerModule;
    lowered.training.checkpoint_modules = {"layers.*"};
    EXPECT_EQ(copied().breakdown.total(), lowered().breakdown.total());
    EXPECT_EQ(copied().peak.allocated, lowered().peak.allocated);
    const Result<TransformerSpec> spec = transformer_spec(model);
    const Result<ForwardGraph> one = lower_transformer(*spec, copied.training, {});
    const Result<ForwardGraph> other = lower_transformer(*spec, lowered.training, {});
    ASSERT_EQ(one->op_count(), other->op_count());
    ASSERT_EQ(one->tensors().size(), other->tensors().size());
    for (TensorId id = 0; id < static_cast<TensorId>(one->tensors().size()); ++id) {
      ASSERT_EQ(one->name_of(id), other->name_of(id));
      ASSERT_EQ(one->tensor(id).storage, other->tensor(id).storage);
      ASSERT_EQ(one->tensor(id).unit, other->tensor(id).unit);
      ASSERT_EQ(one->bytes(id, 3), other->bytes(id, 3));
    }
    for (std::int32_t i = 0; i < one->op_count(); ++i) {
      ASSERT_EQ(one->op(i).block, other->op(i).block);
      ASSERT_TRUE(std::ranges::equal(one->op(i).inputs, other->op(i).inputs));
      ASSERT_TRUE(std::ranges::equal(one->op(i).outputs, other->op(i).outputs));
    }
  }
}

TEST(TransformerProperties, TheLargestAtThePeakHaveNames) {
  crds::TransformerModel model = small();
  model.layers = 5;
  model.vocab = 20000;
  Job job = job_of(model);
  const std::vector<LiveTensor> largest = job().largest_live;
  ASSERT_EQ(largest.size(), 10U);
  for (std::size_t i = 0; i < largest.size(); ++i) {
    EXPECT_FALSE(largest[i].name.empty()) << i;
    EXPECT_FALSE(largest[i].kind.empty()) << i;
    EXPECT_LE(largest[i].bytes, largest[i == 0 ? 0 : i - 1].bytes);
  }
  EXPECT_EQ(largest.front().bytes, Bytes{20000 * 64 * 4 * 4}) << "of logits' size";
  EXPECT_NE(largest.front().name.find("loss"), std::string::npos) << largest.front().name;
}

// Regression: the name was "layers.1gs.cast", the name of the embeddings' copy, cut at the layer's name
// length.
TEST(TransformerProperties, TheCastOfWhatComesIntoACopiedLayerIsNamedAfterTheLayer) {
  crds::TransformerModel model = small();
  model.layers = 2;
  model.hidden = 64;
  model.ffn = 128;
  model.sequence_length = 512;
  Job job = job_of(model);
  job.training.precision = crds::Precision::kBF16;
  std::vector<std::string> names;
  for (const LiveTensor& tensor : job().largest_live) {
    names.push_back(tensor.name);
  }
  EXPECT_THAT(names, ::testing::Contains("layers.1.cast"));
  EXPECT_THAT(names, ::testing::Each(::testing::Not(HasSubstr("layers.1gs"))));
}

// arXiv 1910.02054, figure 1: 7.5 billion parameters, 64 trainers, half precision with Adam: 120
// GB, 31.4, 16.6 and 1.9 GB of parameters, gradients and state.
TEST(TransformerProperties, ZeROHoldsWhatItsPaperSays) {
  crds::TransformerModel model = small();
  model.layers = 66;
  model.hidden = 3072;
  model.heads = 32;
  model.kv_heads = 0;
  model.ffn = 12288;
  model.vocab = 32;
  model.sequence_length = 1;
  model.activation = crds::FeedForward::kGELU;
  Job job = job_of(model, 1);
  job.trainers = 64;
  job.training.precision = crds::Precision::kFP16Mixed;
  const auto parameters = static_cast<double>(job().dense_parameters.count) / 4;  // fp32
  EXPECT_NEAR(parameters, 7.5e9, 0.03e9);
  const std::pair<ParallelStrategy, double> paper[] = {{ParallelStrategy::kZeRO1, 2 + 2 + 12.0 / 64},
                                                       {ParallelStrategy::kZeRO2, 2 + 14.0 / 64},
                                                       {ParallelStrategy::kZeRO3, 16.0 / 64},
                                                       // megatron/training/theoretical_memory_usage.py
                                                       {ParallelStrategy::kMegatron, 6 + 12.0 / 64}};
  for (const auto& [strategy, bytes_a_parameter] : paper) {
    job.training.parallelism.strategy = strategy;
    const auto held = static_cast<double>(held_before_the_step(job));
    EXPECT_NEAR(held, bytes_a_parameter * parameters, 0.001 * bytes_a_parameter * parameters)
        << crds::name_of(strategy);
  }
}

// Bytes live at the end of forward, without what is always live.
Bytes kept_by_forward(const ForwardGraph& graph, const crds::TrainingSpec& training) {
  const Ledger ledger = testing::ledger_of(graph, training, Device::kCpu);
  Bytes live;
  for (std::size_t i = ledger.begin_of_iteration(); i < ledger.begin_of(Phase::kBackward); ++i) {
    const MemoryEvent& event = ledger.events()[i];
    const Bytes bytes =
        event.block < 0 ? Bytes{} : ledger.blocks()[static_cast<std::size_t>(event.block)].bytes;
    live += event.kind == MemoryEvent::Kind::kAllocate  ? bytes
            : event.kind == MemoryEvent::Kind::kRelease ? Bytes{} - bytes
                                                        : Bytes{};
  }
  return live;
}

TEST(TransformerProperties, CheckpointingNeverRaisesWhatForwardKeeps) {
  for (const auto attention : {crds::AttentionKind::kEager, crds::AttentionKind::kSDPA}) {
    crds::TransformerModel model = small();
    model.attention = attention;
    const Result<TransformerSpec> spec = transformer_spec(model);
    ASSERT_TRUE(spec.ok());
    crds::TrainingSpec training;
    training.batch_size_per_trainer = 4;
    const auto kept = [&] {
      const Result<ForwardGraph> graph = lower_transformer(*spec, training, {});
      EXPECT_TRUE(graph.ok());
      return kept_by_forward(*graph, training).count;
    };
    const std::int64_t none = kept();
    training.activation_checkpointing = ActivationCheckpointing::kSelective;
    const std::int64_t selective = kept();
    training.activation_checkpointing = ActivationCheckpointing::kSelectiveHalf;
    const std::int64_t half = kept();
    training.activation_checkpointing = ActivationCheckpointing::kFull;
    const std::int64_t full = kept();
    training.activation_checkpointing = ActivationCheckpointing::kPerModule;
    training.checkpoint_modules = {"layers.*.mlp"};
    const std::int64_t mlp = kept();
    EXPECT_LT(full, half);
    EXPECT_LT(half, selective);
    EXPECT_LT(selective, none);
    EXPECT_LT(mlp, none);
    EXPECT_GT(mlp, full);
  }
}

// Korthikanti et al., arXiv 2205.05198, equation 1: a layer of GPT in 16 bits keeps sbh(34 + 5as/h) bytes,
// with t-way tensor parallelism sbh(10 + 24/t + 5as/(ht)), with sequence parallelism all of it over t.
// Megatron-LM's fused layer norm and GELU save the same as here. The formula has only layers, so two numbers
// of layers are subtracted.
std::int64_t kept_by_a_layer(std::int64_t tensor, bool sequence,
                             crds::AttentionKind attention = crds::AttentionKind::kEager,
                             ActivationCheckpointing checkpointing = ActivationCheckpointing::kNone) {
  crds::TransformerModel model = small();
  model.hidden = 512;
  model.kv_heads = 0;
  model.ffn = 2048;
  model.sequence_length = 256;
  model.norm = crds::Normalization::kLayerNorm;
  model.activation = crds::FeedForward::kGELU;
  model.positions = crds::PositionEncoding::kLearned;
  model.attention = attention;
  model.dropout = 0.1;
  crds::TrainingSpec training;
  training.batch_size_per_trainer = 2;
  training.precision = crds::Precision::kBF16;
  training.activation_checkpointing = checkpointing;
  const auto kept = [&](std::int64_t layers) {
    model.layers = layers;
    const Result<TransformerSpec> spec = transformer_spec(model);
    const Result<ForwardGraph> graph =
        lower_transformer(*spec, training, {.tensor = tensor, .sequence = sequence});
    EXPECT_TRUE(graph.ok());
    const Ledger ledger = testing::ledger_of(*graph, training);
    Bytes live;
    for (std::size_t i = 0; i < ledger.begin_of(Phase::kBackward); ++i) {
      const MemoryEvent& event = ledger.events()[i];
      const Ledger::Block& block = ledger.blocks()[static_cast<std::size_t>(event.block)];
      if (block.part == Part::kActivations) {
        live = event.kind == MemoryEvent::Kind::kAllocate ? live + block.bytes : live - block.bytes;
      }
    }
    return live.count;
  };
  return kept(3) - kept(2);
}

TEST(TransformerProperties, ALayerKeepsWhatMegatronsFormulaSays) {
  constexpr double kS = 256, kB = 2, kH = 512, kA = 8;
  const double unit = kS * kB * kH;
  for (const double t : {1.0, 2.0, 4.0}) {
    const double scores = 5 * kA * kS / kH / t;
    // Eager attention computes and saves its softmax in fp32, and dropout's result: 2 + 2 + 1 bytes per score
    // become 4 + 2 + 1. Queries, keys and values are copied by head and saved, with as many bytes.
    const double expected = unit * (10 + 24 / t + scores * 7 / 5);
    const auto tensor = static_cast<double>(kept_by_a_layer(static_cast<std::int64_t>(t), false));
    EXPECT_NEAR(tensor, expected, 0.03 * expected) << t;
    // Table 2 of the paper. With sequence parallelism everything is split; but Megatron-LM gathers the inputs
    // of attention and of the feed-forward part again in backward, while PyTorch saves them: 2 + 2 bytes.
    const double gathered = 4 * (1 - 1 / t);
    const double divided = unit * (34 / t + gathered + scores * 7 / 5);
    const auto sequence = static_cast<double>(kept_by_a_layer(static_cast<std::int64_t>(t), true));
    EXPECT_NEAR(sequence, divided, 0.03 * divided) << t;
    // Selective recomputation recomputes attention's scores, as a fused kernel does: 34 sbh / t. The kernel
    // also saves 4 bytes per row and head.
    const double fused = unit * (34 / t + gathered) + kS * kB * kA * 4 / t;
    const auto by_kernel =
        static_cast<double>(kept_by_a_layer(static_cast<std::int64_t>(t), true, crds::AttentionKind::kSDPA));
    EXPECT_NEAR(by_kernel, fused, 0.03 * fused) << t;
    // Full recomputation saves the input of a layer: 2 sbh, split if the tokens are split.
    for (const bool divides : {false, true}) {
      const double entering = divides ? unit * 2 / t : unit * 2;
      EXPECT_EQ(
          static_cast<double>(kept_by_a_layer(static_cast<std::int64_t>(t), divides,
                                              crds::AttentionKind::kSDPA, ActivationCheckpointing::kFull)),
          entering)
          << t;
    }
  }
}

TEST(TransformerProperties, APipelinesStagesAreToldApart) {
  Job job = job_of(small(), 8);
  job.trainers = 4;
  job.training.gradient_accumulation = 8;
  job.training.parallelism.pipeline = 4;
  const Estimate estimate = job();
  ASSERT_EQ(estimate.allocated_by_rank.size(), 4U);
  EXPECT_EQ(*std::max_element(estimate.allocated_by_rank.begin(), estimate.allocated_by_rank.end()),
            estimate.peak.allocated);
  EXPECT_GT(estimate.allocated_by_rank[1], estimate.allocated_by_rank[2])
      << "earlier stages hold more micro-batches";
}

TEST(TransformerProperties, AccumulationTakesLessThanTheWholeBatchAndMoreThanAPart) {
  Job job = job_of(small(), 8);
  const Bytes whole = job().peak.allocated;
  job.training.gradient_accumulation = 8;
  const Bytes parts = job().peak.allocated;
  job.training.gradient_accumulation = 1;
  job.training.batch_size_per_trainer = 1;
  EXPECT_LT(parts, whole);
  EXPECT_GT(parts, job().peak.allocated);
}

TEST(TransformerProperties, WhatCannotBeIsNamed) {
  const auto refused = [](auto change, const char* field) {
    Job job = job_of(small());
    change(job);
    const Result<Estimate> estimate = job.result();
    ASSERT_FALSE(estimate.ok()) << field;
    EXPECT_EQ(estimate.error().code, ErrorCode::kInvalid) << field;
    EXPECT_THAT(estimate.error().message, HasSubstr(field));
  };
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t bad :
       {std::int64_t{0}, std::int64_t{-1}, kHuge, std::numeric_limits<std::int64_t>::min()}) {
    refused([&](Job& job) { job.model.transformer->layers = bad; }, "layers");
    refused([&](Job& job) { job.model.transformer->heads = bad; }, "heads");
    refused([&](Job& job) { job.model.transformer->ffn = bad; }, "ffn");
    refused([&](Job& job) { job.model.transformer->vocab = bad; }, "vocab");
    refused([&](Job& job) { job.model.transformer->sequence_length = bad; }, "seqLen");
    refused([&](Job& job) { job.training.parallelism.tensor = bad; }, "parallelism.tensor");
    refused([&](Job& job) { job.training.parallelism.pipeline = bad; }, "parallelism.pipeline");
    refused([&](Job& job) { job.training.parallelism.expert = bad; }, "parallelism.expert");
    refused([&](Job& job) { job.training.gradient_accumulation = bad; }, "gradientAccumulation");
  }
  refused([](Job& job) { job.model.transformer->hidden = -128; }, "hidden");
  refused([](Job& job) { job.model.transformer->hidden = 100; }, "hidden");
  refused([](Job& job) { job.model.transformer->kv_heads = 16; }, "kvHeads");
  refused([](Job& job) { job.model.transformer->kv_heads = 3; }, "kvHeads");
  refused([](Job& job) { job.model.transformer->experts_per_token = 2; }, "expertsPerToken");
  refused([](Job& job) { job.model.transformer->dropout = 1; }, "dropout");
  refused([](Job& job) { job.training.parallelism.tensor = 2; }, "trainers");
  refused(
      [](Job& job) {
        job.trainers = 3;
        job.training.parallelism.tensor = 3;
      },
      "heads");
  refused(
      [](Job& job) {
        job.trainers = 8;
        job.training.parallelism.pipeline = 8;
      },
      "layers");
  refused(
      [](Job& job) {
        job.training.activation_checkpointing = ActivationCheckpointing::kPerModule;
        job.training.checkpoint_modules = {"layers.0", "blocks.*"};
      },
      "blocks.*");
}

// Any text and any mutation of a config gives a result or an error, never a crash.
TEST(TransformerProperties, MutatedConfigsAreAnsweredOrRefused) {
  const std::uint32_t seed = plimsoll::testing::random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::string configs[] = {
      R"({"model_type":"mixtral","hidden_size":64,"intermediate_size":96,"num_attention_heads":4,)"
      R"("num_hidden_layers":2,"num_key_value_heads":2,"num_local_experts":4,"num_experts_per_tok":2,"vocab_size":99})",
      R"({"model_type":"deepseek_v2","hidden_size":64,"intermediate_size":96,"num_attention_heads":4,)"
      R"("num_hidden_layers":2,"kv_lora_rank":16,"qk_nope_head_dim":8,"qk_rope_head_dim":4,"v_head_dim":8,)"
      R"("n_routed_experts":4,"num_experts_per_tok":2,"moe_intermediate_size":32,"n_shared_experts":1,"vocab_size":99})",
      R"({"model_type":"t5","d_model":64,"d_kv":16,"d_ff":96,"num_layers":2,"num_heads":4,"vocab_size":99})"};
  for (int i = 0; i < 3000; ++i) {
    std::string config = configs[random() % 3];
    for (std::uint32_t changes = 1 + random() % 3; changes > 0; --changes) {
      const std::size_t at = random() % config.size();
      switch (random() % 4) {
        case 0: config[at] = static_cast<char>('0' + random() % 10); break;
        case 1: config.erase(at, 1 + random() % 4); break;
        case 2: config.insert(at, std::to_string(random())); break;
        default: config[at] = static_cast<char>(random() % 256); break;
      }
    }
    crds::TransformerModel model;
    model.config = config;
    model.sequence_length = 16;
    const Result<TransformerSpec> spec = transformer_spec(model);
    if (spec && spec->layers <= 64 && spec->encoder_layers <= 64) {
      Job job = job_of(model, 2);
      const Result<Estimate> estimate = job.result();
      EXPECT_TRUE(!estimate.ok() || estimate->peak.allocated.count > 0) << config;
    }
  }
}

}  // namespace
}  // namespace plimsoll::estimator
