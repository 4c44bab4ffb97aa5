#include "cli/swap_explanation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cli/text_table.h"
#include "estimator/swap/schedule.h"

namespace plimsoll::cli {
namespace {

using estimator::ConsideredKind;
using estimator::LeastWork;

constexpr std::size_t kShown = 16;

std::string seconds(double value) {
  return milliseconds_text(value * 1000);
}

// The bound of all plans is that of the kind with the least.
LeastWork least_of(const estimator::PlannedSwap& planned) {
  return planned.considered.empty() ? LeastWork{} : planned.considered.front().least;
}

const char* what_bounds(const LeastWork& least) {
  if (least.gpus >= std::max(least.links, least.updates)) {
    return "the GPUs bound the iteration: a faster card, or more GPUs, shortens it";
  }
  return least.links >= least.updates
             ? "the links to the host bound the iteration: faster links, or more root complexes, shorten it"
             : "the optimizer on the host bounds the iteration: a faster processor, or an optimizer with less "
               "state, shortens it";
}

bool is_of(const estimator::SwapPlan& plan, const estimator::SwapKind& kind) {
  return plan.mode == kind.mode && plan.prefetch == kind.prefetch &&
         plan.forward_microbatch == kind.forward_microbatch &&
         plan.backward_microbatch == kind.backward_microbatch;
}

std::string verdict(const estimator::PlannedSwap& planned, const ConsideredKind& each) {
  if (is_of(planned.plan, each.kind)) {
    return "chosen";
  }
  if (std::isfinite(each.seconds)) {
    return "slower";
  }
  return each.least.seconds() >= planned.seconds ? "its bound exceeds the chosen plan" : "none fits a GPU";
}

std::string microbatch_text(const estimator::SwapKind& kind) {
  const std::string forward = std::to_string(kind.forward_microbatch);
  return kind.forward_microbatch == kind.backward_microbatch
             ? forward
             : forward + " and " + std::to_string(kind.backward_microbatch);
}

}  // namespace

std::string swap_explanation_text(const estimator::PlannedSwap& planned) {
  const LeastWork least = least_of(planned);
  TextTable resources({"resource", "at least", "what it does"});
  resources.add({"GPUs", seconds(least.gpus), "each computes, and waits for transfers that nothing hides"});
  resources.add(
      {"links", seconds(least.links), "weights, gradients and stashes between the host and the GPUs"});
  resources.add({"updates", seconds(least.updates), "the optimizer, on the host's processors"});
  std::string text = "\n  what an iteration needs under any plan\n" + resources.to_string("    ") + "    " +
                     what_bounds(least) + "\n\n  considered\n";
  TextTable kinds({"mode", "microbatch", "prefetch", "lower bound", "best plan", "verdict"});
  const std::size_t shown = std::min(kShown, planned.considered.size());
  for (std::size_t i = 0; i < planned.considered.size(); ++i) {
    const ConsideredKind& each = planned.considered[i];
    if (i < shown || is_of(planned.plan, each.kind)) {
      kinds.add({estimator::name_of(each.kind.mode), microbatch_text(each.kind),
                 each.kind.prefetch ? "on" : "off", seconds(each.least.seconds()),
                 std::isfinite(each.seconds) ? seconds(each.seconds) : "-", verdict(planned, each)});
    }
  }
  text += kinds.to_string("    ");
  if (planned.considered.size() > shown) {
    text += "    and others, " + std::to_string(planned.considered.size()) + " in all: -o json has them\n";
  }
  return text;
}

JsonObject swap_explanation_json(const estimator::PlannedSwap& planned) {
  const LeastWork least = least_of(planned);
  JsonObject resources;
  resources["gpus"] = least.gpus;
  resources["links"] = least.links;
  resources["updates"] = least.updates;
  JsonArray kinds;
  for (const ConsideredKind& each : planned.considered) {
    JsonObject microbatch;
    microbatch["forward"] = each.kind.forward_microbatch;
    microbatch["backward"] = each.kind.backward_microbatch;
    JsonObject kind;
    kind["mode"] = estimator::name_of(each.kind.mode);
    kind["microbatch"] = std::move(microbatch);
    kind["prefetch"] = each.kind.prefetch;
    kind["lowerBoundSeconds"] = each.least.seconds();
    kind["iterationSeconds"] = std::isfinite(each.seconds) ? Json(each.seconds) : Json();
    kinds.append(std::move(kind));
  }
  JsonObject json;
  json["leastSeconds"] = std::move(resources);
  json["considered"] = std::move(kinds);
  return json;
}

}  // namespace plimsoll::cli
