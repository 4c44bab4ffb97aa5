#include "estimator/host_training/host_memory.h"

namespace plimsoll::estimator::inline host_training {
namespace {

// Of a process, besides the tensors: CUDA's context, PyTorch's libraries and the user's data. Of the tensors, a tenth more for
// what is copied. Training T5-11B through host memory took 234 GB with one process, 20.7 bytes a parameter, where
// weights, gradients and Adam's states are 16 to 18 (huggingface/transformers issue 9996).
constexpr Bytes kProcess = 4_GiB;
constexpr double kMargin = 1.1;

}  // namespace

Bytes container_memory(Bytes tensors, std::int64_t processes) {
  return Bytes::ceil(static_cast<double>(tensors.count) * kMargin) + kProcess * processes;
}

Bytes tensors_within(Bytes container, std::int64_t processes) {
  return Bytes{
      static_cast<std::int64_t>(static_cast<double>((container - kProcess * processes).count) / kMargin)};
}

}  // namespace plimsoll::estimator::host_training
