#include "estimator/execute/run_trace.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>
#include <string>

#include "estimator/kernels/rules.h"
#include "estimator/trace/import_graph.h"
#include "tests/checkout.h"
#include "tests/estimator/graph_files.h"
#include "tests/testing/random_seed.h"

namespace plimsoll::estimator {
namespace {

using crds::ActivationCheckpointing;
using crds::Optimizer;
using crds::OptimizerImplementation;

constexpr std::int32_t kNever = -1;

std::string linear_graph() {
  std::ifstream file(PLIMSOLL_SOURCE_DIR "/tests/estimator/graphs/linear.json");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TraceFile linear() {
  const Result<TraceFile> graph = import_traces(linear_graph());
  EXPECT_TRUE(graph.ok()) << graph.error().message;
  return *graph;
}

TraceRun run_of(const TraceFile& graph, const TraceRunRequest& request) {
  Result<TraceRun> run = run_trace(graph.traces.front(), graph.producer, request);
  EXPECT_TRUE(run.ok()) << run.error().message;
  return *std::move(run);
}

// Builds a chain of `layers` blocks, each y = relu(x * w) as aten::mm and aten::relu in module "layers.i", of
// `width` floats per sample. Python frees the product after the ReLU; autograd saves the input and the weight
// of the product, and the result of the ReLU.
class Chain {
 public:
  Chain(std::int32_t layers, double width) : layers_(layers), width_(width) {
    trace_.precision = "FP32";
    trace_.batch_sizes = {2, 4};
    trace_.dtypes = {"float32"};
    trace_.modules = {""};
    trace_.operator_names = {"aten::mm", "aten::relu", "aten::threshold_backward", "aten::sum"};
    trace_.counts = {Count{{0, 1, 0, 0}}, Count{{width, 0, 0, 0}}, Count{{width, 0, 0, 0}}};
    trace_.layouts = {{.shape = {0, 2}, .strides = {}, .contiguous = true},
                      {.shape = {1, 2}, .strides = {}, .contiguous = true}};
    build();
  }

  TraceFile graph() const {
    return {.name = "chain",
            .producer = {.torch = "2.15.0", .version = 215, .threads = 1, .cpu_capability = ""},
            .embeddings = {},
            .traces = {trace_}};
  }

 private:
  std::int32_t storage(Count bytes, StorageRole role, std::int32_t from, std::int32_t until) {
    trace_.storages.push_back({bytes, role, from, until});
    return static_cast<std::int32_t>(trace_.storages.size()) - 1;
  }
  std::int32_t activation(StorageRole role, std::int32_t from, std::int32_t until) {
    return tensor(storage(Count{{0, 4 * width_, 0, 0}}, role, from, until), 0);
  }
  std::int32_t tensor(std::int32_t of, std::int32_t layout) {
    trace_.tensors.push_back({of, layout, 0});
    return static_cast<std::int32_t>(trace_.tensors.size()) - 1;
  }
  Span operands(std::initializer_list<std::int32_t> tensors) {
    const Span span{static_cast<std::int32_t>(trace_.operands.size()),
                    static_cast<std::int32_t>(tensors.size())};
    trace_.operands.insert(trace_.operands.end(), tensors);
    return span;
  }
  void call(std::int32_t name, std::int32_t module, std::initializer_list<std::int32_t> in,
            std::initializer_list<std::int32_t> out) {
    const Span inputs = operands(in);
    trace_.operators.push_back({name, module, -1, inputs, operands(out)});
  }

  void build() {
    const std::int32_t backward = 2 * layers_ + 1;
    const auto backward_of = [&](std::int32_t layer) { return backward + 3 * (layers_ - 1 - layer); };
    std::int32_t x = activation(StorageRole::kInput, -1, kNever);
    std::vector<std::int32_t> weights;
    for (std::int32_t i = 0; i < layers_; ++i) {
      const std::int32_t weight =
          storage(Count{{4 * width_ * width_, 0, 0, 0}}, StorageRole::kParameter, -1, kNever);
      weights.push_back(tensor(weight, 1));
      trace_.modules.push_back("layers." + std::to_string(i));
    }
    std::vector<std::int32_t> inputs;
    std::vector<std::int32_t> results;
    for (std::int32_t i = 0; i < layers_; ++i) {
      const std::int32_t op = 2 * i;
      const std::int32_t product = activation(StorageRole::kActivation, op, op + 2);
      const std::int32_t result = activation(StorageRole::kActivation, op + 1, op + 3);
      call(0, i + 1, {x, weights[static_cast<std::size_t>(i)]}, {product});
      call(1, i + 1, {product}, {result});
      const std::int32_t b = backward_of(i);
      trace_.saved.push_back({x, op, b + 1, b + 3});
      trace_.saved.push_back({result, op + 2, b, b + 1});
      inputs.push_back(x);
      results.push_back(result);
      x = result;
    }
    const std::int32_t loss =
        tensor(storage(Count{{4, 0, 0, 0}}, StorageRole::kLoss, 2 * layers_, kNever), 0);
    call(3, 0, {x}, {loss});
    trace_.forward_end = 2 * layers_;
    trace_.loss_end = backward;
    std::int32_t gradient = loss;
    for (std::int32_t i = layers_; i-- > 0;) {
      const std::int32_t b = backward_of(i);
      const std::int32_t through = activation(StorageRole::kBackward, b, b + 3);
      const std::int32_t weight =
          storage(Count{{4 * width_ * width_, 0, 0, 0}}, StorageRole::kGradient, b + 1, kNever);
      const std::int32_t next = activation(StorageRole::kBackward, b + 2, b + 4);
      call(2, i + 1, {gradient, results[static_cast<std::size_t>(i)]}, {through});
      call(0, i + 1, {inputs[static_cast<std::size_t>(i)], through}, {tensor(weight, 1)});
      call(0, i + 1, {through, weights[static_cast<std::size_t>(i)]}, {next});
      gradient = next;
      trace_.parameters.push_back(
          {"layers." + std::to_string(i) + ".weight",
           trace_.tensors[static_cast<std::size_t>(weights[static_cast<std::size_t>(i)])].storage,
           1,
           0,
           true,
           {weight},
           false});
    }
    // The last gradient is freed at the end of backward.
    trace_.storages.back().released_at = static_cast<std::int32_t>(trace_.operators.size());
    for (TraceStorage& each : trace_.storages) {
      each.released_at = std::min(each.released_at, static_cast<std::int32_t>(trace_.operators.size()));
    }
  }

  std::int32_t layers_;
  double width_;
  Trace trace_;
};

// Calculated by hand from the example of docs/graph.md at batch 4. Always live: weight 24, bias 8, input 48.
TEST(TraceRun, FollowsTheExample) {
  const TraceFile graph = linear();
  const TraceRun run = run_of(graph, {.batch = 4, .optimizer = Optimizer::kSGD});
  // The loss 4, ones for sum's backward 4, the weight's gradient 24. The output's gradient is one value with
  // strides of zero, which is copied for BLAS: 32.
  EXPECT_EQ(run.ledger.peak().count, 80 + 4 + 4 + 24 + 32);
  EXPECT_EQ(run.ledger.peak_phase(), Phase::kBackward);
  EXPECT_EQ(run.kept_after_forward.count, 4);
}

TEST(TraceRun, TheStepIsACandidateForThePeak) {
  const TraceFile graph = linear();
  const TraceRun run = run_of(graph, {.batch = 4, .optimizer = Optimizer::kAdam});
  // State: two moments and a step count per parameter. Root and quotient of the weight, the larger parameter.
  EXPECT_EQ(run.ledger.peak().count, 80 + 4 + 32 + (24 + 24 + 4) + (8 + 8 + 4) + 24 + 24);
  EXPECT_EQ(run.ledger.peak_phase(), Phase::kOptimizerStep);
  EXPECT_EQ(
      run_of(graph,
             {.batch = 4, .optimizer = Optimizer::kAdam, .implementation = OptimizerImplementation::kFused})
          .ledger.peak()
          .count,
      80 + 4 + 4 + 24 + 32 + 72);
}

TEST(TraceRun, GrowsWithTheBatch) {
  const TraceFile graph = Chain(5, 16).graph();
  for (const ActivationCheckpointing how :
       {ActivationCheckpointing::kNone, ActivationCheckpointing::kSelective,
        ActivationCheckpointing::kFull}) {
    Bytes before;
    for (std::int64_t batch = 1; batch < 300; batch += 7) {
      const Bytes peak = run_of(graph, {.batch = batch, .checkpointing = how}).ledger.peak();
      EXPECT_GE(peak, before) << batch;
      before = peak;
    }
  }
}

TEST(TraceRun, CheckpointingNeverRaisesWhatForwardLeaves) {
  const TraceFile graph = Chain(6, 8).graph();
  const auto kept = [&](ActivationCheckpointing how) {
    return run_of(graph, {.batch = 64, .checkpointing = how}).kept_after_forward.count;
  };
  const std::int64_t layer = 64 * 8 * 4;
  EXPECT_EQ(kept(ActivationCheckpointing::kNone), 6 * layer + 4)
      << "each block's result, which is the next one's input";
  EXPECT_EQ(kept(ActivationCheckpointing::kFull), 5 * layer + 4) << "the last result is nobody's input";
  EXPECT_LE(kept(ActivationCheckpointing::kFull), kept(ActivationCheckpointing::kSelectiveHalf));
  EXPECT_LE(kept(ActivationCheckpointing::kSelectiveHalf), kept(ActivationCheckpointing::kSelective));
}

TEST(TraceRun, EverySecondProductIsComputedAgain) {
  const auto kept = [](ActivationCheckpointing how) {
    return run_of(testing::gpt(), {.batch = 8, .checkpointing = how}).kept_after_forward;
  };
  EXPECT_LT(kept(ActivationCheckpointing::kFull), kept(ActivationCheckpointing::kSelectiveHalf));
  EXPECT_LT(kept(ActivationCheckpointing::kSelectiveHalf), kept(ActivationCheckpointing::kSelective));
}

TEST(TraceRun, CheckpointsNamedModules) {
  const TraceFile graph = Chain(4, 8).graph();
  TraceRunRequest request{.batch = 64, .checkpointing = ActivationCheckpointing::kPerModule};
  request.checkpoint_modules = {"layers.3"};
  EXPECT_EQ(run_of(graph, request).kept_after_forward.count, 3 * 64 * 8 * 4 + 4);
  request.checkpoint_modules = {"layers.*"};
  EXPECT_EQ(run_of(graph, request).kept_after_forward.count, 3 * 64 * 8 * 4 + 4);
  request.checkpoint_modules = {"blocks.*"};
  const Result<TraceRun> none = run_trace(graph.traces.front(), graph.producer, request);
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find("blocks.*"), std::string::npos);
}

TEST(TraceRun, ViewsAddNothing) {
  TraceFile graph = Chain(3, 8).graph();
  const Bytes before = run_of(graph, {.batch = 32}).ledger.peak();
  Trace& trace = graph.traces.front();
  for (std::int32_t i = 0; i < 50; ++i) {
    trace.tensors.push_back(trace.tensors[static_cast<std::size_t>(i) % 4]);
  }
  EXPECT_EQ(run_of(graph, {.batch = 32}).ledger.peak(), before);
}

TEST(TraceRun, AccumulationKeepsGradientsThroughForward) {
  const TraceFile graph = Chain(4, 16).graph();
  const std::int64_t weights = 4 * 16 * 16 * 4;
  const Bytes plain = run_of(graph, {.batch = 64, .optimizer = Optimizer::kSGD}).ledger.peak();
  const Bytes parts =
      run_of(graph, {.batch = 128, .optimizer = Optimizer::kSGD, .gradient_accumulation = 2}).ledger.peak();
  EXPECT_GT(parts, plain) << "the second part of 64 begins with all gradients there";
  EXPECT_LE(parts.count, plain.count + weights);
  EXPECT_FALSE(
      run_trace(graph.traces.front(), graph.producer, {.batch = 63, .gradient_accumulation = 2}).ok());
}

// It was refused: zero_grad(set_to_none=False) leaves gradients that live through the next forward.
TEST(TraceRun, GradientsThatAreZeroedStay) {
  const TraceFile graph = Chain(4, 16).graph();
  const Bytes weight{16 * 16 * 4};
  for (const std::int64_t batch : {8, 512}) {
    const Bytes freed = run_of(graph, {.batch = batch, .optimizer = Optimizer::kSGD}).ledger.peak();
    const Bytes kept =
        run_of(graph, {.batch = batch, .optimizer = Optimizer::kSGD, .set_to_none = false}).ledger.peak();
    EXPECT_GT(kept, freed);
    EXPECT_LE(kept, freed + weight * 5) << "all four, and one that is added";
  }
  for (const crds::ParallelStrategy strategy :
       {crds::ParallelStrategy::kDDP, crds::ParallelStrategy::kFSDP, crds::ParallelStrategy::kFSDP2,
        crds::ParallelStrategy::kZeRO1, crds::ParallelStrategy::kZeRO2, crds::ParallelStrategy::kZeRO3}) {
    SCOPED_TRACE(crds::name_of(strategy));
    TraceRunRequest request{
        .batch = 64, .optimizer = Optimizer::kSGD, .replication = {.strategy = strategy, .replicas = 2}};
    const Bytes freed = run_of(graph, request).ledger.peak();
    request.set_to_none = false;
    EXPECT_GE(run_of(graph, request).ledger.peak(), freed);
    EXPECT_LE(run_of(graph, request).ledger.peak(), freed + weight * 5);
  }
}

TEST(TraceRun, AnAverageOfTheWeightsIsACopyOfThem) {
  const TraceFile graph = Chain(4, 16).graph();
  EXPECT_EQ(run_of(graph, {.batch = 64, .averaged_model = true}).ledger.peak(),
            run_of(graph, {.batch = 64}).ledger.peak() + Bytes{4 * 16 * 16 * 4});
  const Result<TraceRun> sharded =
      run_trace(graph.traces.front(), graph.producer,
                {.batch = 64,
                 .replication = {.strategy = crds::ParallelStrategy::kFSDP2, .replicas = 2},
                 .averaged_model = true});
  ASSERT_FALSE(sharded.ok());
  EXPECT_NE(sharded.error().message.find("averagedModel"), std::string::npos);
}

TEST(TraceRun, ValidationSavesNothingButKeepsGradientsAndInputs) {
  const TraceFile graph = Chain(8, 16).graph();
  const Bytes weights{8 * 16 * 16 * 4};
  const Bytes activation{64 * 16 * 4};
  const TraceRun run = run_of(
      graph, {.batch = 64, .optimizer = Optimizer::kSGD, .between = BetweenIterations{.inputs = activation}});
  EXPECT_EQ(run.ledger.peak(), weights * 2 + activation * 4)
      << "weights, gradients, this input and the last, a product and its ReLU";
  EXPECT_EQ(run.ledger.begin_of(Phase::kBackward), run.ledger.events().size());
  EXPECT_EQ(run_of(graph, {.batch = 64,
                           .optimizer = Optimizer::kSGD,
                           .set_to_none = false,
                           .between = BetweenIterations{.inputs = activation}})
                .ledger.peak(),
            run.ledger.peak());
}

TEST(TraceRun, GradScalerMakesNumbersAndNoLists) {
  const TraceFile graph = Chain(4, 16).graph();
  const Bytes plain = run_of(graph, {.batch = 64}).ledger.peak();
  const Bytes scaled = run_of(graph, {.batch = 64, .grad_scaler = true}).ledger.peak();
  EXPECT_GT(scaled, plain);
  EXPECT_LE(scaled, plain + Bytes{5 * 4});
}

TEST(TraceRun, HalvesFloats) {
  const TraceFile graph = Chain(3, 16).graph();
  const Bytes full = run_of(graph, {.batch = 32, .optimizer = Optimizer::kSGD}).ledger.peak();
  const Bytes half =
      run_of(graph, {.batch = 32, .optimizer = Optimizer::kSGD, .halve_floats = true}).ledger.peak();
  EXPECT_NEAR(static_cast<double>(half.count), static_cast<double>(full.count) / 2, 4);
}

TEST(TraceRun, AnOperatorWithoutARuleIsNeverSilentlyZero) {
  TraceFile graph = Chain(2, 16).graph();
  graph.traces.front().operator_names[1] = "mine::relu";
  const Result<TraceRun> refused = run_trace(graph.traces.front(), graph.producer, {.batch = 32});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(refused.error().message.find("mine::relu"), std::string::npos);
  EXPECT_NE(refused.error().message.find("--lenient"), std::string::npos);
  const TraceRun lenient = run_of(graph, {.batch = 32, .lenient = true});
  ASSERT_EQ(lenient.warnings.size(), 1U);
  EXPECT_NE(lenient.warnings.front().find("mine::relu"), std::string::npos);
  graph.traces.front().operator_names[1] = "aten::relu";
  EXPECT_GE(lenient.ledger.peak(), run_of(graph, {.batch = 32}).ledger.peak());
}

TEST(TraceRun, MeasuredKernelsNeedNoRule) {
  TraceFile graph = Chain(2, 16).graph();
  Trace& trace = graph.traces.front();
  const Bytes plain = run_of(graph, {.batch = 32, .optimizer = Optimizer::kSGD}).ledger.peak();
  trace.operator_names[1] = "mine::relu";
  trace.measured = true;
  EXPECT_EQ(run_of(graph, {.batch = 32, .optimizer = Optimizer::kSGD}).ledger.peak(), plain);
  trace.temporaries = {{.op = 3, .bytes = Count{{0, 1e6, 0, 0}}}};
  EXPECT_GT(run_of(graph, {.batch = 32, .optimizer = Optimizer::kSGD}).ledger.peak(), Bytes{32'000'000});
  trace.unmeasured = {1};
  EXPECT_FALSE(run_trace(trace, graph.producer, {.batch = 32}).ok());
}

// A randomly damaged graph gives an error or an estimate, never a crash.
TEST(TraceFuzz, DamagedGraphs) {
  const unsigned seed = plimsoll::testing::random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::string whole = linear_graph();
  const auto below = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  const std::string pieces[] = {"-1",       "0",    "99999999999", "1e18", "-7",    "[]",
                                "[[0, 1]]", "null", "1.5",         "{}",   "\"x\"", "true",
                                "[0,",      "]",    "2147483648",  ",",    "4e18",  "64",
                                "[0, -3]",  "-2",   "1e400",       "\x80", "\"",    "[0, 0, 0, 5]"};
  int estimated = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string text = whole;
    for (std::size_t damage = 1 + below(3); damage > 0; --damage) {
      const std::size_t at = text.find_first_of("0123456789", below(text.size()));
      if (at == std::string::npos || below(8) == 0) {
        text.erase(below(text.size()), 1 + below(20));
      } else {
        const std::size_t end = std::min(text.size(), text.find_first_not_of("0123456789", at));
        text.replace(at, end - at, pieces[below(std::size(pieces))]);
      }
    }
    const Result<TraceFile> graph = import_traces(text);
    if (!graph) {
      EXPECT_FALSE(graph.error().message.empty());
      continue;
    }
    for (const ActivationCheckpointing how :
         {ActivationCheckpointing::kNone, ActivationCheckpointing::kFull}) {
      const Result<TraceRun> run =
          run_trace(graph->traces.front(), graph->producer,
                    {.batch = 4, .gradient_accumulation = 2, .checkpointing = how, .lenient = true});
      estimated += run.ok() ? 1 : 0;
    }
  }
  EXPECT_GT(estimated, 0);
}

}  // namespace
}  // namespace plimsoll::estimator
