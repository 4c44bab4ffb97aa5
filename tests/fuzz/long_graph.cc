#include "tests/fuzz/long_graph.h"

#include "base/json/json.h"

namespace plimsoll::testing {
namespace {

constexpr int kWidth = 64;
constexpr int kElement = 4;  // bytes

Json row(std::initializer_list<Json> values) {
  Json made(::Json::arrayValue);
  for (const Json& value : values) {
    made.append(value);
  }
  return made;
}

// As in tests/estimator/graphs/linear.json, which tells what each row is.
class Builder {
 public:
  explicit Builder(int blocks) : blocks_(blocks) {}

  Json build() {
    trace_ = *parse_json(R"({
      "device": "cpu", "precision": "FP32", "method": "fake", "notes": [], "batchSizes": [4, 8],
      "dtypes": ["float32"],
      "roles": ["parameter", "buffer", "input", "output", "loss", "activation", "gradient", "backward"],
      "modules": [""], "operatorNames": ["aten::addmm", "aten::sum", "aten::ones_like", "aten::mm"],
      "layouts": [{"shape": [64, 64]}, {"shape": [64]}, {"shape": [[0, 1], 64]},
                  {"shape": [64, 64], "strides": [1, 64]}, {"shape": []},
                  {"shape": [[0, 1], 64], "strides": [0, 0]}, {"shape": [64, [0, 1]], "strides": [1, 64]}],
      "attributes": [{"beta": 1, "alpha": 1}, {"dim": [0], "keepdim": true}],
      "storages": [], "tensors": [], "operators": [], "saved": [], "parameters": [], "buffers": []})");
    constexpr int kOfBefore = -1;
    for (int i = 0; i < blocks_; ++i) {
      trace_["modules"].append("blocks." + std::to_string(i));
      storage(kElement * kWidth * kWidth, kParameter, kOfBefore, -1);
      storage(kElement * kWidth, kParameter, kOfBefore, -1);
    }
    int values = storage(batch_bytes(), kInput, kOfBefore, -1);
    int x = tensor(values, kBatch);
    for (int i = 0; i < blocks_; ++i) {
      const int backward = first_backward(i);
      const int next = storage(batch_bytes(), i + 1 == blocks_ ? kOutput : kActivation, i, i + 1);
      const int y = tensor(next, kBatch);
      call(kAddmm, i, 0, row({tensor(2 * i + 1, kBias), x, tensor(2 * i, kTransposed)}), row({y}));
      inputs_.append(x);
      if (i > 0) {
        trace_["saved"].append(row({x, i, backward + 1, backward + 2}));
      }
      x = y;
    }
    const int loss = tensor(storage(kElement, kLoss, blocks_, -1), kScalar);
    call(kSum, -1, -1, row({x}), row({loss}));
    values = storage(kElement, kBackward, blocks_ + 1, blocks_ + 2);
    call(kOnesLike, -1, -1, row({loss}), row({tensor(values, kScalar)}));
    int gradient = tensor(values, kExpanded);
    for (int i = blocks_ - 1; i >= 0; --i) {
      const int at = first_backward(i);
      const int passed = storage(batch_bytes(), kBackward, at, at + 3);
      const int back = tensor(passed, kBatch);
      call(kMm, i, -1, row({gradient, tensor(2 * i, kWeight)}), row({back}));
      const int of_weight = storage(kElement * kWidth * kWidth, kGradient, at + 1, -1);
      call(kMm, i, -1, row({tensor(storage_of(inputs_[i].asInt()), kBatchTransposed), gradient}),
           row({tensor(of_weight, kWeight)}));
      const int of_bias = storage(kElement * kWidth, kGradient, at + 2, -1);
      call(kSum, i, 1, row({gradient}), row({tensor(of_bias, kBias)}));
      parameter(i, "priority", 2 * i, kWeight, of_weight);
      parameter(i, "bias", 2 * i + 1, kBias, of_bias);
      gradient = back;
    }
    trace_["forwardEnd"] = blocks_;
    trace_["lossEnd"] = blocks_ + 1;
    Json graph;
    graph["format"] = "plimsoll-graph/1";
    graph["name"] = std::to_string(blocks_) + " linear layers";
    graph["producer"]["exporter"] = "0.1.0";
    graph["producer"]["torch"] = "2.15.0";
    graph["producer"]["python"] = "3.11.2";
    graph["batchSize"] = 4;
    graph["traces"].append(std::move(trace_));
    return graph;
  }

 private:
  enum Role { kParameter, kBuffer, kInput, kOutput, kLoss, kActivation, kGradient, kBackward };
  enum Layout { kWeight, kBias, kBatch, kTransposed, kScalar, kExpanded, kBatchTransposed };
  enum Operator { kAddmm, kSum, kOnesLike, kMm };

  static Json batch_bytes() { return row({0, kElement * kWidth}); }
  // Of a block's three: of its input, its priority, its bias.
  int first_backward(int block) const { return blocks_ + 2 + 3 * (blocks_ - 1 - block); }

  int storage(const Json& bytes, Role role, int allocated, int released) {
    trace_["storages"].append(row({bytes, static_cast<int>(role), allocated, released}));
    return static_cast<int>(trace_["storages"].size()) - 1;
  }
  int tensor(int of, Layout layout) {
    trace_["tensors"].append(row({of, static_cast<int>(layout), 0}));
    return static_cast<int>(trace_["tensors"].size()) - 1;
  }
  int storage_of(int tensor) const { return trace_["tensors"][tensor][0].asInt(); }
  void call(Operator name, int block, int attributes, const Json& inputs, const Json& outputs) {
    trace_["operators"].append(row({static_cast<int>(name), block + 1, attributes, inputs, outputs}));
  }
  void parameter(int block, const char* name, int of, Layout layout, int gradient) {
    Json made;
    made["name"] = "blocks." + std::to_string(block) + "." + name;
    made["storage"] = of;
    made["layout"] = static_cast<int>(layout);
    made["dtype"] = 0;
    made["trainable"] = true;
    made["gradient"].append(gradient);
    made["sparseGradient"] = false;
    trace_["parameters"].append(std::move(made));
  }

  const int blocks_;
  Json trace_;
  Json inputs_{::Json::arrayValue};  // tensors
};

}  // namespace

std::string long_graph(int blocks) {
  return write_json(Builder(blocks).build());
}

}  // namespace plimsoll::testing
