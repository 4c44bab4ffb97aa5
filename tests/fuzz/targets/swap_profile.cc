// A profile of a model's layers, to the swap plans that are made of it.
#include "base/budget.h"
#include "base/json/view.h"
#include "estimator/swap/planner.h"
#include "estimator/swap/profile.h"
#include "tests/fuzz/target.h"

namespace plimsoll::testing {

FUZZ_TARGET(swap_profile) {
  const Result<JsonText> text = JsonText::parse(input);
  if (!text) {
    return;
  }
  const Result<estimator::SwapProfile> profile = estimator::read_swap_profile(text->root());
  if (!profile) {
    require(!profile.error().message.empty(), "an error says what is wrong");
    return;
  }
  Bytes largest{};
  for (const estimator::SwapPass& pass : profile->backward) {
    for (const Bytes memory : pass.memory) {
      largest = std::max(largest, memory);
    }
  }
  for (const estimator::SwapRuntime runtime :
       {estimator::SwapRuntime::kPlimsoll, estimator::SwapRuntime::kPublished}) {
    for (const std::int64_t gpus : {2, 4}) {
      Budget budget({.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(50)});
      estimator::SwapRequest request;
      request.profile = &*profile;
      request.gpus = gpus;
      request.samples = 8;
      request.capacity = Bytes{largest.count + largest.count / 4};
      request.machine = estimator::published_machine();
      request.machine.runtime = runtime;
      request.machine.fixed_shares = false;
      request.budget = &budget;
      const Result<estimator::PlannedSwap> planned =
          budget.run([&] { return estimator::plan_swap(request); });
      if (!planned) {
        require(!planned.error().message.empty(), "an error says what is wrong");
        continue;
      }
      require(estimator::check_plan(planned->plan, profile->layers()).ok(),
              "a plan is one of the profile's layers");
      require(planned->device_memory <= request.capacity, "a plan fits the GPUs");
      require(planned->bound_seconds <= planned->seconds, "no plan is faster than the bound");
    }
  }
}

}  // namespace plimsoll::testing
