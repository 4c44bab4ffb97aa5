// Properties of every recommender spec and exported graph: more samples need more memory, the breakdown adds
// up, checkpointing and each stage of ZeRO do not increase memory, views need none, the allocator reserves at
// least what is allocated, and invalid input gives an error that says so. Random cases print their seed.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "estimator/catalog/gpu_catalog.h"
#include "estimator/estimate/estimate.h"
#include "estimator/estimate/ranks.h"
#include "estimator/estimate/spec_run.h"
#include "estimator/spec/dlrm.h"
#include "tests/estimator/dice.h"
#include "tests/estimator/graph_files.h"
#include "tests/estimator/recorded_ledger.h"
#include "tests/testing/random_seed.h"

namespace plimsoll::estimator {
namespace {

using crds::ActivationCheckpointing;
using crds::DhenModule;
using crds::Interaction;
using crds::ParallelStrategy;
using testing::Dice;
using testing::gpt;

crds::DlrmModel random_model(Dice& dice) {
  crds::DlrmModel model;
  model.bottom_mlp = {64, 32};
  model.top_mlp = {64, 1};
  model.interaction = static_cast<Interaction>(dice.below(5));
  const bool crosses = model.interaction == Interaction::kDCN || model.interaction == Interaction::kDCNv1;
  model.cross_layers = crosses ? 1 + dice.below(3) : 0;
  model.cross_rank = dice.coin() ? 16 : 0;
  if (model.interaction == Interaction::kDHEN) {
    model.dhen = crds::DhenStack{
        .layers = 1 + dice.below(3), .features = 1 + dice.below(9), .modules = {}, .heads = 4};
    do {
      model.dhen->modules.push_back(static_cast<DhenModule>(dice.below(4)));
    } while (dice.coin());
  }
  for (std::int64_t i = dice.below(5); i >= 0; --i) {
    model.tables.push_back({.name = "t" + std::to_string(i),
                            .count = 1 + dice.below(9),
                            .rows = 10,
                            .dim = dice.coin() ? 32 : 8 * (1 + dice.below(8)),
                            .pooling_factor = static_cast<double>(1 + dice.below(20)),
                            .sequence_length = dice.below(3) == 0 ? 20 : 0});
  }
  return model;
}

crds::TrainingSpec random_training(Dice& dice) {
  crds::TrainingSpec training;
  training.batch_size_per_trainer = 1 + dice.below(3000);
  training.precision = static_cast<crds::Precision>(dice.below(5));
  training.optimizer = static_cast<crds::Optimizer>(dice.below(10));
  training.activation_checkpointing = static_cast<ActivationCheckpointing>(dice.below(3));
  training.parallelism.strategy = static_cast<ParallelStrategy>(dice.below(7));
  return training;
}

TEST(SpecProperties, MoreSamplesTakeMoreAndAllSumsUp) {
  const std::uint32_t seed = plimsoll::testing::random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Dice dice(seed);
  const GpuCatalog catalog = GpuCatalog::built_in();
  for (int i = 0; i < 300; ++i) {
    crds::ModelSpec model;
    model.dlrm = random_model(dice);
    crds::TrainingSpec training = random_training(dice);
    EstimateRequest request{.model = &model, .training = &training};
    request.gpu = dice.coin() ? catalog.find("A100-80GB") : nullptr;
    request.device = request.gpu == nullptr ? Device::kCpu : Device::kCuda;
    request.trainers = 1 + dice.below(9);
    const Result<Estimate> before = estimate_memory(request);
    if (!before && training.optimizer == crds::Optimizer::kAdam8bit) {
      EXPECT_EQ(before.error().code, ErrorCode::kUnsupported);  // DTensors, and DeepSpeed's flat buffers
      continue;
    }
    ASSERT_TRUE(before.ok()) << to_string(before.error());
    ASSERT_EQ(before->breakdown.total(), before->peak.upper_bound);
    ASSERT_LE(before->peak.allocated, before->peak.reserved);
    ASSERT_LE(before->peak.reserved, before->peak.upper_bound);
    training.batch_size_per_trainer += 1 + dice.below(500);
    const Result<Estimate> after = estimate_memory(request);
    ASSERT_TRUE(after.ok());
    ASSERT_LE(before->peak.allocated, after->peak.allocated);
  }
}

// GPUs, numbers of trainers and embeddings in any order, as in the search for a GPU model.
TEST(SpecProperties, AnEstimatorThatRemembersAnswersAsOneThatDoesNot) {
  const std::uint32_t seed = plimsoll::testing::random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Dice dice(seed);
  const GpuCatalog catalog = GpuCatalog::built_in();
  const char* cards[] = {"A100-80GB", "A100-40GB", "V100-32GB", "H100-80GB"};
  for (int i = 0; i < 60; ++i) {
    crds::ModelSpec model;
    model.dlrm = random_model(dice);
    const crds::TrainingSpec training = random_training(dice);
    Estimator estimator;
    for (int question = 0; question < 8; ++question) {
      EstimateRequest request{
          .model = &model, .training = &training, .gpu = catalog.find(cards[dice.below(4)])};
      request.trainers = 1 + dice.below(20);
      request.embedding_bytes = Bytes{dice.below(1'000'000'000)};
      request.capacity = dice.coin() ? std::optional(Bytes{dice.below(10'000'000'000)}) : std::nullopt;
      const Result<Estimate> fresh = estimate_memory(request);
      const Result<Estimate> known = estimator.estimate(request);
      ASSERT_EQ(fresh.ok(), known.ok());
      if (!fresh.ok()) {  // 8-bit Adam: DTensors, and DeepSpeed's flat buffers
        ASSERT_EQ(training.optimizer, crds::Optimizer::kAdam8bit) << to_string(fresh.error());
        ASSERT_EQ(to_string(fresh.error()), to_string(known.error()));
        continue;
      }
      ASSERT_EQ(write_json(to_json(fresh->peak)), write_json(to_json(known->peak)));
      ASSERT_EQ(write_json(to_json(fresh->breakdown)), write_json(to_json(known->breakdown)));
      ASSERT_EQ(write_json(to_json(fresh->largest_live)), write_json(to_json(known->largest_live)));
      ASSERT_EQ(fresh->allocated_by_rank, known->allocated_by_rank);
      ASSERT_EQ(fresh->peak_phase, known->peak_phase);
    }
  }
}

// Bytes of a ledger's parts that are live at its end, or when its backward begins.
template <class Counts>
std::int64_t live_at(const Ledger& ledger, std::size_t from, std::size_t until, Counts counts) {
  Bytes live;
  for (std::size_t i = from; i < until; ++i) {
    const MemoryEvent& event = ledger.events()[i];
    if (event.block < 0) {
      continue;
    }
    const Ledger::Block& block = ledger.blocks()[static_cast<std::size_t>(event.block)];
    if (counts(block.part)) {
      live += event.kind == MemoryEvent::Kind::kAllocate  ? block.bytes
              : event.kind == MemoryEvent::Kind::kRelease ? Bytes{} - block.bytes
                                                          : Bytes{};
    }
  }
  return live.count;
}

// Without buckets: DeepSpeed's are of one size.
bool divided_by_zero(Part part) {
  return part == Part::kParameters || part == Part::kGradients || part == Part::kOptimizerState;
}

TEST(SpecProperties, FullCheckpointingNeverRaisesWhatForwardKeeps) {
  const std::uint32_t seed = plimsoll::testing::random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Dice dice(seed);
  for (int i = 0; i < 100; ++i) {
    const crds::DlrmModel model = random_model(dice);
    crds::TrainingSpec training = random_training(dice);
    training.parallelism = {};
    // Under autocast, a block's input is kept in fp32 instead of the 16-bit copies for its products.
    training.precision = dice.coin() ? crds::Precision::kFP32 : crds::Precision::kBF16;
    const auto kept = [&](ActivationCheckpointing how) {
      training.activation_checkpointing = how;
      const Result<ForwardGraph> graph = lower_dlrm(model, training);
      EXPECT_TRUE(graph.ok());
      const Ledger ledger = testing::ledger_of(*graph, training, Device::kCpu);
      return live_at(ledger, ledger.begin_of_iteration(), ledger.begin_of(Phase::kBackward),
                     [](Part) { return true; });
    };
    ASSERT_LE(kept(ActivationCheckpointing::kFull), kept(ActivationCheckpointing::kNone));
  }
}

TEST(SpecProperties, EachStageOfZeROHoldsNoMore) {
  const std::uint32_t seed = plimsoll::testing::random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Dice dice(seed);
  for (int i = 0; i < 60; ++i) {
    crds::ModelSpec model;
    model.dlrm = random_model(dice);
    crds::TrainingSpec training = random_training(dice);
    const std::int64_t trainers = 2 + dice.below(7);
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    // ZeRO-3 keeps parameters of these models whole: they are small.
    for (const auto strategy : {ParallelStrategy::kDDP, ParallelStrategy::kZeRO1, ParallelStrategy::kZeRO2}) {
      training.parallelism.strategy = strategy;
      const Result<SpecRun> run = run_spec({.model = &model, .training = &training, .trainers = trainers});
      ASSERT_TRUE(run.ok());
      const Ledger& ledger = run->heaviest;
      const std::int64_t held = live_at(ledger, 0, ledger.begin_of(Phase::kOptimizerStep), divided_by_zero);
      // Shards of single parameters are padded by at most one granule each.
      ASSERT_LE(held,
                least == std::numeric_limits<std::int64_t>::max() ? held : least + least / 20 + 64 * 512)
          << crds::name_of(strategy) << " on " << trainers;
      least = std::min(least, held);
    }
  }
}

TEST(SpecProperties, ViewsAddNothing) {
  crds::TrainingSpec training;
  training.batch_size_per_trainer = 64;
  const auto peak = [&](int views) {
    ForwardGraph graph;
    TensorId x = graph.add_input("x", {per_sample(1), fixed(64)}, ElementType::kFP32);
    for (int layer = 0; layer < 3; ++layer) {
      const TensorId w = graph.add_parameter("w", {fixed(64), fixed(64)}, ElementType::kFP32);
      x = graph.apply(OpKind::kLinear, "y", {x, w}, {per_sample(1), fixed(64)}, ElementType::kFP32);
      for (int i = 0; i < views; ++i) {
        x = graph.view("view", x, {per_sample(64), fixed(1)});
        x = graph.view("back", x, {per_sample(1), fixed(64)});
      }
      x = graph.apply(OpKind::kRelu, "relu", {x}, {per_sample(1), fixed(64)}, ElementType::kFP32);
    }
    return testing::ledger_of(graph, training, Device::kCpu).peak();
  };
  EXPECT_EQ(peak(0), peak(1));
  EXPECT_EQ(peak(0), peak(7));
}

TEST(SpecFuzz, NonsenseGetsAnAnswerThatSaysSo) {
  const std::uint32_t seed = plimsoll::testing::random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Dice dice(seed);
  constexpr std::int64_t kOdd[] = {0,         -1,      1,
                                   1LL << 20, 1 << 30, 1LL << 32,
                                   1LL << 40, -7,      std::numeric_limits<std::int64_t>::max(),
                                   1LL << 62, 3,       std::numeric_limits<std::int64_t>::min()};
  const double odd_shares[] = {0, -1, 1e300, std::nan(""), std::numeric_limits<double>::infinity(), 0.5};
  const auto odd = [&] { return kOdd[dice.below(std::size(kOdd))]; };
  int answered = 0, refused = 0;
  for (int i = 0; i < 3000; ++i) {
    crds::ModelSpec model;
    model.dlrm = random_model(dice);
    crds::TrainingSpec training = random_training(dice);
    crds::DlrmModel& dlrm = *model.dlrm;
    EstimateRequest request{.model = &model, .training = &training, .trainers = 1 + dice.below(4)};
    for (std::int64_t damage = dice.below(3); damage >= 0; --damage) {
      switch (dice.below(14)) {
        case 0: dlrm.dense_features = odd(); break;
        case 1: dlrm.bottom_mlp = {odd()}; break;
        case 2: dlrm.top_mlp = {odd(), 1}; break;
        case 3: dlrm.cross_layers = std::min<std::int64_t>(odd(), 3000); break;
        case 4: dlrm.cross_rank = odd(); break;
        case 5: dlrm.tables.front().dim = odd(); break;
        case 6: dlrm.tables.front().count = odd(); break;
        case 7: dlrm.tables.front().pooling_factor = odd_shares[dice.below(6)]; break;
        case 8: dlrm.tables.front().sequence_length = odd(); break;
        case 9: training.batch_size_per_trainer = odd(); break;
        case 10: request.trainers = odd(); break;
        case 11: training.gradient_accumulation = odd(); break;
        case 12:
          dlrm.tables.clear();
          dlrm.tables.push_back({.name = "t", .rows = odd(), .dim = 8});
          break;
        default:
          if (dlrm.dhen) {
            (dice.coin() ? dlrm.dhen->heads : dlrm.dhen->features) = odd();
          } else {
            dlrm.interaction = static_cast<Interaction>(dice.below(5));
          }
      }
    }
    const Result<Estimate> estimate = estimate_memory(request);
    if (estimate) {
      ++answered;
      ASSERT_GE(estimate->peak.allocated.count, 0);
      ASSERT_EQ(estimate->breakdown.total(), estimate->peak.upper_bound);
    } else {
      ++refused;
      ASSERT_FALSE(estimate.error().message.empty());
    }
  }
  EXPECT_GT(answered, 100);
  EXPECT_GT(refused, 100);
}

RanksRequest graph_request(ParallelStrategy strategy, std::int64_t trainers) {
  crds::Parallelism parallelism;
  parallelism.strategy = strategy;
  return {.parallelism = parallelism, .trainers = trainers, .iteration = {.batch = 4}};
}

TEST(GraphProperties, EachStageOfZeROHoldsNoMore) {
  for (const std::int64_t trainers : {2, 3, 4}) {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    // ZeRO-3 keeps parameters of these models whole: they are small.
    for (const auto strategy : {ParallelStrategy::kDDP, ParallelStrategy::kZeRO1, ParallelStrategy::kZeRO2}) {
      const Result<RankRuns> runs =
          run_ranks(gpt().traces.front(), gpt().producer, graph_request(strategy, trainers));
      ASSERT_TRUE(runs.ok()) << runs.error().message;
      const Ledger& ledger = runs->heaviest->ledger;
      const std::int64_t held = live_at(ledger, 0, ledger.begin_of(Phase::kOptimizerStep), divided_by_zero);
      // Shards are padded by at most an element each, of parameter, gradient, copy and state.
      EXPECT_LE(held, least == std::numeric_limits<std::int64_t>::max() ? held : least + 64 * 16)
          << crds::name_of(strategy) << " on " << trainers;
      least = held;
    }
  }
}

TEST(GraphProperties, MoreSamplesTakeMoreAndAllSumsUp) {
  const crds::ModelSpec model{
      .family = {}, .dlrm = {}, .transformer = {}, .graph = crds::GraphReference{}, .embeddings = {}};
  for (int how = 0; how < 3; ++how) {
    for (int strategy = 0; strategy < 7; ++strategy) {
      Bytes before;
      for (std::int64_t batch = 1; batch < 64; batch += 5) {
        crds::TrainingSpec training;
        training.batch_size_per_trainer = batch;
        training.activation_checkpointing = static_cast<ActivationCheckpointing>(how);
        training.parallelism.strategy = static_cast<ParallelStrategy>(strategy);
        EstimateRequest request{.model = &model, .training = &training, .graph = &gpt(), .trainers = 4};
        request.device = Device::kCpu;
        const Result<Estimate> estimate = estimate_memory(request);
        ASSERT_TRUE(estimate.ok()) << estimate.error().message;
        ASSERT_EQ(estimate->breakdown.total(), estimate->peak.upper_bound);
        ASSERT_LE(estimate->peak.allocated, estimate->peak.reserved);
        ASSERT_GE(estimate->peak.allocated, before) << batch;
        before = estimate->peak.allocated;
      }
    }
  }
}

}  // namespace
}  // namespace plimsoll::estimator
