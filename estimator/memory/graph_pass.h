// GraphPass: one micro-batch's way through an operator graph, forward and backward: which values live when,
// by the rules of autograd_rules.h. What happens to parameters and their gradients is the
// ParameterLifeCycle's.
//
//   const GraphPlan plan(graph, training, device, batch, &budget);
//   GraphPass pass(plan, ledger, parameters, /*first_parameter=*/0, /*first_tensor=*/0);
//   pass.forward(/*keeps_result=*/false);
//   pass.backward();
//
// Internal to simulate.cc. Not thread-safe; the plan may be shared.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "crds/training_job.h"
#include "estimator/graph/operator_graph.h"
#include "estimator/memory/autograd_rules.h"
#include "estimator/memory/ledger.h"
#include "estimator/memory/parallelism.h"

namespace plimsoll::estimator {

// What every pass of a graph has in common.
class GraphPlan {
 public:
  // Operators [begin, end) of one unit, and of one block that checkpointing computes again or outside all.
  struct Range {
    std::int32_t begin = 0, end = 0;
    std::int32_t block = -1;
    bool recomputed = false;
    BudgetVector<TensorId> inputs;      // of a recomputed one: what comes in from outside
    std::int32_t recomputed_until = 0;  // the second forward stops here
  };

  // Its memory, and that of its passes, is taken from `budget`.
  GraphPlan(const OperatorGraph& graph, const crds::TrainingSpec& training, Device device, std::int64_t batch,
            Budget* budget);

  const OperatorGraph& graph() const { return graph_; }
  std::int64_t batch() const { return batch_; }
  Op op(std::int32_t i) const { return graph_.op(i); }
  const AutogradRule& rule(std::int32_t i) const {
    return rules_[static_cast<std::size_t>(rule_[static_cast<std::size_t>(i)])];
  }
  const BudgetVector<Range>& ranges() const { return ranges_; }
  std::int32_t last_use(TensorId id) const { return last_use_[static_cast<std::size_t>(id)]; }
  // Whether autograd records the operator.
  bool trained(std::int32_t i) const { return trained_[static_cast<std::size_t>(i)]; }
  // Selective checkpointing keeps the results of matrix products, or of every second one, and computes the
  // rest again.
  bool keeps_result(std::int32_t i) const {
    return !keeps_result_.empty() && keeps_result_[static_cast<std::size_t>(i)];
  }
  // Of a parameter: its place among the graph's parameters, -1 else; and how many operators add to its
  // gradient.
  std::int32_t parameter(TensorId id) const { return parameter_[static_cast<std::size_t>(id)]; }
  std::int32_t gradient_parts(TensorId id) const { return gradient_parts_[static_cast<std::size_t>(id)]; }
  // Bytes of a tensor that stands alone, at this plan's batch.
  Bytes bytes_of_one(TensorId id) const { return bytes_[static_cast<std::size_t>(id)]; }
  Budget* budget() const { return budget_; }

 private:
  void find_ranges(crds::ActivationCheckpointing checkpointing);
  void find_kept_results(crds::ActivationCheckpointing checkpointing);
  bool saves_own_results(std::int32_t i) const;

  const OperatorGraph& graph_;
  const std::int64_t batch_;
  Budget* const budget_;
  BudgetVector<AutogradRule> rules_;  // copies of an operator share one
  BudgetVector<std::int32_t> rule_;   // by operator: its place in rules_
  BudgetVector<bool> trained_;        // by operator
  BudgetVector<bool> keeps_result_;   // by operator; empty where none does
  BudgetVector<Range> ranges_;
  BudgetVector<std::int32_t> last_use_;  // by tensor: the last operator that takes it
  BudgetVector<std::int32_t> parameter_;
  BudgetVector<std::int32_t> gradient_parts_;
  BudgetVector<Bytes> bytes_;
};

class GraphPass {
 public:
  // `first_parameter`: where the graph's parameters begin in the life cycle's list; `first_tensor`: its
  // tensors in the numbers that the ledger's blocks are marked with.
  GraphPass(const GraphPlan& plan, Ledger& ledger, ParameterLifeCycle& parameters,
            std::size_t first_parameter, std::int32_t first_tensor);

  // `keeps_result`: the last value is kept for whoever it is sent to, until backward.
  void forward(bool keeps_result);
  void backward();

 private:
  enum class Pass {
    kSaving,    // plain forward
    kDropping,  // forward of a checkpointed block: what it would save is dropped
    kAgain,     // its second forward, inside backward
  };
  struct Storage {
    BlockId block = -1;
    std::int32_t references = 0;
  };
  // A gradient buffer; a tensor's pending gradient is one, or a view of a part of one.
  struct Gradient {
    BlockId block = -1;
    std::int32_t references = 0;
  };
  struct Pending {
    std::int32_t gradient = -1;
    bool part = false;
  };

  static std::size_t index(std::int32_t id) { return static_cast<std::size_t>(id); }
  Op op(std::int32_t i) const { return plan_.op(i); }
  const AutogradRule& rule(std::int32_t i) const { return plan_.rule(i); }
  const Tensor& tensor(TensorId id) const { return plan_.graph().tensors()[index(id)]; }
  Storage& storage(TensorId id) { return storages_[index(tensor(id).storage)]; }
  bool made_by_an_op(TensorId id) const { return tensor(id).role == TensorRole::kActivation; }

  void run(const GraphPlan::Range& range, Pass pass);
  void backward(std::int32_t i);
  BlockId marked(BlockId block, TensorId of) {
    ledger_.mark(block, first_tensor_ + of);
    return block;
  }
  void refer(TensorId id);
  void drop(TensorId id);
  void hold(TensorId id);
  void let_go(TensorId id);
  void make(std::int32_t i);
  void save(std::int32_t i);
  void forget_kept(std::int32_t i);
  void leave_out(std::int32_t i);
  std::int32_t new_gradient(TensorId of);
  void release_gradient(std::int32_t id);
  void accumulate(TensorId input, Pending added);

  const GraphPlan& plan_;
  Ledger& ledger_;
  ParameterLifeCycle& parameters_;
  const std::size_t first_parameter_;
  const std::int32_t first_tensor_;
  TensorId result_ = -1;                // kept for whoever it is sent to
  BudgetVector<bool> saved_;            // by operator: its saved tensors are referred to
  BudgetVector<BlockId> kept_;          // by operator: its rule's `kept`, -1 when it is not there
  BudgetVector<Storage> storages_;      // by tensor that has memory of its own
  BudgetVector<bool> held_;             // by tensor: a later operator of the pass still wants it
  BudgetVector<Pending> pending_;       // by tensor: the gradient so far
  BudgetVector<std::int32_t> missing_;  // by tensor: of a parameter, the parts of its gradient still to come
  BudgetVector<Gradient> gradients_;
  // Of the operator whose backward runs: the gradients of its outputs, and those it makes for its inputs.
  std::vector<std::int32_t> given_;
  std::vector<std::pair<TensorId, Pending>> made_;
};

}  // namespace plimsoll::estimator
