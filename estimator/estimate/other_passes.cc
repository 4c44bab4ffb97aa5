#include "estimator/estimate/other_passes.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>

#include "estimator/parallel/checkpoint_saving.h"

namespace plimsoll::estimator::inline estimate {
namespace {

// The first round makes nearly all blocks: more rounds, and other orders, reserve within 2 % of the same
// (OtherPasses.NeitherMoreRoundsNorAnotherOrderReserveMore), so the numbers bound the time that a replay takes.
constexpr std::size_t kMaxBatches = 64;
constexpr std::size_t kRounds = 4;

// Samples of the last batch in equal parts: a change that is tried may take the batch in more parts than the user does.
std::int64_t last_batch(const crds::TrainingSpec& training) {
  const std::int64_t parts = std::max<std::int64_t>(1, training.gradient_accumulation);
  return std::max<std::int64_t>(1, training.last_batch_size / parts) * parts;
}

bool has_last_batch(const crds::TrainingSpec& training) {
  return training.last_batch_size > 0 && last_batch(training) < training.batch_size_per_trainer;
}

Result<void> check_saving(const EstimateRequest& request) {
  const crds::TrainingSpec& training = *request.training;
  const crds::Parallelism& parallelism = training.parallelism;
  const bool full = is_full(training.checkpoint_saving);
  const bool tables = request.model != nullptr && !request.model->tables().empty();
  if (full && tables) {
    return Error(ErrorCode::kUnsupported,
                 "training.checkpointSaving " + std::string(crds::name_of(training.checkpoint_saving)) +
                     " would gather the embedding tables on one GPU: save them with Sharded or ShardedAsync");
  }
  if (crds::is_split(parallelism) && parallelism.strategy != crds::ParallelStrategy::kMegatron &&
      (full || gathers_to_save(training))) {
    return Error(
        ErrorCode::kUnsupported,
        "training.checkpointSaving " + std::string(crds::name_of(training.checkpoint_saving)) +
            " is not modelled with parallelism.tensor, pipeline or expert: save with Sharded or ShardedAsync, "
            "and FSDP2 in place of FSDP");
  }
  return {};
}

Result<void> check(const EstimateRequest& request, const TransformerSpec* spec) {
  const crds::TrainingSpec& training = *request.training;
  const bool batches =
      has_last_batch(training) || training.validation_batch_size > 0 || !training.sequence_lengths.empty();
  if (training.parallelism.pipeline > 1 && batches) {
    return Error(ErrorCode::kUnsupported,
                 "training.lastBatchSize, validationBatchSize and sequenceLengths are not modelled for a "
                 "pipeline; leave them out, or set parallelism.pipeline to 1");
  }
  if (!training.sequence_lengths.empty() && spec == nullptr) {
    return Error(
        ErrorCode::kUnsupported,
        "training.sequenceLengths is for model.transformer; a graph is recorded at one length: export it at "
        "the longest");
  }
  if (!training.sequence_lengths.empty() && spec->encoder_sequence > 0) {
    return invalid(
        "training.sequenceLengths does not go with model.transformer.encoderSeqLen: give the longest of both");
  }
  for (std::size_t i = 0; i < training.sequence_lengths.size(); ++i) {
    const std::int64_t length = training.sequence_lengths[i];
    if (length < 1 || length > spec->sequence) {
      return invalid("training.sequenceLengths[" + std::to_string(i) + "] must be from 1 to the " +
                     std::to_string(spec->sequence) +
                     " tokens of the longest batch, model.transformer.seqLen, is " + std::to_string(length));
    }
  }
  return {};
}

}  // namespace

bool has_other_passes(const crds::TrainingSpec& training) {
  return has_last_batch(training) || training.validation_batch_size > 0 ||
         !training.sequence_lengths.empty() || gathers_to_save(training);
}

Result<std::vector<OtherPass>> other_passes(const EstimateRequest& request, const TransformerSpec* spec,
                                            Bytes inputs) {
  std::vector<OtherPass> passes;
  const crds::TrainingSpec& training = *request.training;
  if (Result<void> checked = check_saving(request); !checked) {
    return checked.error();
  }
  if (!has_other_passes(training)) {
    return passes;
  }
  if (Result<void> checked = check(request, spec); !checked) {
    return checked.error();
  }
  const OtherPass usual{
      .training = training,
      .spec = spec == nullptr ? std::nullopt : std::optional(*spec),
      .if_highest =
          "the peak is in an iteration with other sizes: training.lastBatchSize or sequenceLengths"};
  for (const std::int64_t length : training.sequence_lengths) {
    passes.push_back(usual);
    passes.back().spec->sequence = length;
  }
  if (has_last_batch(training)) {
    passes.push_back(usual);
    passes.back().training.batch_size_per_trainer = last_batch(training);
  }
  if (training.validation_batch_size > 0) {
    OtherPass validation = usual;
    validation.training.batch_size_per_trainer = training.validation_batch_size;
    validation.training.gradient_accumulation = 1;
    if (validation.training.fine_tuning) {
      validation.training.fine_tuning->dropout = 0;  // eval() turns dropout off
    }
    if (validation.spec) {
      TransformerSpec& sizes = *validation.spec;
      sizes.embedding_dropout = sizes.residual_dropout = sizes.ffn_dropout = sizes.attention_dropout = 0;
    }
    validation.between = {.kind = BetweenIterations::Kind::kValidation, .inputs = inputs};
    validation.if_highest = "the peak is in the validation passes of " +
                            std::to_string(training.validation_batch_size) +
                            " samples, training.validationBatchSize; a smaller one takes less memory";
    passes.push_back(std::move(validation));
  }
  if (gathers_to_save(training)) {
    OtherPass saving = usual;
    saving.between = {.kind = BetweenIterations::Kind::kCheckpoint, .inputs = inputs};
    saving.if_highest = "the peak is when a checkpoint is saved, training.checkpointSaving " +
                        std::string(crds::name_of(training.checkpoint_saving)) +
                        "; Sharded, and FullOffloaded in place of Full, take less GPU memory";
    passes.push_back(std::move(saving));
  }
  return passes;
}

std::vector<std::size_t> order_of_passes(const crds::TrainingSpec& training) {
  std::vector<std::size_t> order;
  const std::size_t lengths = training.sequence_lengths.size();
  std::vector<std::size_t> batches(lengths + 1);  // 0 is the longest
  for (std::size_t i = 0; i < batches.size(); ++i) {
    batches[i] = i;
  }
  std::minstd_rand random(1);
  const std::size_t rounds =
      lengths == 0 ? 0 : std::clamp<std::size_t>(kMaxBatches / batches.size(), 1, kRounds);
  for (std::size_t round = 0; round < rounds; ++round) {
    for (std::size_t i = batches.size() - 1; i > 0; --i) {
      std::swap(batches[i], batches[random() % (i + 1)]);
    }
    order.insert(order.end(), batches.begin(), batches.end());
  }
  const std::size_t others = lengths + (has_last_batch(training) ? 1 : 0) +
                             (training.validation_batch_size > 0 ? 1 : 0) +
                             (gathers_to_save(training) ? 1 : 0);
  for (std::size_t pass = lengths + 1; pass <= others; ++pass) {
    order.push_back(pass);
  }
  if (others > 0) {
    order.push_back(0);
  }
  return order;
}

}  // namespace plimsoll::estimator::estimate
