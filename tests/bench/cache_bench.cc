// ./scripts/bench cache: 10,000 TrainingJobs and 50,000 pods in our reflectors, and in informers of Go's
// client-go (tests/bench/peers/informer): resident memory, how much of it is live, time until both
// collections are there, and changes a second. Each is a process of its own against the same server, which
// this process is; both keep the same fields of an object and index pods by owner and by job, and both run
// with their runtime's defaults. By turns: a ratio is of one round's two figures, and the median of the
// rounds is printed between the best and the worst of them.
//
// Without --peer only ours is measured.
#include <malloc.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/allocator.h"
#include "base/json/json.h"
#include "base/log.h"
#include "kube/http_client.h"
#include "kube/kubeconfig.h"
#include "kube/reflector.h"
#include "kube/transport.h"
#include "tests/bench/object_server.h"
#include "tests/bench/report.h"
#include "tests/controlplane/scratch_directory.h"
#include "tests/controlplane/subprocess.h"

namespace plimsoll {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr const char* kUsage =
    "usage: cache_bench [--json] [--peer PROGRAM] [--pods N] [--jobs N] [--events N] [--rounds N]\n"
    "                   [--first watch|list]\n"
    "\n"
    "  --json         one object a line: {bench, case, metric, value, unit, reference}\n"
    "  --peer PROGRAM the Go informers; without it ours alone are measured\n"
    "  --pods N       (default 50000)\n"
    "  --jobs N       (default 10000)\n"
    "  --events N     changes of pods, once all is there (default 20000)\n"
    "  --rounds N     by turns (default 5)\n"
    "  --first HOW    the first list comes by watch (the default of both), or by list, as from servers\n"
    "                 that cannot stream it\n";

struct Settings {
  bool json = false;
  std::string peer;
  int pods = 50'000;
  int jobs = 10'000;
  int events = 20'000;
  int rounds = 5;
  std::string first = "watch";
  std::string cache;  // a server's URL: be the cache
};

std::optional<Settings> parse(int argc, char** argv) {
  Settings settings;
  const bool good = testing::read_arguments(
      argc, argv,
      {.json = &settings.json,
       .numbers = {{"--pods", &settings.pods},
                   {"--jobs", &settings.jobs},
                   {"--events", &settings.events},
                   {"--rounds", &settings.rounds}},
       .texts = {{"--peer", &settings.peer}, {"--cache", &settings.cache}, {"--first", &settings.first}}});
  return good && settings.events > 1 && (settings.first == "watch" || settings.first == "list")
             ? std::optional(settings)
             : std::nullopt;
}

// As slimPod of the peer.
JsonSelection slim_pod() {
  return JsonSelection()
      .only({}, {"metadata", "spec", "status"})
      .only({"metadata"}, {"name", "namespace", "uid", "resourceVersion", "labels", "annotations",
                           "ownerReferences", "deletionTimestamp"})
      .only({"spec"}, {"nodeName"})
      .only({"status"}, {"phase", "reason", "conditions", "containerStatuses"});
}

// As slimJob.
JsonSelection slim_job() {
  return JsonSelection().without({"metadata"}, {"managedFields"});
}

// "VmRSS" or "VmHWM", in KiB.
std::string memory(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(field + ":", 0) == 0) {
      return line.substr(line.find_first_of("0123456789"),
                         line.find(" kB") - line.find_first_of("0123456789"));
    }
  }
  return "0";
}

// What malloc has given out and not had back, in KiB: without what it keeps for later.
std::size_t live_memory() {
  const struct mallinfo2 heap = ::mallinfo2();
  return (heap.uordblks + heap.hblkhd) >> 10;
}

// What the peer prints, too.
void tell(const char* what, Seconds took) {
  std::printf("%s %.6f %s %s\n", what, took.count(), memory("VmRSS").c_str(), memory("VmHWM").c_str());
  std::fflush(stdout);
}

