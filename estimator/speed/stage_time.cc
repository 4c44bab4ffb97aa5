#include "estimator/speed/stage_time.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "estimator/speed/operator_work.h"

namespace plimsoll::estimator::inline speed {
namespace {

using crds::ActivationCheckpointing;

struct OperatorTime {
  WorkKind kind = WorkKind::kNone;
  Spent spent = Spent::kMemory;
  double forward = 0;
  double backward = 0;
  int forward_kernels = 1;
  int backward_kernels = 1;
};

// What the CPU takes for an operator: its code, autograd's, and the launch of its kernel. The GPU waits where its kernels are shorter.
// Measured: a GPT-2 of width 16 on one core with PyTorch 2.15 takes 10 us for each forward or backward operator of a layer, and 0.3 to
// 1.4 ms more for a layer that is recomputed (torch/utils/checkpoint.py saves and restores the random states). The launch itself takes
// 5 to 10 us more.
constexpr double kLaunch = 17.5e-6;
constexpr double kRecomputedBlock = 1e-3;

// The dimensions that attention's parts of keys and values have: sample, head, token, width.
constexpr std::size_t kHeadDims = 4;

OperatorTime exchange_time(const ForwardGraph& graph, const Op& op, const StageOptions& options) {
  const double exposed = options.overlaps_tensor ? occupied_share(options.tensor) : 1;
  const auto whole = [&](TensorId id) { return static_cast<double>(graph.bytes(id, options.batch).count); };
  const double out = whole(op.outputs[0]);
  OperatorTime time{.kind = WorkKind::kCollective, .spent = Spent::kTensor};
  switch (op.kind) {
    case OpKind::kAllToAll:
      time.spent = Spent::kExpert;
      time.forward = collective_seconds(Collective::kAllToAll, out, options.expert, options.links);
      time.backward = time.forward;
      return time;
    case OpKind::kAllGather: {
      // Keys and values are gathered by the context group, activations by the tensor group.
      const bool heads = graph.shape_of(op.outputs[0]).size() == kHeadDims;
      const Group& group = heads ? options.context : options.tensor;
      const double share = heads ? 1 : exposed;
      time.spent = heads ? Spent::kContext : Spent::kTensor;
      time.forward = share * collective_seconds(Collective::kAllGather, out, group, options.links);
      time.backward = share * collective_seconds(Collective::kReduceScatter, out, group, options.links);
      return time;
    }
    case OpKind::kReduceScatter: {
      const double in = whole(op.inputs[0]);
      time.forward =
          exposed * collective_seconds(Collective::kReduceScatter, in, options.tensor, options.links);
      time.backward = exposed * collective_seconds(Collective::kAllGather, in, options.tensor, options.links);
      return time;
    }
    case OpKind::kAllReduce:
      time.forward = exposed * collective_seconds(Collective::kAllReduce, out, options.tensor, options.links);
      return time;
    default:  // kCopyToRegion
      time.backward =
          exposed * collective_seconds(Collective::kAllReduce, out, options.tensor, options.links);
      return time;
  }
}

// None for an operator whose results all stay in registers: it is a part of another's kernel.
int forward_kernels(const OperatorWork& work) {
  return work.bytes > 0 ? 1 : 0;
}

int backward_kernels(const OperatorWork& work) {
  const bool product = work.kind == WorkKind::kMatrix || work.kind == WorkKind::kMatrix8;
  const int kernels = product ? (work.first_gradient > 0 ? 1 : 0) + (work.second_gradient > 0 ? 1 : 0)
                              : (work.backward_bytes > 0 ? 1 : 0);
  return kernels + (work.bias_bytes > 0 ? 1 : 0);
}

OperatorTime time_of(const ForwardGraph& graph, std::int32_t index, const KernelTimes& times,
                     const StageOptions& options, const WorkOptions& work_options) {
  const OperatorWork work = work_of(graph, index, work_options);
  if (work.kind == WorkKind::kCollective) {
    return exchange_time(graph, graph.op(index), options);
  }
  if (work.kind == WorkKind::kNone) {
    return {};
  }
  const Spent spent = !times.is_arithmetic(work)          ? Spent::kMemory
                      : work.kind == WorkKind::kAttention ? Spent::kAttention
                                                          : Spent::kMatrix;
  return {.kind = work.kind,
          .spent = spent,
          .forward = times.forward(work),
          .backward = times.backward(work),
          .forward_kernels = forward_kernels(work),
          .backward_kernels = backward_kernels(work)};
}

// kSelective keeps the results of products, attention and reduce-scatters; kSelectiveHalf those of every second product
// (estimator/trace/liveness.cc).
class Recomputed {
 public:
  explicit Recomputed(ActivationCheckpointing checkpointing) : checkpointing_(checkpointing) {}

