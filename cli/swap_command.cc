// `plimsoll swap`: how a model that exceeds the GPUs' memory trains through host memory.
#include <chrono>
#include <iomanip>

#include "base/json/edit.h"
#include "base/json/view.h"
#include "cli/answer_budget.h"
#include "cli/input.h"
#include "cli/options.h"
#include "cli/subcommands.h"
#include "cli/swap_comparison.h"
#include "cli/swap_explanation.h"
#include "cli/swap_offload.h"
#include "cli/swap_report.h"
#include "cli/swap_source.h"
#include "estimator/swap/plan_json.h"
#include "estimator/swap/planner.h"

namespace plimsoll::cli {
namespace {

constexpr Help kHelp = {
    "plimsoll swap MODEL --gpus N [--batch-size D] [--capacity BYTES] [options]\n"
    "       plimsoll swap MODEL --plan PLAN.json [options]\n"
    "       plimsoll swap --compare MODEL --gpus N [--batch-size D] [--microbatch U] [--capacity BYTES] [options]\n"
    "       plimsoll swap MODEL --executor Megatron|ZeRO1|ZeRO2|ZeRO3|FSDP|FSDP2 --gpus N [--capacity BYTES] [options]\n"
    "MODEL: --profile PROFILE.json | --config config.json | --graph GRAPH.json.gz | -f JOB.yaml",
    "Plans the training of a model that exceeds the GPUs' memory through host memory (Harmony): which layers are on which\n"
    "GPU together, in what order and with what microbatches, so that an iteration is as short as can be; and says how far that\n"
    "is from a proven bound. plimsoll.harmony executes the plan (-o json). What the layers take is derived from a config.json,\n"
    "an exported graph or a TrainingJob, or measured: python3 -m plimsoll.harmony.profile, docs/harmony.md. --compare: the\n"
    "bytes that an iteration moves under data and pipeline parallelism whose GPUs swap for themselves (DP, PP), and under\n"
    "Harmony's (vDP, vPP). --executor: the least that a training by Megatron-LM, DeepSpeed or\n"
    "FSDP has to keep in host memory.",
    "  plimsoll swap --config config.json --gpus 4 --batch-size 64 --gpu RTX-3090 --precision BF16Mixed\n"
    "  plimsoll swap -f job.yaml --gpus 8 -o json > plan.json\n"
    "  plimsoll swap --profile examples/gpt2-xl-profile.json --gpus 4 --batch-size 64 --capacity 10Gi\n"
    "  plimsoll swap --profile profile.json --gpus 2 --batch-size 32 --capacity 24Gi --links host=24Gi,p2p=20Gi -o json > plan.json\n"
    "  plimsoll swap --profile examples/gpt2-xl-profile.json --gpus 4 --batch-size 64 --capacity 10Gi --explain\n"
    "  plimsoll swap --profile profile.json --plan plan.json -o html > plan.html\n"
    "  plimsoll swap --compare --config examples/gpt2-xl-config.json --gpus 4 --capacity 10Gi\n"
    "  plimsoll swap --config config.json --executor Megatron --gpus 16 --tensor 2 --pipeline 2 --expert 4 --gpu H100-80GB \\\n"
    "                --precision BF16Mixed --capacity 60Gi",
};

// What Harmony's authors measured: PCIe 3.0 x16 (estimator/swap/machine.h).
constexpr const char* kHostBandwidth = "11.5Gi";
constexpr const char* kP2PBandwidth = "8.2Gi";
// Of the GTX 1080 Ti that they had (NVIDIA's data sheet).
constexpr const char* kGpuMemoryBandwidth = "484G";

constexpr std::int64_t kMaxComparedGpus = 4096;

struct SwapQuestion {
  estimator::SwapRequest request;
  std::string plan_path;  // of a plan that is simulated, instead of a search
  std::optional<JsonText> plan_text;
  std::string about;  // what a derived profile is of
  bool as_page = false;
  bool explains = false;
};

void read_principles(OptionReader& options, estimator::SwapPrinciples& principles) {
  const std::vector<std::pair<std::string, bool estimator::SwapPrinciples::*>> known = {
      {"grouping", &estimator::SwapPrinciples::group},
      {"just-in-time", &estimator::SwapPrinciples::just_in_time},
      {"peer-to-peer", &estimator::SwapPrinciples::peer_to_peer},
      {"balance", &estimator::SwapPrinciples::balance},
      {"residence", &estimator::SwapPrinciples::stay}};
  for (const std::string& name : options.texts("without")) {
    const auto found =
        std::find_if(known.begin(), known.end(), [&](const auto& each) { return each.first == name; });
    options.require(found != known.end(),
                    "--without must be one of grouping, just-in-time, peer-to-peer, balance, residence",
                    name);
    if (found != known.end()) {
      principles.*found->second = false;
    }
  }
}

void read_machine(OptionReader& options, const SwapSource& source, estimator::SwapMachine& machine) {
  const bool published = options.choice<bool>("runtime", {{"plimsoll", false}, {"published", true}}, false);
  machine = published ? estimator::published_machine() : estimator::SwapMachine();
  Bytes host = *parse_bytes(kHostBandwidth);
  Bytes p2p = *parse_bytes(kP2PBandwidth);
  Bytes memory = source.model() != nullptr && source.model()->gpu != nullptr
                     ? source.model()->gpu->hbm_bandwidth
                     : *parse_bytes(kGpuMemoryBandwidth);
  options.bandwidths("links", {{"host", &host}, {"p2p", &p2p}, {"memory", &memory}});
  machine.host_bandwidth = static_cast<double>(host.count);
  machine.p2p_bandwidth = options.given("no-p2p") ? 0 : static_cast<double>(p2p.count);
  machine.gpu_memory_bandwidth = static_cast<double>(memory.count);
  machine.gpus_per_root = options.count("gpus-per-root", 0, estimator::kMaxSwapGpus, 0);
  read_principles(options, machine.principles);
}

// --gpus and --batch-size, or what the job says.
struct SwapSize {
  std::int64_t gpus = 1;
  std::int64_t samples = 1;
};

SwapSize read_size(OptionReader& options, const SwapSource& source, std::int64_t most_gpus) {
  SwapSize size;
  const std::optional<std::int64_t> gpus = source.gpus();
  options.require(options.given("gpus") || gpus, "plimsoll swap needs --gpus");
  size.gpus = options.count("gpus", 1, most_gpus, gpus.value_or(1));
  const std::optional<std::int64_t> samples = source.samples(size.gpus);
  options.require(options.given("batch-size") || samples, "plimsoll swap needs --batch-size");
  size.samples = options.count("batch-size", 1, estimator::kMaxSwapSamples, samples.value_or(1));
  options.require(size.samples >= 1 && size.samples <= estimator::kMaxSwapSamples,
                  "the job's batch is " + std::to_string(size.samples) + " samples: give --batch-size");
  return size;
}

SwapQuestion read_question(OptionReader& options, const SwapSource& source) {
  using estimator::SwapMode;
  SwapQuestion question;
  question.explains = options.given("explain");
  estimator::SwapRequest& request = question.request;
  read_machine(options, source, request.machine);
  question.plan_path = options.text("plan");
  if (!question.plan_path.empty()) {
    for (const char* const name : {"gpus", "batch-size", "mode", "prefetch"}) {
      options.require(!options.given(name), "--plan says what --" + std::string(name) + " would");
    }
    options.require(!options.given("host-memory"),
                    "--host-memory is about a search, and --plan searches nothing");
    options.require(!question.explains, "--explain is about a search, and --plan searches nothing");
    request.capacity = options.given("capacity") ? options.bytes("capacity") : Bytes{};
    return question;
  }
  const SwapSize size = read_size(options, source, estimator::kMaxSwapGpus);
  request.gpus = size.gpus;
  request.samples = size.samples;
  const std::optional<Bytes> capacity = source.capacity();
  options.require(options.given("capacity") || capacity, "plimsoll swap needs --capacity");
  request.capacity = options.given("capacity") ? options.bytes("capacity") : capacity.value_or(Bytes{});
  request.host_memory = options.given("host-memory") ? options.bytes("host-memory") : Bytes::max();
  request.mode = options.choice<std::optional<SwapMode>>(
      "mode", {{"auto", std::nullopt}, {"vDP", SwapMode::kVDP}, {"vPP", SwapMode::kVPP}}, std::nullopt);
  // The published runtime's prefetch is off by default, too.
  const std::optional<bool> usual = request.machine.runtime == estimator::SwapRuntime::kPublished
                                        ? std::optional<bool>(false)
                                        : std::nullopt;
  request.prefetch = options.choice<std::optional<bool>>(
      "prefetch", {{"auto", std::nullopt}, {"on", true}, {"off", false}}, usual);
  return question;
}

// The samples of a plan's iteration; 1 where it does not say them, which is an error once the plan is read.
std::int64_t samples_of(const JsonText& plan) {
  const std::int64_t samples = member(plan.root(), {"batchSize"}).integer().value_or(1);
  return std::clamp<std::int64_t>(samples, 1, estimator::kMaxSwapSamples);
}

// A plan of the user's. Its bound is that of no search, so there is none.
Result<estimator::PlannedSwap> simulated(const SwapQuestion& question,
                                         const estimator::SwapProfile& profile) {
  const Result<estimator::SwapPlan> plan =
      estimator::read_swap_plan(question.plan_text->root(), profile.layers());
  if (!plan) {
    return plan.error().within(question.plan_path);
  }
  estimator::SwapCosts costs(profile);
  const estimator::SwapMachine& machine = question.request.machine;
  estimator::PlannedSwap planned;
  planned.plan = *plan;
  planned.plan.peer_to_peer = plan->peer_to_peer && estimator::hands_over_by_p2p(machine);
  const Result<estimator::SwapTimes> times =
      estimator::simulate_swap(planned.plan, costs, machine, nullptr, question.request.budget);
  if (!times) {
    return times.error();
  }
  planned.seconds = times->seconds;
  planned.device_memory = estimator::device_memory(planned.plan, costs, machine.runtime);
  planned.host = estimator::host_memory(planned.plan, profile);
  planned.volumes = estimator::packed_volumes(planned.plan, profile, machine.runtime);
  planned.weights = profile.weights;
  planned.inputs = profile.input;
  return planned;
}

Result<estimator::PlannedSwap> searched(SwapQuestion& question, Console& console) {
  if (console.terminal) {
    question.request.progress = [&console](double share, double seconds) {
      console.err << "\rsearching: " << static_cast<int>(100 * share) << " %, " << std::setprecision(4)
                  << seconds << " s an iteration   " << std::flush;
    };
  }
  Result<estimator::PlannedSwap> planned = estimator::plan_swap(question.request);
  if (console.terminal) {
    console.err << "\r\033[K" << std::flush;
  }
  return planned;
}

int answer(SwapQuestion& question, const estimator::SwapProfile& profile, AnswerBudget& budget,
           OutputFormat format, Console& console) {
  question.request.profile = &profile;
  question.request.budget = budget.get();
  const auto began = std::chrono::steady_clock::now();
  const Result<estimator::PlannedSwap> planned = budget.run([&] {
    return question.plan_path.empty() ? searched(question, console) : simulated(question, profile);
  });
  if (!planned) {
    return complain(console, exit_code_of(planned.error()), planned.error());
  }
  SwapReport report{.planned = *planned,
                    .times = {},
                    .timeline = {},
                    .task_memory = {},
                    .machine = question.request.machine};
  report.elapsed_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  report.capacity = question.request.capacity;
  report.layers = profile.layers();
  report.about = question.about;
  if (format != OutputFormat::kTable && !question.as_page) {
    JsonObject json = estimator::to_json(*planned, profile.layers(), question.request.capacity);
    json["elapsedSeconds"] = report.elapsed_seconds;
    if (question.explains) {
      json["explanation"] = swap_explanation_json(*planned);
    }
    print_answers(console, format, {std::move(json)});
    return kExitDone;
  }
  estimator::SwapCosts costs(profile);
  report.times = *estimator::simulate_swap(planned->plan, costs, question.request.machine,
                                           question.as_page ? &report.timeline : nullptr);
  report.task_memory = estimator::memory_of_tasks(planned->plan, costs, question.request.machine.runtime);
  console.out << (question.as_page ? swap_report_page(report) : swap_report_text(report));
  if (question.explains) {
    console.out << swap_explanation_text(*planned);
  }
  return kExitDone;
}

}  // namespace

po::options_description swap_options() {
  const auto value = [](const char* name) { return po::value<std::string>()->value_name(name); };
  po::options_description options = swap_source_options();
  options.add_options()("gpus", value("N"), "GPUs of the node (default: the job's)")(
      "batch-size", value("D"),
      "samples of an iteration, of all GPUs together (default: the job's; of a derived profile 16 a GPU)")(
      "capacity", value("BYTES"),
      "memory of a GPU that may be used, like 10Gi (default: of the card of a derived profile, without context and headroom)")(
      "host-memory", value("BYTES"),
      "memory of the node's host that the plan's tensors may take, or another executor's (default: any)")(
      "mode", value("MODE"),
      "auto (default), the faster one; vDP, each GPU runs all layers; vPP, the layers go round the GPUs")(
      "prefetch", value("WHEN"),
      "auto (default), where it is faster; on, a task's weights arrive while the one before it runs; off")(
      "links", value("LIST"),
      ("bandwidths in bytes a second: host=" + std::string(kHostBandwidth) + ",p2p=" + kP2PBandwidth +
       " (default, PCIe 3.0 x16): of a root complex, each way; from GPU to GPU; and memory, of a GPU's own (default: the card's, with "
       "--profile " +
       kGpuMemoryBandwidth + ")")
          .c_str())("no-p2p", "GPUs hand over to each other through the host")(
      "gpus-per-root", value("N"), "GPUs that share a root complex; default: all")(
      "runtime", value("NAME"),
      "plimsoll (default): what plimsoll.harmony does; published: Harmony's own code, with its constants")(
      "without", po::value<std::vector<std::string>>()->value_name("PRINCIPLE"),
      "grouping, just-in-time, peer-to-peer, balance or residence: what it is worth; may be repeated")(
      "plan", value("FILE"), "a plan as JSON, to simulate instead of searching one")(
      "explain", "what bounds the iteration, and which plans the search considered")(
      "compare", "the bytes that DP, PP, vDP and vPP move")(
      "microbatch", value("U"),
      "of --compare: samples that a layer takes at once (default of a derived profile: up to 4)")(
      "semantics", value("NAME"),
      "of --compare: table (default), the paper's; runtime, what Harmony's published code moves for vDP and vPP with each layer a pack")(
      "paging", value("RULE"),
      "of --compare, for DP and PP: strict (default), a task's operands come and go; one-layer, weights stay until another "
      "layer's are needed; drop-clean, and are not written back unless they were updated")(
      "fused-turn", "of --compare, for vDP and vPP: the last layer's backward follows its forward at once")(
      "output,o", po::value<std::string>()->default_value("table")->value_name("FORMAT"),
      "table for people, json or yaml for programs, html for a page with the timeline");
  const po::options_description of_executors = swap_offload_options();
  for (const auto& option : of_executors.options()) {
    options.add(option);
  }
  add_timeout_option(options);
  options.add_options()("help,h", "print this help");
  return options;
}

int run_swap(const std::vector<std::string>& arguments, Console& console) {
  po::variables_map values;
  if (const std::optional<int> code = read_options(arguments, swap_options(), kHelp, console, values)) {
    return *code;
  }
  const bool as_page = values["output"].as<std::string>() == "html";
  const Result<OutputFormat> format = as_page ? OutputFormat::kTable : output_format(values);
  if (!format) {
    return complain(console, kExitUsage, format.error());
  }
  OptionReader options(values);
  const bool compares = options.given("compare");
  options.require(!compares || !options.given("host-memory"),
                  "--host-memory is about a search, and --compare searches nothing");
  options.require(!compares || !as_page, "--compare has no page; use -o table, json or yaml");
  options.require(!options.given("explain") || !(compares || as_page),
                  "--explain is about a search: use it without --compare, with -o table, json or yaml");
  const bool offloads = asks_for_offload(options);
  options.require(!offloads || !as_page, "--executor has no page; use -o table, json or yaml");
  if (!offloads) {
    refuse_offload_options(options);
  }
  const SwapSource source = read_swap_source(options, console);
  AnswerBudget budget(read_timeout(options));
  if (offloads) {
    return run_swap_offload(options, source, budget, *format, console);
  }
  SwapComparison comparison;
  SwapQuestion question;
  if (options.error()) {
    return complain(console, kExitUsage, *options.error());
  }
  if (compares) {
    const SwapSize size = read_size(options, source, kMaxComparedGpus);
    comparison = read_swap_comparison(options, size.gpus, size.samples, source.derived());
  } else {
    question = read_question(options, source);
    question.as_page = as_page;
  }
  if (options.error()) {
    return complain(console, kExitUsage, *options.error());
  }
  std::int64_t samples = compares ? comparison.samples() : question.request.samples;
  if (!question.plan_path.empty()) {
    const Result<std::string> content = read_input(question.plan_path, console);
    Result<JsonText> plan = content ? JsonText::parse_as_tree(*content) : Result<JsonText>(content.error());
    if (!plan) {
      return complain(console, kExitUsage, content ? plan.error().within(question.plan_path) : plan.error());
    }
    question.plan_text.emplace(*std::move(plan));
    samples = samples_of(*question.plan_text);
  }
  const Result<estimator::SwapProfile> profile = source.profile(samples, budget);
  if (!profile) {
    return complain(console, exit_code_of(profile.error()), profile.error());
  }
  if (compares) {
    print_swap_comparison(console, *format, comparison, *profile, source.about());
    return kExitDone;
  }
  question.about = source.about();
  return answer(question, *profile, budget, *format, console);
}

}  // namespace plimsoll::cli
