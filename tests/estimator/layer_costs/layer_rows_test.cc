#include "estimator/layer_costs/layer_rows.h"

#include <gtest/gtest.h>

#include "estimator/layer_costs/graph_parts.h"
#include "tests/estimator/layer_costs/measured_layers.h"

namespace plimsoll::estimator {
namespace {

// All that the importer checks of a file.
void expect_well_formed(const Trace& rows, const std::string& layer) {
  const auto storages = static_cast<std::int32_t>(rows.storages.size());
  const auto tensors = static_cast<std::int32_t>(rows.tensors.size());
  const auto operators = static_cast<std::int32_t>(rows.operators.size());
  EXPECT_LE(rows.loss_end, operators) << layer;
  for (const TraceTensor& tensor : rows.tensors) {
    EXPECT_LT(tensor.storage, storages) << layer;
  }
  for (const std::int32_t operand : rows.operands) {
    EXPECT_LT(operand, tensors) << layer;
  }
  for (const TraceStorage& storage : rows.storages) {
    EXPECT_LT(storage.allocated_at, operators) << layer;
    EXPECT_LE(storage.released_at, operators) << layer;
    EXPECT_TRUE(storage.released_at < 0 || storage.released_at > storage.allocated_at) << layer;
  }
  for (const TraceSaved& saved : rows.saved) {
    EXPECT_LT(saved.tensor, tensors) << layer;
    EXPECT_LE(saved.packed_at, rows.loss_end) << layer;
    EXPECT_TRUE(saved.unpacked_at < 0 || saved.unpacked_at >= rows.loss_end) << layer;
    EXPECT_LE(saved.released_at, operators) << layer;
  }
  for (const TraceParameter& parameter : rows.parameters) {
    EXPECT_EQ(parameter.gradient.size(), 1U) << layer << ": " << parameter.name;
    EXPECT_EQ(rows.storages[index(parameter.storage)].role, StorageRole::kParameter) << layer;
  }
}

TEST(LayerRows, AreWellFormedTraces) {
  for (const char* const graph :
       {"gpt2", "gpt2-eager-dropout", "llama", "bert", "multilayer", "convolutions"}) {
    const TraceFile file = testing::exported_model(graph);
    const Trace& trace = file.traces.front();
    const Result<GraphParts> parts = graph_parts(trace, nullptr);
    ASSERT_TRUE(parts.ok());
    const Result<GraphCut> cut = GraphCut::of(trace, *parts, nullptr);
    ASSERT_TRUE(cut.ok());
    for (std::size_t layer = 0; layer < cut->layers(); ++layer) {
      expect_well_formed(cut->layer(layer).rows, graph + (" " + parts->names[layer]));
    }
  }
}

TEST(LayerRows, WhatCrossesABorderIsNeverReleased) {
  const TraceFile file = testing::exported_model("multilayer");
  const Result<GraphParts> parts = graph_parts(file.traces.front(), nullptr);
  const Result<GraphCut> cut = GraphCut::of(file.traces.front(), *parts, nullptr);
  ASSERT_TRUE(cut.ok());
  const LayerCut gelu = layer_rows(*cut, 1);
  std::size_t inputs = 0;
  std::size_t held = 0;
  for (const TraceStorage& storage : gelu.rows.storages) {
    inputs += storage.role == StorageRole::kInput && storage.allocated_at < 0 ? 1 : 0;
    held += storage.allocated_at >= 0 && storage.released_at < 0 ? 1 : 0;
  }
  EXPECT_EQ(inputs, 1U);
  EXPECT_EQ(held, 3U) << "the result, its gradient, and the input's";
}

}  // namespace
}  // namespace plimsoll::estimator
