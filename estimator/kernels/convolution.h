// Kernel temporaries of convolutions: on the CPU, oneDNN's blocked copies of input, weight and result; on CUDA,
// cuDNN's workspace: memory that cuDNN allocates from the framework's allocator during a convolution. It affects
// reserved memory more than allocated memory, because large blocks are allocated and freed between the tensors.
//
//   Bytes workspace = convolution_workspace({.batch = 32, .channels = 64, .results = 64, .pixels = 784,
//                                            .result_pixels = 784, .kernel = 9}, "hopper");
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/bytes.h"
#include "estimator/kernels/call.h"

namespace plimsoll::estimator::inline kernels {

enum class ConvolutionPass { kForward, kInputGradient, kWeightGradient };

struct ConvolutionCall {
  ConvolutionPass pass = ConvolutionPass::kForward;
  std::int64_t batch = 1;
  std::int64_t channels = 1;
  std::int64_t results = 1;
  std::int64_t groups = 1;
  std::int64_t pixels = 1;  // of the input
  std::int64_t result_pixels = 1;
  std::int64_t kernel = 1;  // weights for a channel of a result
  std::int64_t element_bytes = 4;
  bool strided = false;
  bool padded = false;
  bool channels_last = false;
};

// The name by which convolution_workspace() knows a card: its family, but for compute capability 8.0 (A100, A30), which takes
// other workspaces than the rest of Ampere.
std::string convolution_family(std::string_view family, bool is_sm80);

// What cuDNN allocates beside the results. `family`: convolution_family(); unknown families count as the newest.
Bytes convolution_workspace(const ConvolutionCall& call, std::string_view family);

// Of the convolutions of a pass, from which the upper bound's margins follow.
struct ConvolutionTotals {
  Bytes traffic;     // inputs and outputs of all
  Bytes transforms;  // the largest of one: see winograd_transforms

  void add(const ConvolutionTotals& other);
};

// Zero for other operators than convolutions of forward.
ConvolutionTotals convolution_totals(std::string_view name, const KernelCall& call);

// Input and output of a 3 x 3 convolution in the domain of Winograd's algorithm F(4 x 4, 3 x 3), whose tiles of 6 x 6
// numbers make 4 x 4 results (arXiv 1509.09308, section 4.1). An algorithm that is not fused keeps both in its
// workspace (cuDNN's CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED). Zero with strides, dilation or groups.
Bytes winograd_transforms(const KernelCall& call);

// cuDNN's workspace for an operator on a card of a convolution_family(); zero for other operators than convolutions. `learned`
// replaces it. It is not a formula of the rule table, because those do not depend on the GPU, and because a
// convolution can run without it.
Bytes cuda_convolution_workspace(std::string_view name, const KernelCall& call, std::string_view family,
                                 std::optional<Bytes> learned);

namespace formula {

Bytes cpu_convolution(const KernelCall& call);
Bytes cpu_convolution_backward(const KernelCall& call);

}  // namespace formula
}  // namespace plimsoll::estimator::kernels
