#include "estimator/parallel/optimizer_support.h"

#include <string>

#include "estimator/trace/optimizer.h"

namespace plimsoll::estimator::inline parallel {

Result<void> check_optimizer(crds::Optimizer optimizer, const crds::Parallelism& parallelism,
                             std::int64_t replicas, bool dtensors) {
  using enum crds::ParallelStrategy;
  const std::string name = crds::name_of(optimizer);
  const bool fsdp2 = parallelism.strategy == kFSDP2 && replicas > 1;
  // bitsandbytes' operators have no sharding strategy, so PyTorch refuses to run them on DTensors.
  if (is_of_bitsandbytes(optimizer) && (fsdp2 || dtensors)) {
    return Error(ErrorCode::kUnsupported,
                 name + " is bitsandbytes', which cannot update the DTensors of " +
                     (fsdp2 ? "FSDP2" : "tensor parallelism") +
                     "; choose another optimizer, or another parallelism.strategy (DDP, FSDP, ZeRO1)");
  }
  // DeepSpeed and FSDP update what they offload on the host, where bitsandbytes has no kernels of its own.
  if (is_of_bitsandbytes(optimizer) && parallelism.offload != crds::Offload::kNone) {
    return Error(ErrorCode::kUnsupported,
                 name + " updates on the GPU; with parallelism.offload choose Adam, AdamW or Adagrad");
  }
  // Flat parameters are vectors, which torch.optim.Muon refuses; what its products of DTensors gather is not
  // modelled.
  const bool sharded = replicas > 1 && parallelism.strategy != kAuto && parallelism.strategy != kDDP &&
                       parallelism.strategy != kZeRO1;
  if (optimizer == crds::Optimizer::kMuon && (sharded || parallelism.tensor > 1)) {
    return Error(ErrorCode::kUnsupported,
                 "Muon needs whole matrices: choose parallelism.strategy DDP or ZeRO1, without tensor "
                 "parallelism, or another optimizer");
  }
  return {};
}

}  // namespace plimsoll::estimator::parallel