int be_the_cache(const Settings& settings) {
  use_server_allocator();  // as the operator
  kube::initialise_transport();
  configure_log(LogLevel::kError, LogFormat::kText);
  kube::ClientConfig config;
  config.source = "the benchmark";
  config.server = settings.cache;
  const Result<std::unique_ptr<kube::Client>> client = kube::connect(config);
  if (!client) {
    std::fprintf(stderr, "%s\n", client.error().message.c_str());
    return 1;
  }
  std::atomic<int> seen = 0;
  std::chrono::steady_clock::time_point first;
  std::atomic<bool> done = false;
  kube::Reflector pods(**client, {.resource = {.group = "", .version = "v1", .plural = "pods"},
                                  .keep = slim_pod(),
                                  .indexers = {{"owner", kube::index_by_owner},
                                               {"job", kube::index_by_label("plimsoll.dev/job-name")}},
                                  .on_change =
                                      [&](const kube::Reflector::Change& change) {
                                        if (!change.before) {
                                          return;
                                        }
                                        const int number = ++seen;
                                        if (number == 1) {
                                          first = std::chrono::steady_clock::now();
                                        } else if (number == settings.events) {
                                          tell("events", std::chrono::steady_clock::now() - first);
                                          done = true;
                                          done.notify_all();
                                        }
                                      },
                                  .stream_lists = settings.first == "watch"});
  kube::Reflector jobs(
      **client, {.resource = {.group = "plimsoll.dev", .version = "v1alpha1", .plural = "trainingjobs"},
                 .keep = slim_job(),
                 .stream_lists = settings.first == "watch"});
  const auto begin = std::chrono::steady_clock::now();
  pods.start();
  jobs.start();
  const std::stop_source never;
  if (!pods.wait_for_sync(never.get_token()) || !jobs.wait_for_sync(never.get_token())) {
    return 1;
  }
  tell("synced", std::chrono::steady_clock::now() - begin);
  done.wait(false);
  std::printf("live %zu\n", live_memory());
  std::fflush(stdout);
  std::_Exit(0);  // as the peer: nothing is taken apart
}

struct Figures {
  double sync_seconds = 0;
  double change_milliseconds = 0;  // from one change to the next
  double resident_mib = 0;         // once both collections are there
  double live_mib = 0;             // of that, in use; after the changes
  double peak_mib = 0;             // to the end of the changes
};

