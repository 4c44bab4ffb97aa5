#include "estimator/host_training/host_memory.h"

#include "base/json/edit.h"

namespace plimsoll::estimator::inline host_training {
namespace {

// Of a process, besides the tensors: CUDA's context, PyTorch's libraries and the user's data. Of the tensors, a tenth more for
// what is copied. Training T5-11B through host memory took 234 GB with one process, 20.7 bytes a parameter, where
// weights, gradients and Adam's states are 16 to 18 (huggingface/transformers issue 9996).
constexpr Bytes kProcess = 4_GiB;
constexpr double kMargin = 1.1;
// Of a DataLoader's worker, a fork of its trainer: what it writes to of the pages that it shares with it (tests/accuracy/loader_workers.py), and PyTorch's
// default of two batches each that wait (torch/utils/data/dataloader.py, prefetch_factor).
constexpr Bytes kWorker = 256_MiB;
constexpr std::int64_t kBatchesOfWorker = 2;

}  // namespace

Bytes container_memory(Bytes tensors, std::int64_t processes) {
  return Bytes::ceil(static_cast<double>(tensors.count) * kMargin) + kProcess * processes;
}

Bytes tensors_within(Bytes container, std::int64_t processes) {
  return Bytes{
      static_cast<std::int64_t>(static_cast<double>((container - kProcess * processes).count) / kMargin)};
}

HostDemand host_demand(const crds::TrainingSpec& training, const Estimate& estimate, std::int64_t processes) {
  using enum crds::CheckpointLoading;
  HostDemand demand;
  demand.processes = kProcess * processes;
  const std::int64_t workers = training.data_loader_workers * processes;
  demand.workers = (kWorker + estimate.breakdown.inputs * kBatchesOfWorker) * workers;
  demand.tensors = Bytes::ceil(static_cast<double>((estimate.host.total() * processes).count) * kMargin);
  const std::int64_t copies = training.checkpoint_loading == kEveryRank   ? processes
                              : training.checkpoint_loading == kFirstRank ? 1
                                                                          : 0;
  demand.loading = estimate.dense_parameters * copies;
  return demand;
}

Json to_json(const HostDemand& demand) {
  return json_object({{"processes", demand.processes.count},
                      {"workers", demand.workers.count},
                      {"tensors", demand.tensors.count},
                      {"loading", demand.loading.count},
                      {"total", demand.total().count}});
}

std::string text_of(const HostDemand& demand) {
  std::string text;
  const auto add = [&](Bytes bytes, const char* what) {
    if (bytes > Bytes{}) {
      text += (text.empty() ? "" : ", ") + to_string(bytes) + " of " + what;
    }
  };
  add(demand.processes, "processes");
  add(demand.workers, "the data loaders' workers");
  add(demand.loading > demand.tensors ? demand.loading : Bytes{}, "the checkpoint while it is loaded");
  add(demand.loading > demand.tensors ? Bytes{} : demand.tensors, "tensors on the host");
  return text;
}

}  // namespace plimsoll::estimator::host_training
