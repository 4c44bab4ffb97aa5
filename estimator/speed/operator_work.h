// work_of(): what one operator of a forward graph computes and moves, forward and backward.
//
//   OperatorWork work = work_of(graph, i, {.batch = 4, .causal = true});
//   work.flops, work.backward_flops;     // of products of matrices and of attention
//   work.bytes, work.backward_bytes;     // read and written in the GPU's memory
//
// A product of [m, k] and [k, n] is 2 m n k FLOPs, and as many again for each operand that needs a gradient. Attention is two
// products of queries with keys and values, 4 b h s s d, half of it if causal; its backward is 2.5 times that, because it
// recomputes the scores (arXiv 2205.14135 section 3.1; five products instead of two). Any other operator only moves its operands. With
// `fused`, a result that only elementwise operators read is never written: torch.compile and Megatron-LM's kernels keep
// it in registers (torch/_inductor/scheduler.py: can_fuse; Megatron-LM megatron/core/fusions). Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "estimator/spec/forward_graph.h"

namespace plimsoll::estimator::inline speed {

// How well kernels use the memory's bandwidth (kernel_time.cc).
enum class Traffic : std::uint8_t { kStream, kActivation, kNorm };

enum class WorkKind : std::uint8_t { kMemory, kMatrix, kMatrix8, kAttention, kCollective, kNone };

struct OperatorWork {
  WorkKind kind = WorkKind::kNone;
  Traffic traffic = Traffic::kStream;
  ElementType type = ElementType::kFP32;  // of the operands
  double flops = 0;
  double backward_flops = 0;
  double bytes = 0;
  double backward_bytes = 0;
  double bias_bytes = 0;  // of the kernel that sums a product's bias gradient
  // Of products: the elements of the result, and of the operands whose gradients backward computes (0: it does not).
  double result = 0, first_gradient = 0, second_gradient = 0;
  std::int64_t head_dim = 0;  // of attention, as tokens
  std::int64_t tokens = 0;
  bool causal = true;
};

// kMegatron: the dropout of attention's scores is a kernel of its own (Megatron-LM megatron/core/transformer/dot_product_attention.py), and
// so are the steps around experts with biases.
enum class Fusion : std::uint8_t { kNone, kMegatron, kCompiled };

struct WorkOptions {
  std::int64_t batch = 1;
  bool causal = true;
  Fusion fusion = Fusion::kNone;
  // By tensor: true for those that are never written. Empty: none.
  std::vector<bool> in_registers{};
};

// Tensors that elementwise operators make and only elementwise operators read.
std::vector<bool> tensors_in_registers(const ForwardGraph& graph, Fusion fusion);

OperatorWork work_of(const ForwardGraph& graph, std::int32_t op, const WorkOptions& options);

}  // namespace plimsoll::estimator::speed
