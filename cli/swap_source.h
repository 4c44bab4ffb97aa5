// What `plimsoll swap` plans for: a measured profile (--profile), or a model whose profile is derived: an exported graph (--graph), a
// Hugging Face config.json (--config) or a TrainingJob (-f). One thread.
//
//   SwapSource source = read_swap_source(options, console);      // and then look at options.error()
//   Result<estimator::SwapProfile> profile = source.profile(64, budget);
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "cli/answer_budget.h"
#include "cli/console.h"
#include "cli/options.h"
#include "crds/training_job.h"
#include "estimator/catalog/gpu_catalog.h"
#include "estimator/swap/profile.h"
#include "estimator/trace/trace.h"

namespace plimsoll::cli {

// --profile, --graph, --config, -f, --gpu, --microbatches, --write-profile and the model's training.
po::options_description swap_source_options();

// The job, graph and card of a derived profile. Empty for --profile.
struct SwapModel {
  crds::TrainingJob job;
  std::shared_ptr<const estimator::TraceFile> graph;
  estimator::GpuCatalog catalog = estimator::GpuCatalog::built_in();
  const estimator::GpuModel* gpu = nullptr;  // in `catalog`
  estimator::Device device = estimator::Device::kCuda;
  std::string about;  // "config.json, AdamW, FP32, 1024 tokens, on A100-80GB"
};

class SwapSource {
 public:
  bool derived() const { return model_ != nullptr; }
  // What the job says, or a usual value; nothing with --profile.
  std::optional<std::int64_t> gpus() const;
  std::optional<std::int64_t> samples(std::int64_t gpus) const;
  // Null with --profile.
  const SwapModel* model() const { return model_.get(); }
  // A card's memory without the headroom.
  std::optional<Bytes> usable() const;
  // What a card leaves for layers (layer_profile.h, swap_capacity()).
  std::optional<Bytes> capacity() const;
  // What the profile is of and for; empty with --profile.
  const std::string& about() const;

  // Of an iteration of so many samples. A measured one is read now. A derived one has the microbatches of --microbatches, else those that divide the samples; it is
  // written to --write-profile.
  Result<estimator::SwapProfile> profile(std::int64_t samples, AnswerBudget& budget) const;

 private:
  friend SwapSource read_swap_source(OptionReader& options, Console& console);

  Console* console_ = nullptr;
  std::string measured_;  // the file of --profile
  std::unique_ptr<SwapModel> model_;
  std::vector<std::int64_t> microbatches_;
  std::string write_to_;
};

// The console must outlive it.
SwapSource read_swap_source(OptionReader& options, Console& console);

}  // namespace plimsoll::cli
