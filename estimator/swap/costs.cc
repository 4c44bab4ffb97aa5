#include "estimator/swap/costs.h"

namespace plimsoll::estimator::inline swap {

PassCosts::PassCosts(const SwapPass& pass, const SwapProfile& profile)
    : seconds_(profile.layers() + 1), memory_(profile.layers() + 1), input_(profile.layers()) {
  for (std::size_t i = 0; i < profile.layers(); ++i) {
    input_[i] = profile.input[i] * pass.microbatch;
    seconds_[i + 1] = seconds_[i] + pass.seconds[i];
    memory_[i + 1] = memory_[i] + pass.memory[i] - input_[i];
  }
}

SwapCosts::SwapCosts(const SwapProfile& profile)
    : profile_(profile),
      moved_(profile.layers() + 1),
      weights_(profile.layers() + 1),
      update_(profile.layers() + 1) {
  for (std::size_t i = 0; i < profile.layers(); ++i) {
    moved_[i + 1] = moved_[i] + profile.moved(i);
    weights_[i + 1] = weights_[i] + profile.weights[i];
    update_[i + 1] = update_[i] + (profile.update_seconds.empty() ? 0 : profile.update_seconds[i]);
  }
}

const PassCosts* SwapCosts::find(Passes& kept, const std::vector<SwapPass>& measured,
                                 std::int64_t microbatch) {
  auto found = kept.find(microbatch);
  if (found == kept.end()) {
    const std::optional<SwapPass> pass = pass_at(measured, microbatch);
    found = kept.emplace(microbatch,
                         pass ? std::optional<PassCosts>(std::in_place, *pass, profile_) : std::nullopt)
                .first;
  }
  return found->second ? &*found->second : nullptr;
}

}  // namespace plimsoll::estimator::swap
