#include "estimator/estimate/margins.h"

#include <algorithm>

#include "estimator/estimate/spec_run.h"

namespace plimsoll::estimator::inline estimate {
namespace {

Bytes share_of(Bytes bytes, double share) {
  return Bytes::ceil(static_cast<double>(bytes.count) * share);
}

// The largest block that another stream than the computation's allocates.
Bytes largest_of_other_streams(const Ledger& ledger) {
  Bytes largest;
  for (const Ledger::Block& block : ledger.blocks()) {
    if (block.stream != kComputeStream) {
      largest = std::max(largest, block.bytes);
    }
  }
  return largest;
}

// The A100, the A30, and the H100 and its kin. Published runs on an A100 (tests/accuracy/published_gpu.json, imagenet) and
// measured ones on an H100 (tests/accuracy/measured_gpu) take far more than is simulated where 3 x 3 convolutions are
// large; those on 8.6 and 8.9 do not. Nothing is known of newer ones.
bool may_transform(const EstimateRequest& request) {
  constexpr ComputeCapability kSm80 = {.major = 8, .minor = 0};
  constexpr ComputeCapability kSm90 = {.major = 9, .minor = 0};
  return request.gpu != nullptr &&
         (request.gpu->compute_capability == kSm80 || request.gpu->compute_capability == kSm90);
}

// Tables' pipeline has its batches in flight already.
bool next_batch_is_uncertain(const EstimateRequest& request) {
  const bool pipelined = request.model != nullptr && !request.model->tables().empty();
  return !request.next_batch_early && !pipelined;
}

// Experts' tensors are the largest of a model, and whether they fit into what is free depends most on where small ones lie.
bool keeps_casts_beside_experts(const EstimateRequest& request) {
  const crds::TrainingSpec* const training = request.training;
  if (request.model == nullptr || !request.model->transformer || training == nullptr ||
      !caches_casts(*training) ||
      training->activation_checkpointing == crds::ActivationCheckpointing::kNone) {
    return false;
  }
  const Result<TransformerSpec> spec = transformer_spec(*request.model->transformer);
  return spec && spec->experts > 0;
}

}  // namespace

std::vector<Margin> margins_of(const EstimateRequest& request, const Ledger& ledger, const Breakdown& parts,
                               const ConvolutionTotals& convolutions) {
  std::vector<Margin> margins = {
      {.name = "simulation",
       .bytes = share_of(parts.gradients + parts.activations + parts.temporaries, kSimulationMargin),
       .source =
           "order of operators, and what kernels take inside: 12 % of gradients, activations "
           "and temporaries; torchtitan's Llama 3.1 405B with 4 trainers a sample takes 11.8 % of them more than "
           "simulated"},
      {.name = "userAllocations",
       .bytes = kSegmentOfEachPool,
       .source = "metrics, logs and schedules of the user's code: one more segment of each pool "
                 "(c10/cuda/CUDACachingAllocator.cpp: kSmallBuffer 2 MiB, kLargeBuffer 20 MiB)"}};
  if (keeps_casts_beside_experts(request)) {
    margins.push_back(
        {.name = "keptCasts",
         .bytes = share_of(parts.gradients + parts.activations + parts.temporaries, kKeptCastsMargin),
         .source =
             "where the copies of weights that autocast keeps until forward ends lie among checkpointed "
             "activations and experts: a Mixtral on an H100 takes 3.1 % more than the bound without this "
             "margin (tests/accuracy/measured_gpu); three dense runs take no more than is simulated"});
  }
  if (convolutions.traffic.count > 0) {
    margins.push_back({.name = "cudnn",
                       .bytes = share_of(convolutions.traffic, kCudnnMargin),
                       .source =
                           "which algorithms cuDNN's heuristics choose, and their workspaces "
                           "(aten/src/ATen/native/cudnn/Conv_v8.cpp): 8 % of what convolutions read and "
                           "write; the largest excess of xMem's development runs"});
  }
  if (convolutions.transforms.count > 0 && may_transform(request)) {
    margins.push_back(
        {.name = "cudnnTransforms",
         .bytes = convolutions.transforms,
         .source =
             "on compute capability 8.0 and 9.0, the largest 3 x 3 convolution in the domain of Winograd's "
             "algorithm (arXiv 1509.09308): the largest workspace whose size is published; VGG16 at "
             "batch 128 takes 6.2 GiB more than is simulated on an A100, and 5.1 GiB on an H100"});
  }
  if (next_batch_is_uncertain(request) && parts.inputs.count > 0) {
    margins.push_back({.name = "nextBatch",
                       .bytes = parts.inputs,
                       .source = "loaders may bring the next batch while the last one is there "
                                 "(accelerate/data_loader.py, DataLoaderShard)"});
  }
  if (const Bytes largest = largest_of_other_streams(ledger); largest.count > 0) {
    margins.push_back({.name = "streams",
                       .bytes = largest,
                       .source =
                           "a block of another stream is reused only once that stream has finished with it "
                           "(c10/cuda/CUDACachingAllocator.cpp, insert_events): one more of the largest"});
  }
  return margins;
}

Bytes total_of(const std::vector<Margin>& margins) {
  Bytes total;
  for (const Margin& margin : margins) {
    total += margin.bytes;
  }
  return total;
}

}  // namespace plimsoll::estimator::estimate
