// GraphCut: the traces of a model's layers, each alone, from the trace of the whole model. A layer takes what the one before it returns,
// and backward what the one after it gives; both are held until its microbatch ends.
//
//   Result<GraphCut> cut = GraphCut::of(trace, parts, budget);     // parts: graph_parts.h
//   LayerCut first = cut->layer(0);
//
// - What several layers read and nothing trained nor given makes, such as tables of positions, each computes again, as
//   plimsoll.harmony's layers do.
// - A parameter that several layers share has a gradient in each; their sum is not in any.
// - A received gradient is not added to in place, since its giver refers to it.
//
// Refers to the trace and to the parts. Pure; const access is thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/budget.h"
#include "base/result.h"
#include "estimator/trace/shapes.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline layer_costs {

struct GraphParts {
  std::vector<std::int32_t> of_operator;  // the layer of each operator of the trace
  std::vector<std::string> names;         // of layers, for messages: "transformer.h.3"
};

struct LayerCut {
  // Without the tables that all layers share: names, attributes, counts and layouts.
  Trace rows;
  std::vector<TraceTensor> inputs;  // of the whole trace: views of what the layer takes
  std::int32_t loss_begin = -1;     // of the last layer
};

class GraphCut {
 public:
  // Errors: kUnsupported where the layers are no chain, a parameter is not trained, or its gradient is sparse.
  static Result<GraphCut> of(const Trace& trace, const GraphParts& parts, Budget* budget);

  std::size_t layers() const { return layers_.size(); }
  // Of a layer that no operator is in, such as nn.Flatten, the rows are empty, and it takes what the one after it does.
  LayerCut layer(std::size_t number) const;
  // Layers, rising, whose gradients of one parameter are added up.
  std::vector<std::size_t> tied() const { return {tied_.begin(), tied_.end()}; }
  // The rows with the tables that they refer to.
  Trace whole(const LayerCut& cut) const;

 private:
  using Storages = std::set<std::int32_t>;
  struct Part {
    std::vector<std::int32_t> forward;  // operators in order, with those that it computes again, and the loss
    std::vector<std::int32_t> backward;
    Storages received;   // made by the layer before
    Storages gradients;  // made by the layer after
    Storages buffers;    // of its modules that no operator reads
  };
  friend class LayerRows;

  GraphCut(const Trace& trace, const GraphParts& parts, Budget* budget)
      : trace_(trace), parts_(parts), budget_(budget), layers_(parts.names.size()) {}

  Result<void> find();
  Result<void> check_parameters() const;
  void find_sums();
  void share_out();
  void find_readers();
  void return_trailing_sums();
  bool is_sum_of_given(std::int32_t op, std::size_t before) const;
  Result<void> find_inputs();
  void drop_computed_elsewhere();
  Result<void> take(std::size_t layer, std::int32_t storage, std::int32_t op);
  bool computed_again(std::int32_t storage, Storages& operators) const;
  Result<void> find_gradients();
  void find_buffers();
  void find_owners();
  bool empty(std::size_t layer) const { return layers_[layer].forward.empty(); }
  // The closest layers with operators; the number of layers where there is none.
  std::size_t before(std::size_t layer) const;
  std::size_t after(std::size_t layer) const;

  std::int32_t storage_of(std::int32_t tensor) const {
    return tensor < 0 ? -1 : trace_.tensors[index(tensor)].storage;
  }
  std::int32_t part_of(std::int32_t op) const { return of_operator_[index(op)]; }
  std::int32_t producer(std::int32_t storage) const { return trace_.storages[index(storage)].allocated_at; }
  template <class Action>
  void for_each(const Span& span, Action action) const {
    for (std::int32_t at = span.begin; at < span.begin + span.size; ++at) {
      if (const std::int32_t tensor = trace_.operands[index(at)]; storage_of(tensor) >= 0) {
        action(tensor, storage_of(tensor));
      }
    }
  }

  const Trace& trace_;
  const GraphParts& parts_;
  Budget* budget_;
  std::vector<std::int32_t> of_operator_;
  std::vector<Part> layers_;
  std::set<std::int32_t> again_;                     // operators that other layers compute again
  std::vector<bool> sum_;                            // by operator: adds the gradients of a shared parameter
  std::map<std::int32_t, std::int32_t> summand_of_;  // storage -> the storage of the sum
  std::set<std::size_t> tied_;
  std::vector<std::int32_t> lowest_reader_;       // by storage: the first layer whose backward reads it
  std::vector<std::vector<std::int32_t>> saved_;  // by layer: indices in Trace::saved
  std::multimap<std::int32_t, std::int32_t> parameters_;  // by storage: indices in Trace::parameters
  std::multimap<std::int32_t, std::int32_t> buffers_;     // by storage: indices in Trace::buffers
};

}  // namespace plimsoll::estimator::layer_costs
