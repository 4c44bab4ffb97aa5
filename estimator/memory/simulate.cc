#include "estimator/memory/simulate.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <memory>
#include <utility>

#include "estimator/memory/fixed_costs.h"
#include "estimator/memory/graph_pass.h"
#include "estimator/memory/parallelism.h"
#include "estimator/memory/schedule.h"

namespace plimsoll::estimator {
namespace {

constexpr std::int64_t kMasterWidth = 4;
// What an operator's results, gradients and what it saves come to, generously: where it falls short the lists
// grow.
constexpr std::size_t kBlocksPerOperator = 4;
constexpr std::size_t kEventsPerOperator = 8;

class LedgerOfParameters : public ParameterLedger {
 public:
  LedgerOfParameters(Ledger& ledger, BudgetVector<std::int32_t> tensors)
      : ledger_(ledger), tensors_(std::move(tensors)) {}
  BlockId allocate(Part part, Bytes bytes_of_one, std::int64_t count, std::size_t parameter) override {
    const BlockId block = ledger_.allocate(part, bytes_of_one, count);
    ledger_.mark(block, tensors_[parameter]);
    return block;
  }
  void release(BlockId block) override { ledger_.release(block); }

 private:
  Ledger& ledger_;
  const BudgetVector<std::int32_t> tensors_;  // by parameter
};

HeldParameter held(const OperatorGraph& graph, TensorId id, bool keeps_fp32) {
  const Tensor& tensor = graph.tensor(id);
  HeldParameter held;
  held.width = width_bytes(tensor.type);
  held.kept_width = keeps_fp32 ? kMasterWidth : held.width;
  held.elements = graph.bytes_of_one(id, 1).count / held.width;
  const Shape& shape = graph.shape_of(id);
  const std::size_t rank = shape.size();
  held.first = shape.front().constant;
  held.rows = held.elements / std::max<std::int64_t>(1, shape.back().constant);
  held.columns = rank < 2 ? 0 : held.elements / std::max<std::int64_t>(1, shape[rank - 2].constant);
  held.count = tensor.count;
  held.unit = tensor.unit;
  return held;
}

void allocate_inputs(const OperatorGraph& graph, const IterationRequest& request, std::int32_t first_tensor,
                     Ledger& ledger) {
  for (std::size_t i = 0; i < graph.tensors().size(); ++i) {
    const Tensor& tensor = graph.tensors()[i];
    if (tensor.role != TensorRole::kInput) {
      continue;
    }
    const auto id = static_cast<TensorId>(i);
    const bool of_the_batch = std::any_of(graph.shape_of(id).begin(), graph.shape_of(id).end(),
                                          [](const Dim& dim) { return dim.per_sample != 0; });
    const BlockId input =
        ledger.allocate(Part::kInputs, graph.bytes_of_one(id, request.training->batch_size_per_trainer),
                        of_the_batch ? request.batches_in_flight : 1);
    ledger.mark(input, first_tensor + id);
  }
}

}  // namespace

Ledger simulate(const std::vector<const OperatorGraph*>& chunks, const IterationRequest& request) {
  const crds::TrainingSpec& training = *request.training;
  const crds::Parallelism& parallelism = training.parallelism;
  const std::int64_t micro_batches = training.gradient_accumulation;
  const std::int64_t batch = std::max<std::int64_t>(1, training.batch_size_per_trainer / micro_batches);
  Ledger ledger(request.device == Device::kCuda ? kCudaGranule : 1, request.budget);

  std::map<const OperatorGraph*, GraphPlan> plans;  // chunks may share a graph
  std::vector<std::size_t> first_parameter;
  BudgetVector<HeldParameter> parameters(request.budget);
  BudgetVector<std::int32_t> parameter_tensors(request.budget);
  std::vector<std::int32_t> first_tensor = {0};
  for (const OperatorGraph* graph : chunks) {
    plans.try_emplace(graph, *graph, training, request.device, batch, request.budget);
    first_parameter.push_back(parameters.size());
    for (std::size_t i = 0; i < graph->tensors().size(); ++i) {
      if (graph->tensors()[i].role == TensorRole::kParameter) {
        charge(request.budget, 1);
        parameters.push_back(held(*graph, static_cast<TensorId>(i), request.keeps_fp32));
        parameter_tensors.push_back(first_tensor.back() + static_cast<TensorId>(i));
      }
    }
    allocate_inputs(*graph, request, first_tensor.back(), ledger);
    first_tensor.push_back(first_tensor.back() + static_cast<TensorId>(graph->tensors().size()));
  }
  std::size_t operators = 0;
  for (const OperatorGraph* graph : chunks) {
    operators += static_cast<std::size_t>(graph->op_count() * micro_batches);
  }
  ledger.expect(operators * kBlocksPerOperator, operators * kEventsPerOperator);
  const TraceDevice device = request.device == Device::kCuda ? TraceDevice::kCuda : TraceDevice::kCpu;
  const Result<OptimizerRun> optimizer =
      optimizer_run(training.optimizer, training.optimizer_implementation, device, kSpecTorchVersion);
  assert(optimizer.ok());  // estimate_memory has asked before
  LedgerOfParameters accounts(ledger, std::move(parameter_tensors));
  ParameterLifeCycle life(accounts,
                          {.strategy = parallelism.strategy,
                           .replicas = request.replicas,
                           .rank = request.rank,
                           .gradient_as_bucket_view = parallelism.gradient_as_bucket_view,
                           .reshard_after_forward = parallelism.reshard_after_forward,
                           .collectives_copy = request.device == Device::kCpu},
                          std::move(parameters), *optimizer, request.budget);
  life.persist();

  const bool last_stage = request.stage + 1 == parallelism.pipeline;
  std::map<std::pair<std::int64_t, std::int64_t>, std::unique_ptr<GraphPass>> passes;
  const std::int64_t steps = 2 * static_cast<std::int64_t>(chunks.size()) * micro_batches;
  charge(request.budget, static_cast<std::uint64_t>(steps));
  const BudgetBytes schedule(request.budget, Bytes{sizeof(ScheduleStep)} * steps);
  for (const ScheduleStep& step : pipeline_schedule(
           request.stage, parallelism.pipeline, static_cast<std::int64_t>(chunks.size()), micro_batches)) {
    const auto chunk = static_cast<std::size_t>(step.chunk);
    std::unique_ptr<GraphPass>& pass = passes[{step.chunk, step.micro_batch}];
    if (step.forward) {
      ledger.enter(Phase::kForward);
      pass = std::make_unique<GraphPass>(plans.at(chunks[chunk]), ledger, life, first_parameter[chunk],
                                         first_tensor[chunk]);
      pass->forward(!(last_stage && chunk + 1 == chunks.size()));
    } else {
      ledger.enter(Phase::kBackward);
      pass->backward();
      pass.reset();
    }
  }
  ledger.enter(Phase::kOptimizerStep);
  life.step();
  return ledger;
}

Bytes all_bytes(const OperatorGraph& graph, std::int64_t batch, Budget* budget) {
  Bytes total;
  for (std::size_t i = 0; i < graph.tensors().size(); ++i) {
    charge(budget, 1);
    total += graph.bytes(static_cast<TensorId>(i), batch);
  }
  return total;
}

}  // namespace plimsoll::estimator
