// SwapProfile: what each layer of a model takes when it is a task of its own. From the JSON of a measured profile
// (`python3 -m plimsoll.harmony.profile`; docs/harmony.md, Profiles). Values; any thread.
//
//   Result<SwapProfile> profile = read_swap_profile(json);
//   std::vector<SwapLayer> layers = layers_at(*profile, 4);   // sizes of a microbatch of 4 samples
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/json/edit.h"
#include "base/json/view.h"
#include "base/result.h"

namespace plimsoll::estimator::inline swap {

// `output` is what the next layer takes, `input_gradient` what backward gives to the layer before.
struct SwapLayer {
  Bytes weights;
  Bytes gradients;
  Bytes state;           // of the optimizer
  Bytes input;           // of a microbatch, as the three below
  Bytes output;          // zero for the last layer, whose output is the loss
  Bytes input_gradient;  // zero for the first
};

// What each layer takes alone, from the arrival of its weights to its end, with microbatches of one size.
struct SwapPass {
  std::int64_t microbatch = 1;
  std::vector<double> seconds;
  std::vector<Bytes> memory;
};

// `update_seconds`, `forward` and `backward` are empty in a profile of sizes alone, which no plan can be made from.
struct SwapProfile {
  std::vector<Bytes> weights;
  std::vector<Bytes> buffers;
  std::vector<Bytes> state;
  std::vector<Bytes> input;                 // of one sample
  std::vector<double> update_seconds = {};  // of a layer's optimizer on the host
  std::vector<SwapPass> forward = {};       // microbatches rise
  std::vector<SwapPass> backward = {};      // with the forward pass that it repeats
  std::vector<Bytes> host_weights = {};     // in the type that the host keeps; empty: as they move
  std::vector<std::size_t> tied = {};       // layers, rising, that share a parameter with another one

  std::size_t layers() const { return weights.size(); }
  Bytes moved(std::size_t layer) const { return weights[layer] + buffers[layer]; }
  Bytes kept_on_host(std::size_t layer) const {
    return host_weights.empty() ? weights[layer] : host_weights[layer];
  }
  bool moves_as_kept(std::size_t layer) const { return kept_on_host(layer) == weights[layer]; }
};

inline constexpr std::size_t kMaxSwapLayers = 100'000;
inline constexpr std::size_t kMaxSwapMicrobatches = 1024;
inline constexpr std::int64_t kMaxSwapSamples = std::int64_t{1} << 24;

// Members R, W, K, x["1"], and B, hostW and tied, which may be absent; all or none of tf, tb, mf, mb and upd. Errors: kInvalid naming the member.
Result<SwapProfile> read_swap_profile(const JsonView& json);

// What read_swap_profile() reads, and trainer/plimsoll/harmony/profile.py: x of each microbatch, too.
JsonObject to_json(const SwapProfile& profile);

// A pass with another microbatch: linear between the two sizes that were measured (as msr-fiddle/harmony at 5fd838f has
// it, prof_data_struct.py). Nothing beyond the largest or below the smallest one.
std::optional<SwapPass> pass_at(const std::vector<SwapPass>& measured, std::int64_t microbatch);

std::vector<SwapLayer> layers_at(const SwapProfile& profile, std::int64_t microbatch);

}  // namespace plimsoll::estimator::swap