  double seconds(const Op& op, const OperatorTime& time) {
    if (op.block < 0 || checkpointing_ == ActivationCheckpointing::kNone) {
      return 0;
    }
    const bool half = checkpointing_ == ActivationCheckpointing::kSelectiveHalf;
    if (!half && checkpointing_ != ActivationCheckpointing::kSelective) {
      return time.forward;
    }
    if (time.kind == WorkKind::kMatrix || time.kind == WorkKind::kMatrix8) {
      return half && ++products_ % 2 == 0 ? time.forward : 0;
    }
    return time.kind == WorkKind::kAttention || op.kind == OpKind::kReduceScatter ? 0 : time.forward;
  }

 private:
  ActivationCheckpointing checkpointing_;
  std::int64_t products_ = 0;
};

void add_parameters(StageTime& stage, const ForwardGraph& graph) {
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.role != TensorRole::kParameter) {
      continue;
    }
    UnitTime& unit = stage.units[tensor.unit];
    const double elements =
        static_cast<double>(elements_of(graph.shapes()[static_cast<std::size_t>(tensor.shape)], 1).count) *
        static_cast<double>(tensor.count);
    const double trained = tensor.requires_grad ? elements : 0;
    // Experts have a parameter each, or one with all of them along its first dimension (estimator/execute/run_trace.cc).
    constexpr std::size_t kOfExperts = 3;
    const bool expert =
        tensor.expert || graph.shapes()[static_cast<std::size_t>(tensor.shape)].size() == kOfExperts;
    (expert ? unit.expert_parameters : unit.parameters) += elements;
    (expert ? unit.expert_trained : unit.trained) += trained;
    unit.width = static_cast<double>(width_bytes(tensor.type));
  }
}

}  // namespace

double StageTime::seconds() const {
  return std::accumulate(spent.begin(), spent.end(), 0.0);
}

double StageTime::forward_seconds() const {
  const double run = std::accumulate(units.begin(), units.end(), 0.0,
                                     [](double sum, const auto& unit) { return sum + unit.second.forward; });
  return std::max(run, forward_kernels * kLaunch);
}

double StageTime::backward_seconds() const {
  const double run = std::accumulate(units.begin(), units.end(), 0.0,
                                     [](double sum, const auto& unit) { return sum + unit.second.backward; });
  return std::max(run, backward_kernels * kLaunch);
}

void StageTime::wait_for_cpu(double recomputed_blocks) {
  const double kernels = forward_kernels + backward_kernels;
  of(Spent::kLaunch) += std::max(0.0, kernels * kLaunch + recomputed_blocks * kRecomputedBlock - seconds());
}

StageTime stage_time(const ForwardGraph& graph, const KernelTimes& times, const StageOptions& options) {
  StageTime stage;
  add_parameters(stage, graph);
  const WorkOptions work_options{.batch = options.batch,
                                 .causal = options.causal,
                                 .fusion = options.fusion,
                                 .in_registers = options.fusion != Fusion::kNone
                                                     ? tensors_in_registers(graph, options.fusion)
                                                     : std::vector<bool>()};
  Recomputed recomputed(options.checkpointing);
  std::int64_t blocks = 0;  // that are recomputed
  std::int32_t block = -1;
  std::vector<OperatorTime> known(static_cast<std::size_t>(graph.op_count()));
  charge(options.budget, static_cast<std::uint64_t>(graph.op_count()) + graph.tensors().size());
  for (std::int32_t i = 0; i < graph.op_count(); ++i) {
    const Op op = graph.op(i);
    // A copy of a layer takes as long as the layer.
    OperatorTime& time = known[static_cast<std::size_t>(i)];
    time = op.like >= 0 && op.like != i ? known[static_cast<std::size_t>(op.like)]
                                        : time_of(graph, i, times, options, work_options);
    const double again = recomputed.seconds(op, time);
    UnitTime& unit = stage.units[op.unit];
    unit.forward += time.forward;
    unit.backward += time.backward + again;
    stage.of(time.spent) += time.forward + time.backward;
    stage.of(Spent::kRecompute) += again;
    if (again > 0 && op.block != block) {
      block = op.block;
      ++blocks;
    }
    const int forward = time.forward > 0 ? time.forward_kernels : 0;
    stage.forward_kernels += forward;
    stage.backward_kernels += (again > 0 ? forward : 0) + (time.backward > 0 ? time.backward_kernels : 0);
  }
  stage.wait_for_cpu(static_cast<double>(blocks));
  return stage;
}

}  // namespace plimsoll::estimator::speed