// The figures of the line that begins with `what`. Waits for it while the process runs.
std::optional<std::vector<double>> line_of(testing::Subprocess& process, const std::string& log,
                                           const std::string& what) {
  constexpr int kTries = 30'000;
  for (int i = 0; i < kTries; ++i) {
    const bool running = process.running();
    std::ifstream file(log);
    for (std::string line; std::getline(file, line) && !file.eof();) {  // whole lines only
      std::istringstream words(line);
      std::string name;
      if (words >> name && name == what) {
        return std::vector<double>(std::istream_iterator<double>(words), {});
      }
    }
    if (!running) {
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::fprintf(stderr, "no figures came of %s:\n%s\n", what.c_str(), testing::tail_of_file(log).c_str());
  return std::nullopt;
}

std::optional<Figures> measure(const Settings& settings, bool peer, const std::string& log) {
  testing::ObjectServer server({.pods = settings.pods, .jobs = settings.jobs});
  const std::string url = "http://127.0.0.1:" + std::to_string(server.port());
  const std::string events = std::to_string(settings.events);
  const std::vector<std::string> ours = {"/proc/self/exe", "--cache", url,           "--events",
                                         events,           "--first", settings.first};
  Result<std::unique_ptr<testing::Subprocess>> process = testing::Subprocess::start(
      {.arguments = peer ? std::vector<std::string>{settings.peer, url, events} : ours,
       .environment = {settings.first == "list" ? "KUBE_FEATURE_WatchListClient=false"
                                                : "KUBE_FEATURE_WatchListClient=true"},
       .log_file = log,
       .confinement = {}});
  if (!process) {
    std::fprintf(stderr, "%s\n", process.error().message.c_str());
    return std::nullopt;
  }
  const auto synced = line_of(**process, log, "synced");
  if (!synced) {
    return std::nullopt;
  }
  server.change_pods(settings.events);
  const auto changed = line_of(**process, log, "events");
  if (!changed) {
    return std::nullopt;
  }
  const auto live = line_of(**process, log, "live");
  if (!live || synced->size() < 3 || changed->size() < 3 || live->empty()) {
    return std::nullopt;
  }
  return Figures{.sync_seconds = (*synced)[0],
                 .change_milliseconds = 1000 * (*changed)[0] / (settings.events - 1),
                 .resident_mib = (*synced)[1] / 1024,
                 .live_mib = (*live)[0] / 1024,
                 .peak_mib = (*changed)[2] / 1024};
}

using Values = std::vector<double>;

double median(Values values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Values values_of(const std::vector<Figures>& all, double Figures::*which) {
  Values values;
  std::transform(all.begin(), all.end(), std::back_inserter(values),
                 [&](const Figures& figures) { return figures.*which; });
  return values;
}

struct Metric {
  const char* name;
  double Figures::*of;
  const char* unit;
};
constexpr std::array<Metric, 5> kMetrics = {{{"resident", &Figures::resident_mib, "MiB"},
                                             {"live", &Figures::live_mib, "MiB"},
                                             {"highest", &Figures::peak_mib, "MiB"},
                                             {"sync", &Figures::sync_seconds, "s"},
                                             {"change", &Figures::change_milliseconds, "ms"}}};

void tell_each(const testing::Report& report, const std::string& whose, const std::vector<Figures>& rounds) {
  for (const Metric& metric : kMetrics) {
    report.add({whose, metric.name, median(values_of(rounds, metric.of)), metric.unit});
  }
  report.add({whose, "changes", 1000 / median(values_of(rounds, &Figures::change_milliseconds)), "a second"});
}

void tell_ratios(const testing::Report& report, const std::vector<Figures>& ours,
                 const std::vector<Figures>& theirs) {
  for (const Metric& metric : kMetrics) {
    Values ratios = values_of(ours, metric.of);
    for (std::size_t round = 0; round < ratios.size(); ++round) {
      ratios[round] /= theirs[round].*metric.of;
    }
    const auto [best, worst] = std::minmax_element(ratios.begin(), ratios.end());
    const std::string name = metric.name;
    report.add({"ours over client-go", name, median(ratios), "ratio", 1});
    report.add({"ours over client-go", name + ", best", *best, "ratio"});
    report.add({"ours over client-go", name + ", worst", *worst, "ratio"});
  }
}

int run(const Settings& settings) {
  const Result<std::unique_ptr<testing::ScratchDirectory>> folder = testing::ScratchDirectory::create();
  if (!folder) {
    std::fprintf(stderr, "%s\n", folder.error().message.c_str());
    return 1;
  }
  const testing::Report report("cache", settings.json);
  std::vector<std::vector<Figures>> of(settings.peer.empty() ? 1 : 2);
  for (int round = 0; round < settings.rounds; ++round) {
    for (std::size_t i = 0; i < of.size(); ++i) {
      const std::string log =
          (*folder)->file("cache-" + std::to_string(round) + "-" + std::to_string(i) + ".log");
      const std::optional<Figures> figures = measure(settings, i == 1, log);
      if (!figures) {
        return 1;
      }
      of[i].push_back(*figures);
    }
  }
  tell_each(report, "ours", of[0]);
  if (of.size() == 2) {
    tell_each(report, "client-go", of[1]);
    tell_ratios(report, of[0], of[1]);
  }
  return 0;
}

}  // namespace
}  // namespace plimsoll

int main(int argc, char** argv) {
  const std::optional<plimsoll::Settings> settings = plimsoll::parse(argc, argv);
  if (!settings) {
    const bool help = argc == 2 && (std::string(argv[1]) == "--help" || std::string(argv[1]) == "-h");
    std::fputs(plimsoll::kUsage, help ? stdout : stderr);
    return help ? 0 : 2;
  }
  return settings->cache.empty() ? plimsoll::run(*settings) : plimsoll::be_the_cache(*settings);
}
