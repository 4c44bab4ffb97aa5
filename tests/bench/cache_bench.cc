// ./scripts/bench cache: 10,000 TrainingJobs and 50,000 pods in our reflectors, and in informers of Go's
// client-go (tests/bench/peers/informer): resident memory, time until both collections are there, and changes
// a second. Each is a process of its own against the same server, which this process is; both keep the same
// fields of an object and index pods by owner and by job. By turns; medians are printed.
//
// Without --peer only ours is measured.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/json.h"
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
    "\n"
    "  --json         one object a line: {bench, case, metric, value, unit, reference}\n"
    "  --peer PROGRAM the Go informers; without it ours alone are measured\n"
    "  --pods N       (default 50000)\n"
    "  --jobs N       (default 10000)\n"
    "  --events N     changes of pods, once all is there (default 20000)\n"
    "  --rounds N     by turns (default 3)\n";

struct Settings {
  bool json = false;
  std::string peer;
  int pods = 50'000;
  int jobs = 10'000;
  int events = 20'000;
  int rounds = 3;
  std::string cache;  // a server's URL: be the cache
};

std::optional<Settings> parse(int argc, char** argv) {
  Settings settings;
  const bool good =
      testing::read_arguments(argc, argv,
                              {.json = &settings.json,
                               .numbers = {{"--pods", &settings.pods},
                                           {"--jobs", &settings.jobs},
                                           {"--events", &settings.events},
                                           {"--rounds", &settings.rounds}},
                               .texts = {{"--peer", &settings.peer}, {"--cache", &settings.cache}}});
  return good && settings.events > 1 ? std::optional(settings) : std::nullopt;
}

void keep(Json& kept, const JsonView& object, const char* part, std::initializer_list<const char*> fields) {
  for (const char* field : fields) {
    if (const JsonView value = member(object, {part, field}); !value.is_null()) {
      kept[part][field] = tree_of(value);
    }
  }
}

// As slimPod of the peer.
Json project_pod(const JsonView& pod) {
  Json kept(::Json::objectValue);
  keep(kept, pod, "metadata",
       {"name", "namespace", "uid", "resourceVersion", "labels", "annotations", "ownerReferences",
        "deletionTimestamp"});
  keep(kept, pod, "spec", {"nodeName"});
  keep(kept, pod, "status", {"phase", "reason", "conditions", "containerStatuses"});
  return kept;
}

Json project_job(const JsonView& job) {
  Json kept = tree_of(job);
  kept["metadata"].removeMember("managedFields");
  return kept;
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

// What the peer prints, too.
void tell(const char* what, Seconds took) {
  std::printf("%s %.6f %s %s\n", what, took.count(), memory("VmRSS").c_str(), memory("VmHWM").c_str());
  std::fflush(stdout);
}

int be_the_cache(const Settings& settings) {
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
                                  .project = project_pod,
                                  .indexers = {{"owner", kube::index_by_owner},
                                               {"job", kube::index_by_label("plimsoll.dev/job-name")}},
                                  .on_change = [&](const kube::Reflector::Change& change) {
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
                                  }});
  kube::Reflector jobs(
      **client, {.resource = {.group = "plimsoll.dev", .version = "v1alpha1", .plural = "trainingjobs"},
                 .project = project_job});
  const auto begin = std::chrono::steady_clock::now();
  pods.start();
  jobs.start();
  const std::stop_source never;
  if (!pods.wait_for_sync(never.get_token()) || !jobs.wait_for_sync(never.get_token())) {
    return 1;
  }
  tell("synced", std::chrono::steady_clock::now() - begin);
  done.wait(false);
  std::_Exit(0);  // as the peer: nothing is taken apart
}

struct Figures {
  double sync_seconds = 0;
  double events_a_second = 0;
  double resident_mib = 0;  // once both collections are there
  double peak_mib = 0;      // to the end of the changes
};

// The line that begins with `what`: seconds, resident and highest KiB. Waits for it while the process runs.
std::optional<std::array<double, 3>> line_of(testing::Subprocess& process, const std::string& log,
                                             const std::string& what) {
  constexpr int kTries = 30'000;
  for (int i = 0; i < kTries; ++i) {
    const bool running = process.running();
    std::ifstream file(log);
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::string name;
      std::array<double, 3> figures{};
      if (words >> name >> figures[0] >> figures[1] >> figures[2] && name == what) {
        return figures;
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
  const std::vector<std::string> ours = {"/proc/self/exe", "--cache", url, "--events", events};
  Result<std::unique_ptr<testing::Subprocess>> process = testing::Subprocess::start(
      {.arguments = peer ? std::vector<std::string>{settings.peer, url, events} : ours,
       .environment = {},
       .log_file = log});
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
  return Figures{.sync_seconds = (*synced)[0],
                 .events_a_second = (settings.events - 1) / (*changed)[0],
                 .resident_mib = (*synced)[1] / 1024,
                 .peak_mib = (*changed)[2] / 1024};
}

double median(const std::vector<Figures>& all, double Figures::*which) {
  std::vector<double> values;
  for (const Figures& figures : all) {
    values.push_back(figures.*which);
  }
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
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
  const std::array<std::string, 2> names = {"ours", "client-go"};
  for (std::size_t i = 0; i < of.size(); ++i) {
    report.add({names[i], "resident", median(of[i], &Figures::resident_mib), "MiB"});
    report.add({names[i], "highest", median(of[i], &Figures::peak_mib), "MiB"});
    report.add({names[i], "sync", median(of[i], &Figures::sync_seconds), "s"});
    report.add({names[i], "changes", median(of[i], &Figures::events_a_second), "a second"});
  }
  if (of.size() == 2) {
    const auto ratio = [&](double Figures::*which) { return median(of[0], which) / median(of[1], which); };
    report.add({"ours over client-go", "resident", ratio(&Figures::resident_mib), "ratio", 1});
    report.add({"ours over client-go", "sync", ratio(&Figures::sync_seconds), "ratio", 1});
    report.add({"client-go over ours", "changes", 1 / ratio(&Figures::events_a_second), "ratio", 1});
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
