// KernelTimes: how long a card takes for the work of an operator.
//
//   Result<KernelTimes> times = KernelTimes::of(gpu, training);
//   times->forward(work);
//
// Pure; const access is thread-safe.
#pragma once

#include "base/result.h"
#include "crds/training_job.h"
#include "estimator/catalog/gpu_catalog.h"
#include "estimator/speed/attention_rate.h"
#include "estimator/speed/cards.h"
#include "estimator/speed/operator_work.h"

namespace plimsoll::estimator::inline speed {

class KernelTimes {
 public:
  // Errors: kUnsupported if cards.csv has no figures for the card, or none for the precision.
  static Result<KernelTimes> of(const GpuModel& gpu, const crds::TrainingSpec& training);

  double forward(const OperatorWork& work) const;
  double backward(const OperatorWork& work) const;
  // True if arithmetic, not memory, determines forward().
  bool is_arithmetic(const OperatorWork& work) const;
  double memory(double bytes, Traffic traffic = Traffic::kStream) const;

 private:
  KernelTimes(const CardSpeed& card, const GpuModel& gpu, const crds::TrainingSpec& training);
  double attention(const OperatorWork& work, bool forward) const;
  // A product of matrices with that many elements in its result.
  double product(const OperatorWork& work, double elements) const;
  double arithmetic(const OperatorWork& work) const;

  const CardSpeed* card_;
  Arithmetic full_;  // what fp32 operands are multiplied in
  Arithmetic half_;
  double bandwidth_;
  std::int64_t capability_;
  FlashAttention flash_;
};

}  // namespace plimsoll::estimator::speed
