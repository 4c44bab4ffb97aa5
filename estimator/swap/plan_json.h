// A swap plan as JSON: what `plimsoll swap` prints and plimsoll.harmony executes (docs/harmony.md, What a plan says). Pure; any thread.
#pragma once

#include "base/bytes.h"
#include "base/json/edit.h"
#include "base/json/view.h"
#include "base/result.h"
#include "estimator/swap/packed_volumes.h"
#include "estimator/swap/planner.h"

namespace plimsoll::estimator::inline swap {

// {mode, gpus, batchSize, layers, microbatch: {forward, backward}, packs: {forward, backward}, prefetch, p2p, mirrored, resident}
JsonObject to_json(const SwapPlan& plan, std::size_t layers);

// And {weightBytes, inputBytes, deviceBytes, peakDeviceBytes, iterationSeconds, lowerBoundSeconds, volumes, hostBytes}. `capacity`: of a GPU;
// zero: not known, and no deviceBytes.
JsonObject to_json(const PlannedSwap& planned, std::size_t layers, Bytes capacity);

// Those of SwapVolumes, and {weightsIn, gradientsOut, inputs, reduced}. `swapped` has the inputs too.
JsonObject to_json(const SwapPlan& plan, const PackedVolumes& packed);

// A plan for `layers` layers; other members are left alone. Errors: kInvalid naming the member.
Result<SwapPlan> read_swap_plan(const JsonView& json, std::size_t layers);

}  // namespace plimsoll::estimator::swap
