// `plimsoll swap --compare`: the bytes that DP, PP, vDP and vPP move for one profile. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "cli/console.h"
#include "cli/options.h"
#include "estimator/swap/profile.h"
#include "estimator/swap/volumes.h"

namespace plimsoll::cli {

enum class SwapSemantics : std::uint8_t {
  kTable,    // the paper's: the GPUs update layers, and a layer's operands come and go with each task
  kRuntime,  // what plimsoll.harmony does where each layer is a pack: the host updates layers. DP and PP have no such runtime
};

struct SwapComparison {
  estimator::SwapWork work;
  std::int64_t microbatch = 1;
  estimator::SwapRules rules;
  SwapSemantics semantics = SwapSemantics::kTable;
  std::optional<Bytes> capacity{};  // of a GPU

  std::int64_t samples() const { return work.microbatches * microbatch; }
};

// --microbatch, --paging, --fused-turn, --semantics and --capacity. Of a derived profile the microbatch's default is the most, up to 4,
// that divides each GPU's samples.
SwapComparison read_swap_comparison(OptionReader& options, std::int64_t gpus, std::int64_t samples,
                                    bool derived);

// What a GPU must hold at least: the largest layer as a task, forward, backward or updated.
Bytes largest_task(const estimator::SwapProfile& profile, const SwapComparison& comparison);

// `about`: what a derived profile is of; may be empty.
void print_swap_comparison(Console& console, OutputFormat format, const SwapComparison& comparison,
                           const estimator::SwapProfile& profile, const std::string& about = {});

}  // namespace plimsoll::cli
