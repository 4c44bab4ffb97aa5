// What torch.distributed.pipelining, by PyTorch's version, and Megatron-LM keep of a stage's exchanges with its neighbours.
//
//   const StageMemory memory = stage_memory_of(206, 2, crds::ParallelStrategy::kFSDP2);
//   if (memory.buffers_stay) ...
//
// Sources: torch/distributed/pipelining/stage.py and schedules.py of 2.6.0 and 2.15.0; both were run
// (tests/accuracy/parallel/measure_stages.py). megatron/core/pipeline_parallel/schedules.py (0.16.1) keeps none of it: a stage
// frees its output once it is sent (deallocate_output_tensor), and of the last one only the losses are left. Pure; any thread.
#pragma once

#include <cstdint>

#include "crds/enums.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline parallel {

struct StageMemory {
  // _prepare_forward_infra and _prepare_backward_infra make the receive buffers of all micro-batches once.
  bool buffers_stay = false;
  // forward_one_chunk keeps each output in output_chunks until the next step().
  bool outputs_stay = false;
  // The last stage's stay, and step() concatenates them (_merge_outputs).
  bool last_outputs_stay = false;
  // A gradient that was sent is its receive buffer's .grad until the next step(), or the schedule waits for
  // all sends at its end.
  bool sent_gradients_stay = false;
  // The autograd graph of the last stage's losses refers to what the stage received.
  bool last_inputs_stay = false;
  // backward_maybe_with_nosync ends without FSDP's final callback, so the input of the last reduce-scatter stays.
  bool last_scatter_stays = false;
};

StageMemory stage_memory_of(TorchVersion version, std::int64_t chunks, crds::ParallelStrategy strategy);

}  // namespace plimsoll::estimator::parallel
