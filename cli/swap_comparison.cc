#include "cli/swap_comparison.h"

#include <algorithm>
#include <vector>

#include "base/json/edit.h"
#include "cli/text_table.h"
#include "estimator/swap/packed_volumes.h"
#include "estimator/swap/planner.h"

namespace plimsoll::cli {
namespace {

using estimator::SwapMode;
using estimator::SwapVolumes;

constexpr std::int64_t kUsualMicrobatch = 4;

std::int64_t usual_microbatch(std::int64_t gpus, std::int64_t samples) {
  std::int64_t size = std::max<std::int64_t>(1, std::min(kUsualMicrobatch, samples / gpus));
  while (samples % (size * gpus) != 0 && size > 1) {
    --size;
  }
  return size;
}

// Each layer is a pack.
SwapVolumes runtime_volumes(SwapMode mode, const SwapComparison& comparison,
                            const estimator::SwapProfile& profile) {
  estimator::SwapPlan plan{.mode = mode,
                           .gpus = comparison.work.gpus,
                           .samples = comparison.samples(),
                           .forward_microbatch = comparison.microbatch,
                           .backward_microbatch = comparison.microbatch,
                           .forward_packs = {},
                           .backward_packs = {}};
  for (std::size_t layer = 0; layer < profile.layers(); ++layer) {
    plan.backward_packs.push_back(layer);
    if (layer + 1 < profile.layers()) {
      plan.forward_packs.push_back(layer);
    }
  }
  return estimator::volumes_of(plan,
                               estimator::packed_volumes(plan, profile, estimator::SwapRuntime::kPublished));
}

SwapVolumes volumes_of(SwapMode mode, const SwapComparison& comparison, const estimator::SwapProfile& profile,
                       const std::vector<estimator::SwapLayer>& layers) {
  return comparison.semantics == SwapSemantics::kRuntime && estimator::is_grouped(mode)
             ? runtime_volumes(mode, comparison, profile)
             : estimator::closed_volumes(mode, layers, comparison.work, comparison.rules);
}

std::string heading(const SwapComparison& comparison, std::size_t layers, const std::string& about) {
  std::string text = about.empty() ? "" : about + ":\n";
  text += std::to_string(layers) + " layers on " + std::to_string(comparison.work.gpus) + " GPUs";
  text += comparison.capacity ? " of " + to_string(*comparison.capacity) : "";
  return text + ", " + std::to_string(comparison.work.microbatches) + " microbatches of " +
         std::to_string(comparison.microbatch) + "\n";
}

}  // namespace

SwapComparison read_swap_comparison(OptionReader& options, std::int64_t gpus, std::int64_t samples,
                                    bool derived) {
  using estimator::SwapPaging;
  SwapComparison comparison;
  options.require(derived || options.given("microbatch"),
                  "plimsoll swap --compare --profile needs --microbatch");
  comparison.work.gpus = gpus;
  comparison.microbatch =
      options.count("microbatch", 1, estimator::kMaxSwapSamples, usual_microbatch(gpus, samples));
  options.require(samples % comparison.microbatch == 0,
                  "--microbatch must divide --batch-size, " + std::to_string(samples));
  comparison.work.microbatches = samples / comparison.microbatch;
  comparison.rules.paging = options.choice<SwapPaging>("paging",
                                                       {{"strict", SwapPaging::kStrict},
                                                        {"one-layer", SwapPaging::kOneLayer},
                                                        {"drop-clean", SwapPaging::kDropClean}},
                                                       SwapPaging::kStrict);
  comparison.rules.fused_turn = options.given("fused-turn");
  comparison.semantics = options.choice<SwapSemantics>(
      "semantics", {{"table", SwapSemantics::kTable}, {"runtime", SwapSemantics::kRuntime}},
      SwapSemantics::kTable);
  options.require(comparison.semantics == SwapSemantics::kTable || !comparison.rules.fused_turn,
                  "--fused-turn is for --semantics table; the runtime always does it");
  if (options.given("capacity")) {
    comparison.capacity = options.bytes("capacity");
  }
  return comparison;
}

Bytes largest_task(const estimator::SwapProfile& profile, const SwapComparison& comparison) {
  Bytes most;
  const std::optional<estimator::SwapPass> backward =
      estimator::pass_at(profile.backward, comparison.microbatch);
  const bool gpu_updates = comparison.semantics == SwapSemantics::kTable;
  for (std::size_t i = 0; i < profile.layers(); ++i) {
    most = std::max(most, backward ? backward->memory[i] : Bytes{});
    most = std::max(most, gpu_updates ? profile.weights[i] * 2 + profile.state[i] : Bytes{});
  }
  return most;
}

void print_swap_comparison(Console& console, OutputFormat format, const SwapComparison& comparison,
                           const estimator::SwapProfile& profile, const std::string& about) {
  const std::vector<estimator::SwapLayer> layers = estimator::layers_at(profile, comparison.microbatch);
  const Bytes needed = largest_task(profile, comparison);
  const bool fits = !comparison.capacity || needed <= *comparison.capacity;
  TextTable table(
      {"mode", "swapped", "weights", "gradients", "optimizer", "stash", "hand-over", "GPU to GPU"});
  std::vector<Json> answers;
  using enum estimator::SwapMode;
  for (const SwapMode mode : {kDP, kPP, kVDP, kVPP}) {
    JsonObject answer;
    answer["mode"] = estimator::name_of(mode);
    if (const Result<void> possible = estimator::check_work(mode, layers.size(), comparison.work);
        !possible) {
      table.add({estimator::name_of(mode), "-", possible.error().message});
      answer["reason"] = possible.error().message;
    } else {
      const SwapVolumes volumes = volumes_of(mode, comparison, profile, layers);
      answer["volumes"] = estimator::to_json(volumes);
      table.add({estimator::name_of(mode), to_string(volumes.swapped()), to_string(volumes.weights),
                 to_string(volumes.gradients), to_string(volumes.state), to_string(volumes.stash),
                 to_string(volumes.hand_over), to_string(volumes.p2p)});
    }
    if (comparison.capacity) {
      answer["deviceBytes"] = comparison.capacity->count;
      answer["neededBytes"] = needed.count;
      answer["fits"] = fits;
    }
    answers.emplace_back(std::move(answer));
  }
  if (format == OutputFormat::kTable) {
    console.out << heading(comparison, layers.size(), about) << '\n' << table.to_string("  ");
    if (comparison.capacity) {
      console.out << "\n  the largest layer takes " << to_string(needed)
                  << " of a GPU as a task: " << (fits ? "all four fit\n" : "none of the four fits\n");
    }
  } else {
    print_answers(console, format, answers);
  }
}

}  // namespace plimsoll::cli
