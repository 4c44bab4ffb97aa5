// layer_profile(): the profile that `plimsoll swap` plans from, of any model that can be estimated, without running it: what each
// of its layers takes when it is a task of its own.
//
//   Result<SwapProfile> profile = layer_profile({.job = request, .microbatches = {1, 2, 4, 8}});
//   Result<PlannedSwap> planned = plan_swap({.profile = &*profile, .gpus = 4, .samples = 64, .capacity = 10_GiB, .machine = machine});
//
// Layers are those that trainer/plimsoll/harmony/layers.py makes of the same model, so that plimsoll.harmony can execute the plan: of a
// transformer the embedding, each block, and the final norm with the head; of an exported nn.Sequential its children; of another
// exported model what comes before its repeated blocks, each block, and what comes after. Bytes are bounds, by the estimator's
// own execution of each layer alone (layer_memory.h). Times are those of estimator/speed, and of the optimizer on the host by
// host_update.h. docs/harmony.md, Profiles, compares them with measured ones. Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "estimator/swap/profile.h"
#include "estimator/types/request.h"

namespace plimsoll::estimator::inline layer_costs {

// How plimsoll.harmony trains it: precision BF16Mixed as `precision=torch.bfloat16`, which moves weights and gradients in 16 bits and
// keeps fp32 weights on the host; the others as the model's own. Backward computes each layer again, so activation checkpointing
// changes nothing; microbatches take the place of gradient accumulation, and the plan of parallelism.strategy.
struct LayerProfileRequest {
  EstimateRequest job;  // model, training, graph; gpu: required. Of the batch nothing is used
  std::vector<std::int64_t> microbatches;  // rising
};

// Errors: kUnsupported where there is no list of layers (a model with embedding tables, an encoder-decoder, a graph without repeated
// blocks), where training has what plimsoll.harmony has not (splits of layers, fine-tuning, compilation, FP16Mixed, optimizers of
// bitsandbytes), and where the card's times are not known; kInvalid for microbatches that are none, and what estimate_memory() has.
// Throws the budget's BudgetExceeded.
Result<SwapProfile> layer_profile(const LayerProfileRequest& request);

// What a card leaves of `usable`, its memory less the headroom, for layers: without the CUDA context and the workspaces of cuBLAS.
Bytes swap_capacity(const EstimateRequest& job, Bytes usable);

}  // namespace plimsoll::estimator::layer_costs
