// stage_time(): one micro-batch through the part of a model that one trainer holds, unit by unit. A unit is what FSDP gathers
// together: a layer, or the rest (-1).
//
//   StageTime stage = stage_time(graph, times, options);
//   stage.units.at(3).forward;
//
// Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "base/budget.h"
#include "crds/training_job.h"
#include "estimator/spec/forward_graph.h"
#include "estimator/speed/collectives.h"
#include "estimator/speed/kernel_time.h"
#include "estimator/speed/operator_work.h"

namespace plimsoll::estimator::inline speed {

// What a micro-batch spends its time on.
enum class Spent : std::uint8_t {
  kMatrix,
  kAttention,
  kMemory,
  kRecompute,
  kTensor,
  kContext,
  kExpert,
  kLaunch
};
inline constexpr std::size_t kSpents = static_cast<std::size_t>(Spent::kLaunch) + 1;

struct UnitTime {
  double forward = 0;
  double backward = 0;  // with what is recomputed
  double parameters = 0;
  double trained = 0;
  double expert_parameters = 0;
  double expert_trained = 0;
  double width = 4;  // bytes of a parameter as it is computed with
};

struct StageTime {
  std::map<std::int32_t, UnitTime> units;
  std::array<double, kSpents> spent{};  // kLaunch: the time for which the GPU waits for the CPU
  double forward_kernels = 0;           // that the CPU launches
  double backward_kernels = 0;          // with what is recomputed

  double& of(Spent spent_on) { return spent[static_cast<std::size_t>(spent_on)]; }
  double seconds() const;
  // Each pass alone, with waiting for the CPU.
  double forward_seconds() const;
  double backward_seconds() const;
  // Adds what the CPU takes longer to launch all kernels, with recomputed blocks among them, than they run.
  void wait_for_cpu(double recomputed_blocks);
};

struct StageOptions {
  std::int64_t batch = 1;  // samples of a micro-batch
  bool causal = true;
  Fusion fusion = Fusion::kNone;  // which operators keep what passes between them in registers
  crds::ActivationCheckpointing checkpointing = crds::ActivationCheckpointing::kNone;
  Group tensor{}, context{}, expert{};
  Links links{};
  bool overlaps_tensor = false;  // computation hides what the tensor group exchanges
  Budget* budget = nullptr;      // one unit for each operator; null: no limit
};

StageTime stage_time(const ForwardGraph& graph, const KernelTimes& times, const StageOptions& options);

}  // namespace plimsoll::estimator::speed
