// ./scripts/bench swap: the tables of docs/harmony.md. What GPT-2's training takes, and how long trainings take; the bytes of the
// four ways; how long the planner searches, how far its plans are from the proven bound and from those that were published; what
// each principle is worth; and the bytes of an iteration beside PyTorch FSDP2 with its parameters on the host.
//
// The profiles are those of Harmony's authors (GTX 1080 Ti, fp32; tests/estimator/swap/profiles), the machine is theirs, too.
// FSDP2 with CPUOffloadPolicy (torch/distributed/fsdp/_fully_shard/_fsdp_param.py): each GPU copies its shard of each layer from the
// host for each forward and each backward pass of a microbatch, and copies its shard of the reduced gradient back; GPUs gather
// the other shards from each other each time, and reduce gradients. The microbatch is the plan's.
// tests/bench/fsdp2_peer.py counts the same on FSDP2 itself.
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "base/allocator.h"
#include "base/file.h"
#include "crds/training_job.h"
#include "estimator/catalog/gpu_catalog.h"
#include "estimator/host_training/swap_machine.h"
#include "estimator/layer_costs/layer_profile.h"
#include "estimator/swap/footprint.h"
#include "estimator/swap/planner.h"
#include "estimator/swap/volumes.h"
#include "tests/bench/report.h"
#include "tests/checkout.h"

