#include "estimator/execute/prepared_trace.h"

#include <algorithm>
#include <string>
#include <utility>

namespace plimsoll::estimator::inline execute {
namespace {

// The gradients that are complete after each operator.
TimeTable complete_gradients(const Trace& trace) {
  std::vector<std::int32_t> last(trace.storages.size(), -1);
  for (std::size_t op = index(trace.loss_end); op < trace.operators.size(); ++op) {
    const Span outputs = trace.operators[op].outputs;
    for (std::int32_t at = outputs.begin; at < outputs.begin + outputs.size; ++at) {
      const std::int32_t tensor = trace.operands[index(at)];
      const std::int32_t storage = tensor < 0 ? -1 : trace.tensors[index(tensor)].storage;
      if (storage >= 0 && trace.storages[index(storage)].role == StorageRole::kGradient) {
        last[index(storage)] = static_cast<std::int32_t>(op);
      }
    }
  }
  return TimeTable(last, trace.operators.size());
}

}  // namespace

Result<void> check_request(const Trace& trace, const TraceRunRequest& request) {
  constexpr std::int64_t kMaxBatch = std::int64_t{1} << 32;
  if (request.batch < 1 || request.batch > kMaxBatch) {
    return invalid("the batch size must be from 1 to " + std::to_string(kMaxBatch) + ", is " +
                   std::to_string(request.batch));
  }
  const std::int64_t parts = request.gradient_accumulation;
  if (parts < 1 || request.batch % parts != 0) {
    return invalid("gradient accumulation must divide the batch of " + std::to_string(request.batch) +
                   ", is " + std::to_string(parts));
  }
  if (trace.batch_sizes.size() == 1 && trace.batch_sizes.front() != request.batch / parts) {
    return invalid("the graph was recorded only at batch " + std::to_string(trace.batch_sizes.front()) +
                   " and is not valid for other batch sizes; export it again with --batch-size " +
                   std::to_string(request.batch / parts));
  }
  using enum crds::ParallelStrategy;
  const crds::ParallelStrategy strategy = request.replication.strategy;
  if (request.averaged_model && request.replication.replicas > 1 && strategy != kAuto && strategy != kDDP &&
      strategy != kZeRO1) {
    return Error(ErrorCode::kUnsupported,
                 std::string("training.averagedModel copies whole parameters, which ") +
                     crds::name_of(strategy) + " does not have; choose DDP or ZeRO1");
  }
  const bool sparse = std::any_of(trace.parameters.begin(), trace.parameters.end(),
                                  [](const TraceParameter& each) { return each.sparse_gradient; });
  if (!request.set_to_none && sparse) {
    return Error(ErrorCode::kUnsupported,
                 "training.setToNone: false keeps gradients, which is not modelled for sparse ones; set them "
                 "to none");
  }
  const Replication& replication = request.replication;
  if (!request.set_to_none && (replication.steps_in_backward || replication.reduces_once ||
                               replication.offload != crds::Offload::kNone)) {
    return Error(ErrorCode::kUnsupported,
                 "training.setToNone: false keeps gradients on the GPU; it cannot be combined with "
                 "optimizerInBackward, parallelism.offload or the pipeline of a transformer");
  }
  return {};
}

Result<PreparedTrace> prepare_trace(const Trace& trace, const TraceProducer& producer,
                                    const TraceRunRequest& request) {
  BudgetBytes memory(request.budget, memory_of(trace));
  Result<TraceShapes> shapes =
      TraceShapes::at(trace, request.batch / request.gradient_accumulation,
                      {.halve_floats = request.halve_floats, .budget = request.budget});
  if (!shapes) {
    return shapes.error();
  }
  Result<TracePlan> plan =
      request.between
          ? plan_forward_only(trace, request.budget)
          : plan_trace(trace, request.reentrant_checkpointing ? 0 : producer.version, request.checkpointing,
                       request.checkpoint_modules, request.budget, request.compiled);
  if (!plan) {
    return plan.error();
  }
  Result<KernelTemporaries> kernels =
      kernel_temporaries(trace, *shapes, producer,
                         {.gpu_family = request.gpu_family,
                          .convolution_workspace = request.convolution_workspace,
                          .lenient = request.lenient,
                          .budget = request.budget});
  if (!kernels) {
    return kernels.error();
  }
  std::vector<SteppedParameter> parameters = stepped_parameters(trace, *shapes);
  std::vector<SteppedParameter> frozen = frozen_parameters(trace, *shapes);
  return PreparedTrace{.memory = std::move(memory),
                       .shapes = *std::move(shapes),
                       .plan = *std::move(plan),
                       .units = units_of(trace, request.root_returns_loss),
                       .kernels = *std::move(kernels),
                       .parameters = std::move(parameters),
                       .frozen = std::move(frozen),
                       .complete_gradients = complete_gradients(trace),
                       .lookups = lookups_of(trace, request.budget)};
}

}  // namespace plimsoll::estimator::execute
