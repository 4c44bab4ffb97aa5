#include "estimator/speed/kernel_time.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "estimator/estimate/spec_run.h"
#include "estimator/speed/attention_rate.h"

namespace plimsoll::estimator::inline speed {
namespace {

// Efficiency by size, calculon-ai/calculon caa4b11f systems/a100_80g.json and h100_80g_nvl8.json ("mem1" by MB moved), at the lower end of each of its steps; between them by the logarithm of the size.
struct Step {
  double size, share;
};
constexpr Step kMemorySteps[] = {{0.1e6, 0.30}, {1e6, 0.60}, {10e6, 0.75}, {100e6, 0.90}};

// Of what copies and sums reach: microsoft/vidur 7d475133, data/profiling/compute (MIT), 4,096 tokens on A100 and H100: add 88 and 97 % of
// the peak, SiLU 51 and 58 %, rotary 43 and 45 %. PyTorch's LayerNorm, forward and backward: 0.92 TB/s on an A100, 45 %
// (pytorch pull request 87814).
constexpr double kTrafficShares[] = {1.0, 0.6, 0.5};

// Of that, what operators reach within an iteration: calibrated on the development halves of all tables of docs/speed.md together.
// Operators follow each other without the warm caches of a benchmark, and kernels that no operator of the graph stands for
// (gradients that are added, masks, metrics of the loss) move bytes too.
constexpr double kInTraining = 0.67;

// What a product takes beyond its FLOPs at the full rate: to start, for each element of its result, and to fill the
// multiprocessors if the result is small. Least squares over 1,632 products on an A100 and 5,456 on an H100 in 16 bits (median
// error 4 and 6 %), and on H100, H200, B200 and L40S in 8 bits, with the quantisation of the input (8 %): ai-dynamo/aiconfigurator
// 095f58a5, systems/data/*/gemm/trtllm (Apache-2.0).
struct Shapes {
  double start;   // seconds
  double inner;   // the width at which the inner loop takes as long as the rest
  double result;  // the elements at which half the multiprocessors are idle
};
constexpr Shapes kShapes16{.start = 3e-6, .inner = 120, .result = 0.2e6};
constexpr Shapes kShapes8{.start = 12e-6, .inner = 240, .result = 2e6};

bool is_half(ElementType type) {
  return type == ElementType::kBF16 || type == ElementType::kFP16;
}

double share_of(std::span<const Step> steps, double size) {
  if (size <= steps.front().size) {
    return steps.front().share;
  }
  for (std::size_t i = 1; i < steps.size(); ++i) {
    if (size < steps[i].size) {
      const Step& below = steps[i - 1];
      const double part = std::log(size / below.size) / std::log(steps[i].size / below.size);
      return std::lerp(below.share, steps[i].share, part);
    }
  }
  return steps.back().share;
}

}  // namespace

KernelTimes::KernelTimes(const CardSpeed& card, const GpuModel& gpu, const crds::TrainingSpec& training)
    : card_(&card),
      full_(training.precision == crds::Precision::kTF32 ? Arithmetic::kTF32 : Arithmetic::kFP32),
      half_(training.precision == crds::Precision::kFP16Mixed ? Arithmetic::kFP16 : Arithmetic::kBF16),
      bandwidth_(static_cast<double>(gpu.hbm_bandwidth.count)),
      capability_(gpu.compute_capability ? gpu.compute_capability->major * 10 + gpu.compute_capability->minor
                                         : 0),
      flash_(flash_attention_of(spec_torch_version(training))) {}

Result<KernelTimes> KernelTimes::of(const GpuModel& gpu, const crds::TrainingSpec& training) {
  const CardSpeed* const card = find_card_speed(gpu.name);
  if (card == nullptr) {
    return Error(
        ErrorCode::kUnsupported,
        "the speed of " + gpu.name + " is not known: estimator/speed/cards.csv has no figures for it");
  }
  if (gpu.hbm_bandwidth.count <= 0) {
    return Error(ErrorCode::kUnsupported,
                 "the memory bandwidth of " + gpu.name + " is not known: set hbmGBps of its GPUModel");
  }
  const KernelTimes times(*card, gpu, training);
  const bool single =
      training.precision == crds::Precision::kFP32 || training.precision == crds::Precision::kTF32;
  const Arithmetic needed = training.float8 != crds::Float8::kNone ? Arithmetic::kFP8
                            : single                               ? times.full_
                                                                   : times.half_;
  if (card->flops(needed) <= 0) {
    return Error(ErrorCode::kUnsupported,
                 "the speed of " + gpu.name + " in " + name_of(needed) +
                     " is not known: estimator/speed/cards.csv has no figure for it");
  }
  return times;
}

double KernelTimes::memory(double bytes, Traffic traffic) const {
  return bytes / (bandwidth_ * kInTraining * share_of(kMemorySteps, bytes) *
                  kTrafficShares[static_cast<std::size_t>(traffic)]);
}

double KernelTimes::attention(const OperatorWork& work, bool forward) const {
  const double flops = forward ? work.flops : work.backward_flops;
  if (!is_half(work.type)) {
    return flops / card_->matrix_flops(full_);
  }
  const AttentionPasses passes = attention_passes(flash_);
  return flops / (card_->flops(half_) * (forward ? passes.forward : passes.backward) *
                  attention_share(flash_, capability_, work.head_dim, work.tokens, work.causal));
}

double KernelTimes::product(const OperatorWork& work, double elements) const {
  if (elements <= 0) {
    return 0;
  }
  const bool eight = work.kind == WorkKind::kMatrix8;
  const Shapes& shapes = eight ? kShapes8 : kShapes16;
  const double rate = card_->matrix_flops(eight ? Arithmetic::kFP8 : is_half(work.type) ? half_ : full_);
  const double inner = work.flops / (2 * elements);
  // Long sums are split among multiprocessors where the result alone would not fill them (CUTLASS media/docs/efficient_gemm.md,
  // "Parallelized reductions"). The products of the fit have inner widths up to this.
  constexpr double kSplit = 16384;
  const double parts = std::max(1.0, inner / kSplit);
  return shapes.start +
         work.flops / rate * (1 + shapes.inner / inner) * (1 + shapes.result / (elements * parts));
}

double KernelTimes::arithmetic(const OperatorWork& work) const {
  switch (work.kind) {
    case WorkKind::kAttention: return attention(work, true);
    case WorkKind::kMatrix:
    case WorkKind::kMatrix8: return product(work, work.result);
    default: return 0;
  }
}

double KernelTimes::forward(const OperatorWork& work) const {
  return std::max(arithmetic(work), memory(work.bytes, work.traffic));
}

bool KernelTimes::is_arithmetic(const OperatorWork& work) const {
  return arithmetic(work) > memory(work.bytes, work.traffic);
}

double KernelTimes::backward(const OperatorWork& work) const {
  // Each operand's gradient is a product of its own.
  const double computed = work.kind == WorkKind::kAttention
                              ? attention(work, false)
                              : product(work, work.first_gradient) + product(work, work.second_gradient);
  return std::max(computed, memory(work.backward_bytes, work.traffic)) + memory(work.bias_bytes);
}

}  // namespace plimsoll::estimator::speed
