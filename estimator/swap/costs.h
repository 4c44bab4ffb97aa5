// SwapCosts: what runs of layers take, from sums over a profile's layers, so that each question takes constant time. The profile
// must outlive it. Not thread-safe: it keeps the microbatches that were asked for.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "estimator/swap/machine.h"
#include "estimator/swap/profile.h"

namespace plimsoll::estimator::inline swap {

// Of one microbatch. Layers [first, end).
class PassCosts {
 public:
  PassCosts(const SwapPass& pass, const SwapProfile& profile);
  double seconds(std::size_t first, std::size_t end) const { return seconds_[end] - seconds_[first]; }
  // All layers together on a GPU: each as it was measured but for its input, which the one before it gives, and the first one's
  // input (msr-fiddle/harmony, analyze_profiles.py, memory_of_pack).
  Bytes memory(std::size_t first, std::size_t end) const {
    return memory_[end] - memory_[first] + input_[first];
  }
  Bytes input(std::size_t layer) const { return layer < input_.size() ? input_[layer] : Bytes{}; }

 private:
  std::vector<double> seconds_;  // sums, as memory_
  std::vector<Bytes> memory_;
  std::vector<Bytes> input_;
};

class SwapCosts {
 public:
  explicit SwapCosts(const SwapProfile& profile);

  std::size_t layers() const { return profile_.layers(); }
  const SwapProfile& profile() const { return profile_; }
  // Null where the profile has no such microbatch.
  const PassCosts* forward(std::int64_t microbatch) { return find(forward_, profile_.forward, microbatch); }
  const PassCosts* backward(std::int64_t microbatch) {
    return find(backward_, profile_.backward, microbatch);
  }
  Bytes moved(std::size_t first, std::size_t end) const { return moved_[end] - moved_[first]; }
  // Published code moves a layer's buffers with its gradients.
  Bytes gradients(std::size_t first, std::size_t end, SwapRuntime runtime) const {
    return runtime == SwapRuntime::kPublished ? moved(first, end) : weights_[end] - weights_[first];
  }
  double update_seconds(std::size_t first, std::size_t end) const { return update_[end] - update_[first]; }

 private:
  using Passes = std::map<std::int64_t, std::optional<PassCosts>>;
  const PassCosts* find(Passes& kept, const std::vector<SwapPass>& measured, std::int64_t microbatch);

  const SwapProfile& profile_;
  std::vector<Bytes> moved_;  // weights and buffers; sums, as weights_ and update_
  std::vector<Bytes> weights_;
  std::vector<double> update_;
  Passes forward_;
  Passes backward_;
};

}  // namespace plimsoll::estimator::swap