namespace plimsoll {
namespace {

using namespace estimator;

constexpr const char* kUsage =
    "usage: swap_bench [--json]\n"
    "\n"
    "  --json      one object a line: {bench, case, metric, value, unit, reference}\n";

constexpr double kGiB = 1024.0 * 1024 * 1024;

struct Case {
  const char* model;
  SwapMode mode;
  std::int64_t gpus;
  std::int64_t samples;
  double capacity;
  double published;  // seconds of the published schedule, or of its simulator's best by hand
};

constexpr Case kCases[] = {
    {"bert_large", SwapMode::kVPP, 2, 32, 10 * kGiB, 4.399},
    {"bert_large", SwapMode::kVDP, 2, 32, 10 * kGiB, 4.608},
    {"bert_96", SwapMode::kVPP, 2, 32, 10 * kGiB, 17.874},
    {"bert_96", SwapMode::kVDP, 2, 32, 10 * kGiB, 19.421},
    {"gpt2_xl", SwapMode::kVPP, 2, 32, 10 * kGiB, 42.298},
    {"gpt2_xl", SwapMode::kVDP, 2, 32, 10 * kGiB, 43.927},
    {"gpt2_xl", SwapMode::kVPP, 4, 64, 9e9, 42.595},
    {"vgg416", SwapMode::kVPP, 2, 32, 10 * kGiB, 10.590},
    {"vgg416", SwapMode::kVDP, 2, 32, 10 * kGiB, 11.878},
    {"gpt2_10b", SwapMode::kVPP, 4, 32, 10 * kGiB, 108.1},
    {"gpt2_40b", SwapMode::kVPP, 8, 32, 10 * kGiB, 238.7},
};

Result<SwapProfile> profile_of(const std::string& model) {
  const Result<std::string> text =
      read_file(PLIMSOLL_SOURCE_DIR "/tests/estimator/swap/profiles/" + model + ".json");
  if (!text) {
    return text.error();
  }
  const Result<JsonText> json = JsonText::parse_as_tree(*text);
  return json ? read_swap_profile(json->root()) : Result<SwapProfile>(json.error());
}

SwapRequest request_for(const Case& each, const SwapProfile& profile) {
  SwapRequest request;
  request.profile = &profile;
  request.gpus = each.gpus;
  request.samples = each.samples;
  request.capacity = Bytes{static_cast<std::int64_t>(each.capacity)};
  request.machine = published_machine();
  request.mode = each.mode;
  request.prefetch = false;
  return request;
}

double gib(Bytes bytes) {
  return static_cast<double>(bytes.count) / kGiB;
}

// Between the host and all GPUs; and as many times the GPUs but one from GPU to GPU.
Bytes swapped_by_fsdp2(const SwapPlan& plan, const SwapProfile& profile) {
  Bytes weights{};
  for (const Bytes each : profile.weights) {
    weights += each;
  }
  const std::int64_t microbatches = plan.samples / (plan.gpus * plan.backward_microbatch);
  return weights * 3 * std::max<std::int64_t>(1, microbatches);
}

// The talk's GPT-2 of 1.5 billion parameters with 32 samples, of which a GPU's allocator takes 128 GB.
Result<void> add_footprint(const testing::Report& report) {
  constexpr double kGigabyte = 1e9;
  constexpr double kTaken = 128;
  const Footprint parts = footprint_of(
      {.parameters = 1'500'000'000, .hidden = 1600, .layers = 48, .tokens = 1024, .samples = 32});
  double all = 0;
  for (const auto& [name, bytes] :
       {std::pair("weights", parts.weights), std::pair("gradients", parts.gradients),
        std::pair("optimizer", parts.optimizer), std::pair("stash", parts.stash),
        std::pair("buffer", parts.buffer)}) {
    const double gigabytes = static_cast<double>(bytes.count) / kGigabyte;
    all += gigabytes;
    report.add({"footprint of GPT-2, 1.5 billion", name, gigabytes, "GB", {}});
  }
  report.add({"footprint of GPT-2, 1.5 billion", "all parts", all, "GB", {}});
  report.add(
      {"footprint of GPT-2, 1.5 billion", "fragmentation", 100 * (kTaken - all) / kTaken, "% of 128 GB", {}});
  return {};
}

// Floating-point operations as the talk has them; GPT-2's it rounds to 2.38e21.
Result<void> add_days(const testing::Report& report) {
  for (const auto& [model, operations] : {std::pair("BERT large", 5.33e20), std::pair("GPT-2", 2.376e21),
                                          std::pair("T5 11B", 3.30e22), std::pair("GPT-3", 3.14e23)}) {
    report.add({std::string("pre-training of ") + model,
                "one GTX 1080 Ti",
                training_days(operations, kPeak1080Ti) / 365,
                "years",
                {}});
  }
  return {};
}

// GPT-2 XL, 64 samples in microbatches of 4, on 4 GPUs.
Result<void> add_ways(const testing::Report& report) {
  const Result<SwapProfile> profile = profile_of("gpt2_xl");
  if (!profile) {
    return profile.error();
  }
  const std::vector<SwapLayer> layers = layers_at(*profile, 4);
  using enum SwapMode;
  for (const SwapMode mode : {kDP, kPP, kVDP, kVPP}) {
    const SwapVolumes volumes = closed_volumes(mode, layers, {.gpus = 4, .microbatches = 16}, {});
    const std::string name = std::string("gpt2_xl, 16 microbatches, 4 GPUs, ") + name_of(mode);
    for (const auto& [metric, bytes] :
         {std::pair("swapped", volumes.swapped()), std::pair("weights", volumes.weights),
          std::pair("gradients", volumes.gradients), std::pair("optimizer", volumes.state),
          std::pair("stash", volumes.stash), std::pair("hand-over", volumes.hand_over),
          std::pair("GPU to GPU", volumes.p2p)}) {
      report.add({name, metric, gib(bytes), "GiB", {}});
    }
  }
  return {};
}

Result<void> add_searches(const testing::Report& report) {
  for (const Case& each : kCases) {
    const Result<SwapProfile> profile = profile_of(each.model);
    if (!profile) {
      return profile.error();
    }
    const SwapRequest request = request_for(each, *profile);
    const auto began = std::chrono::steady_clock::now();
    const Result<PlannedSwap> planned = plan_swap(request);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (!planned) {
      return planned.error();
    }
    const std::string name = std::string(each.model) + ", " + std::to_string(profile->layers()) +
                             " layers, " + name_of(each.mode) + ", " + std::to_string(each.gpus) + " GPUs";
    report.add({name, "search", seconds, "s", profile->layers() <= 100 ? 1.0 : 5.0});
    report.add({name, "iteration", planned->seconds, "s", each.published});
    report.add({name, "above the bound", 100 * (planned->seconds / planned->bound_seconds - 1), "%", {}});
    report.add({name, "swapped", gib(planned->volumes.swapped()), "GiB", {}});
    report.add({name, "GPU to GPU", gib(planned->volumes.between_gpus()), "GiB", {}});
    const Bytes by_fsdp2 = swapped_by_fsdp2(planned->plan, *profile);
    report.add({name, "swapped by FSDP2", gib(by_fsdp2), "GiB", {}});
    report.add({name, "GPU to GPU by FSDP2", gib(by_fsdp2 * (each.gpus - 1)), "GiB", {}});
  }
  return {};
}

struct Llama {
  const char* name;
  std::int64_t layers, hidden, heads, ffn;
};
// arXiv 2407.21783, table 3.
constexpr Llama kLlamas[] = {
    {"Llama 3 8B", 32, 4096, 32, 14'336},
    {"Llama 3 70B", 80, 8192, 64, 28'672},
    {"Llama 3 405B", 126, 16'384, 128, 53'248},
};

// As Hugging Face's config.json has it.
std::string config_of(const Llama& sizes) {
  return R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": )" +
         std::to_string(sizes.hidden) + R"(, "intermediate_size": )" + std::to_string(sizes.ffn) +
         R"(, "num_hidden_layers": )" + std::to_string(sizes.layers) + R"(, "num_attention_heads": )" +
         std::to_string(sizes.heads) +
         R"(, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192, "tie_word_embeddings": false})";
}

// Profiles that are derived from a config.json: 64 samples of 4,096 tokens in BF16Mixed, on eight H100 of a node.
Result<void> add_llamas(const testing::Report& report) {
  const GpuCatalog catalog = GpuCatalog::built_in();
  const GpuModel* const gpu = catalog.find("H100-80GB");
  for (const Llama& sizes : kLlamas) {
    crds::ModelSpec model;
    crds::TransformerModel& transformer = model.transformer.emplace();
    transformer.config = config_of(sizes);
    transformer.sequence_length = 4096;
    transformer.attention = crds::AttentionKind::kFlash;
    crds::TrainingSpec training;
    training.batch_size_per_trainer = 1;
    training.optimizer = crds::Optimizer::kAdamW;
    training.precision = crds::Precision::kBF16Mixed;
    const EstimateRequest job{.model = &model, .training = &training, .gpu = gpu};
    const auto began = std::chrono::steady_clock::now();
    const Result<SwapProfile> profile = layer_profile({.job = job, .microbatches = {1, 2, 4, 8}});
    const auto derived = std::chrono::steady_clock::now();
    if (!profile) {
      return profile.error();
    }
    SwapRequest request;
    request.profile = &*profile;
    request.gpus = 8;
    request.samples = 64;
    request.capacity = swap_capacity(job, gpu->memory);
    request.machine = swap_machine_of(*gpu);
    const Result<PlannedSwap> planned = plan_swap(request);
    const auto ended = std::chrono::steady_clock::now();
    request.machine.principles.stay = false;
    const Result<PlannedSwap> swapped = plan_swap(request);
    if (!planned || !swapped) {
      return planned ? swapped.error() : planned.error();
    }
    const std::string name = std::string(sizes.name) + " by its config.json, " +
                             std::to_string(profile->layers()) + " layers, " + name_of(planned->plan.mode) +
                             ", 8 GPUs";
    const auto seconds = [](auto duration) { return std::chrono::duration<double>(duration).count(); };
    report.add({name, "profile", seconds(derived - began), "s", {}});
    report.add({name, "search", seconds(ended - derived), "s", profile->layers() <= 100 ? 1.0 : 5.0});
    report.add({name, "iteration", planned->seconds, "s", {}});
    report.add({name, "above the bound", 100 * (planned->seconds / planned->bound_seconds - 1), "%", {}});
    report.add({name, "host memory", gib(planned->host.total()), "GiB", {}});
    report.add({name, "layers that stay", static_cast<double>(planned->plan.resident.size()), "", {}});
    report.add({name, "iteration, all layers swapped", swapped->seconds, "s", {}});
  }
  return {};
}

// GPT-2 XL on 4 GPUs of 9 GB.
// The talk's toy example: a model of four equal layers on two GPUs, with two microbatches.
Result<void> add_example(const testing::Report& report) {
  constexpr Bytes kMegabyte{1'000'000};
  std::vector<SwapLayer> layers(4, {.weights = kMegabyte * 100,
                                    .gradients = kMegabyte * 100,
                                    .state = kMegabyte * 200,
                                    .input = kMegabyte * 10,
                                    .output = kMegabyte * 10,
                                    .input_gradient = kMegabyte * 10});
  layers.back().output = Bytes{};
  layers.front().input_gradient = Bytes{};
  std::vector<SwapStep> steps;
  const SwapVolumes all =
      walk_volumes(SwapMode::kVPP, layers, {.gpus = 2, .microbatches = 2}, {}, nullptr, &steps);
  const auto add = [&](const std::string& of, const SwapVolumes& moved) {
    for (const auto& [metric, bytes] :
         {std::pair{"weights", moved.weights}, std::pair{"optimizer", moved.state},
          std::pair{"stash", moved.stash}, std::pair{"GPU to GPU", moved.p2p}}) {
      report.add({of, metric, static_cast<double>((bytes).count) / 1e6, "MB", {}});
    }
  };
  for (const SwapStep& step : steps) {
    add("4 layers, 2 GPUs, vPP: " + to_string(step.task), step.moved);
  }
  add("4 layers, 2 GPUs, vPP: all", all);
  return {};
}

Result<void> add_principles(const testing::Report& report) {
  const Case& each = kCases[6];
  const Result<SwapProfile> profile = profile_of(each.model);
  if (!profile) {
    return profile.error();
  }
  SwapRequest request = request_for(each, *profile);
  const std::vector<std::pair<const char*, bool SwapPrinciples::*>> principles = {
      {"all principles", nullptr},
      {"without grouping", &SwapPrinciples::group},
      {"without just-in-time updates", &SwapPrinciples::just_in_time},
      {"without peer-to-peer", &SwapPrinciples::peer_to_peer},
      {"without balance", &SwapPrinciples::balance}};
  for (const auto& [name, principle] : principles) {
    request.machine.principles = {};
    if (principle != nullptr) {
      request.machine.principles.*principle = false;
    }
    const Result<PlannedSwap> planned = plan_swap(request);
    if (!planned) {
      return planned.error();
    }
    report.add({std::string("gpt2_xl, ") + name, "iteration", planned->seconds, "s", {}});
  }
  return {};
}

int run(const std::vector<std::string>& arguments) {
  bool json = false;
  for (const std::string& argument : arguments) {
    if (argument == "--help") {
      std::fputs(kUsage, stdout);
      return 0;
    }
    if (argument != "--json") {
      std::fputs(kUsage, stderr);
      return 2;
    }
    json = true;
  }
  const testing::Report report("swap", json);
  for (const auto& add :
       {add_footprint, add_days, add_example, add_ways, add_searches, add_llamas, add_principles}) {
    if (const Result<void> added = add(report); !added) {
      std::fprintf(stderr, "swap_bench: %s\n", to_string(added.error()).c_str());
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace plimsoll

int main(int argc, char** argv) {
  plimsoll::use_server_allocator();  // as where decisions are made
  return plimsoll::run({argv + 1, argv + argc});
}
