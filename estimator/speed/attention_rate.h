// attention_share(): the share of a card's 16-bit peak that FlashAttention-2 reaches, forward and backward together.
//
//   attention_share(FlashAttention::kSecond, 90, 128, 8192, true);   // compute capability 9.0, heads of 128, 8,192 tokens, causal: 0.32
//
// Measured on A100 and H100 (attention.csv), interpolated by the logarithm of the number of tokens. Other cards take the share
// of the closest older one of the two. FlashAttention-2 uses none of what Hopper added (warpgroup products, TMA; arXiv
// 2407.08608 section 1), so its share falls there. Any thread.
#pragma once

#include <cstdint>

#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline speed {

// PyTorch has FlashAttention-2 since 2.2 (release notes: scaled_dot_product_attention).
enum class FlashAttention : std::uint8_t { kFirst, kSecond };
FlashAttention flash_attention_of(TorchVersion version);

// The speed of each pass relative to that of both together, in which backward has 2.5 times the FLOPs of forward. Forward reaches 30 to
// 50 % of the peak and backward 25 to 35 % with the first, 73 and 63 % at best with the second (arXiv 2307.08691 section 1).
struct AttentionPasses {
  double forward, backward;
};
AttentionPasses attention_passes(FlashAttention flash);

// `capability`: major * 10 + minor, as nvcc writes it.
double attention_share(FlashAttention flash, std::int64_t capability, std::int64_t head_dim,
                       std::int64_t tokens, bool causal);

}  // namespace plimsoll::estimator::speed
