// What a job demands of a card beside memory, and which cards cannot meet it: its precision, its attention kernels,
// FP8, and the versions of PyTorch and CUDA that its graph was recorded with, or the version of PyTorch that it names.
//
//   const CardDemands demands = demands_of(job.spec, graph);
//   const std::string why_not = why_it_cannot_run(demands, gpu);   // empty: it can
//
// Pure; any thread.
#pragma once

#include <string>

#include "crds/training_job.h"
#include "estimator/catalog/capabilities.h"
#include "estimator/catalog/inventory.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline provisioner {

// Empty texts: not demanded. Else what demands it, for messages.
struct CardDemands {
  std::string bf16;
  std::string tf32;
  std::string fp16;
  std::string fp8;
  std::string flash_attention_2;
  std::string flash_attention_3;
  TorchBuild build{};  // of the graph, else as the job says; 0: unknown
  std::string build_source = "the graph's";
  bool allow_emulation = false;  // of the precisions; FP8 and the rest have no emulation
};

// `graph` may be null.
CardDemands demands_of(const crds::TrainingJobSpec& spec, const TraceFile* graph);

// One sentence without a period. Empty when nothing is known against it.
std::string why_it_cannot_run(const CardDemands& demands, const AvailableGpu& gpu);

}  // namespace plimsoll::estimator::provisioner
