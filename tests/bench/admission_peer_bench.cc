// ./scripts/bench admission --peer controller-runtime: our webhook server beside a small Go one on
// sigs.k8s.io/controller-runtime (tests/bench/peers/webhook), each a process of its own with the same
// certificate. Both decode every review into a typed TrainingJob and answer one and the same patch, so that
// TLS, HTTP and JSON are compared and no estimate. The same clients ask both, by turns.
//
// Without --peer only ours is measured.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/allocator.h"
#include "base/json/json.h"
#include "base/log.h"
#include "crds/training_job.h"
#include "http/server.h"
#include "tests/bench/admission_load.h"
#include "tests/bench/report.h"
#include "tests/checkout.h"
#include "tests/controlplane/free_ports.h"
#include "tests/controlplane/scratch_directory.h"
#include "tests/controlplane/subprocess.h"
#include "tests/http/peer.h"
#include "tests/webhook/samples.h"
#include "tests/webhook/test_server.h"
#include "webhook/admission_handler.h"
#include "webhook/admission_review.h"

namespace plimsoll {
namespace {

using testing::Seconds;
using testing::Times;

constexpr const char* kUsage =
    "usage: admission_peer_bench [--json] [--peer PROGRAM] [--requests N] [--rounds N] [--clients N] "
    "[--workers N] [--idle N] [--job FILE]\n"
    "\n"
    "  --json         one object a line: {bench, case, metric, value, unit, reference}\n"
    "  --peer PROGRAM the Go webhook; without it ours alone is measured\n"
    "  --requests N   to each server in a round, of small reviews; half of it of middle, a tenth of large\n"
    "                 ones (default 2000)\n"
    "  --rounds N     by turns (default 11)\n"
    "  --clients N    at the same time (default 4)\n"
    "  --workers N    of our server (default 2)\n"
    "  --idle N       connections kept open to measure the memory of an idle one (default 2000)\n"
    "  --job FILE     the job of the large reviews (default: examples/model-a.yaml)\n";

constexpr const char* kPatch =
    R"([{"op":"add","path":"/spec/trainers","value":{"replicas":64,"perNode":8,"gpuModel":"A100-80GB"}}])";
constexpr std::size_t kMaxConnections = 16'000;  // none of the idle ones is to be closed
constexpr int kLargeShare = 10;                  // a large review for so many small ones
constexpr int kMiddleShare = 2;
constexpr ::Json::ArrayIndex kMiddleTables = 200;
// Ours must answer at least as many small reviews, and 5 times as many of 18 KiB and above; the report's aims
// are upper limits.
constexpr double kTargetSmall = 1.0;
constexpr double kTargetLarge = 1 / 5.0;

struct Settings {
  bool json = false;
  std::string peer;
  int requests = 2000;
  int rounds = 11;
  int clients = 4;
  int workers = 2;
  int idle = 2000;
  std::string job = PLIMSOLL_SOURCE_DIR "/examples/model-a.yaml";
  std::string serve;  // a folder with a certificate: be the server
  int port = 0;
};

std::optional<Settings> parse(int argc, char** argv) {
  Settings settings;
  const bool good = testing::read_arguments(
      argc, argv,
      {.json = &settings.json,
       .numbers = {{"--requests", &settings.requests},
                   {"--rounds", &settings.rounds},
                   {"--clients", &settings.clients},
                   {"--workers", &settings.workers},
                   {"--idle", &settings.idle},
                   {"--port", &settings.port}},
       .texts = {{"--peer", &settings.peer}, {"--job", &settings.job}, {"--serve", &settings.serve}}});
  return good && settings.requests >= kLargeShare ? std::optional(settings) : std::nullopt;
}

// What ours does with a review here: decode it and its job, and answer the patch.
http::Response answer_fixed(const http::Request& request, const Json& patch) {
  const webhook::Decoded review = webhook::decode_review(request.body);
  if (review.error) {
    return {review.error->http_status, "application/json", webhook::encode_error(*review.error)};
  }
  const Result<crds::TrainingJob> job = crds::decode_training_job(review.request.object);
  if (!job || !job->spec.model.dlrm || job->spec.model.dlrm->tables.empty()) {
    return {400, "text/plain", "the job has no tables"};
  }
  webhook::AdmissionAnswer answer;
  answer.patch = patch;
  return {200, "application/json", webhook::encode_answer(review.request.uid, answer)};
}

int serve(const Settings& settings) {
  use_server_allocator();
  configure_log(LogLevel::kError, LogFormat::kText);
  auto certificates = std::make_shared<http::FileCertificateSource>(
      http::FileCertificateOptions{.directory = settings.serve});
  if (const Result<void> started = certificates->start(); !started) {
    std::fprintf(stderr, "%s\n", started.error().message.c_str());
    return 1;
  }
  http::ServerOptions options = testing::test_options();
  options.port = static_cast<std::uint16_t>(settings.port);
  options.workers = settings.workers;
  options.max_connections = kMaxConnections;
  const Json patch = *parse_json(kPatch);
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  http::Server server(
      options, [&](const http::Request& request) { return answer_fixed(request, patch); }, certificates);
  if (const Result<void> started = server.start(); !started) {
    std::fprintf(stderr, "%s\n", started.error().message.c_str());
    return 1;
  }
  int signal = 0;
  sigwait(&ends, &signal);
  return 0;
}

Json with_fewer_tables(Json job) {
  Json& tables = job["spec"]["model"]["dlrm"]["tables"];
  tables.resize(std::min(tables.size(), kMiddleTables));
  return job;
}

// One of the two, running.
struct Contestant {
  std::string name;
  std::uint16_t port = 0;
  std::unique_ptr<testing::Subprocess> process;
};

std::optional<Contestant> start(std::string name, const std::vector<std::string>& arguments, int port) {
  Result<std::unique_ptr<testing::Subprocess>> process = testing::Subprocess::start(
      {.arguments = arguments, .environment = {}, .log_file = {}, .confinement = {}});
  if (!process) {
    std::fprintf(stderr, "%s\n", process.error().message.c_str());
    return std::nullopt;
  }
  Contestant contestant{
      .name = std::move(name), .port = static_cast<std::uint16_t>(port), .process = *std::move(process)};
  for (int i = 0; i < 600 && contestant.process->running(); ++i) {
    if (testing::Peer peer(contestant.port); peer.connected() && peer.start_tls()) {
      return contestant;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  std::fprintf(stderr, "%s does not serve\n", contestant.name.c_str());
  return std::nullopt;
}

// What one round of requests to one contestant came to.
struct Round {
  double a_second = 0;
  double p50 = 0;  // milliseconds
  double p99 = 0;
  double server_cpu = 0;  // microseconds a request
  double client_cpu = 0;
};

double median(const std::vector<Round>& rounds, const std::function<double(const Round&)>& figure) {
  std::vector<double> figures;
  for (const Round& round : rounds) {
    figures.push_back(figure(round));
  }
  const auto middle = figures.begin() + static_cast<std::ptrdiff_t>(figures.size() / 2);
  std::nth_element(figures.begin(), middle, figures.end());
  return *middle;
}

Seconds cpu_time_of_process(pid_t process) {
  clockid_t clock{};
  timespec time{};
  if (::clock_getcpuclockid(process, &clock) != 0 || ::clock_gettime(clock, &time) != 0) {
    return Seconds(0);
  }
  return Seconds(static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec));
}

std::optional<Round> play(const Contestant& contestant, const std::vector<std::string>& bodies, int clients) {
  const Seconds begin = cpu_time_of_process(contestant.process->pid());
  const testing::Drive drive = testing::send_all(contestant.port, webhook::kMutatePath, bodies, clients);
  const Seconds server_cpu = cpu_time_of_process(contestant.process->pid()) - begin;
  if (drive.patched != static_cast<int>(bodies.size())) {
    std::fprintf(stderr, "%s gave %d patches for %zu reviews\n", contestant.name.c_str(), drive.patched,
                 bodies.size());
    return std::nullopt;
  }
  Times times(drive.seconds);
  times.sort();
  const auto requests = static_cast<double>(bodies.size());
  return Round{.a_second = requests / drive.elapsed.count(),
               .p50 = 1e3 * times.at(0.5),
               .p99 = 1e3 * times.at(0.99),
               .server_cpu = 1e6 * server_cpu.count() / requests,
               .client_cpu = 1e6 * drive.client_cpu.count() / requests};
}

double resident_kib(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) {
      return std::atof(line.c_str() + 6);
    }
  }
  return 0;
}

// What the server holds for a connection on which one request was answered. The first half of the
// connections warms its heap up; the second is measured.
bool measure_idle(const testing::Report& report, const Contestant& contestant, const std::string& review,
                  int connections) {
  std::vector<std::unique_ptr<testing::Peer>> peers;
  double before = 0;
  for (int i = 0; i < 2 * connections; ++i) {
    if (i == connections) {
      before = resident_kib(contestant.process->pid());
    }
    peers.push_back(std::make_unique<testing::Peer>(contestant.port));
    testing::Peer& peer = *peers.back();
    if (!peer.connected() || !peer.start_tls() ||
        !peer.exchange("POST", webhook::kMutatePath, "application/json", review)) {
      std::fprintf(stderr, "%s does not serve %d connections\n", contestant.name.c_str(), i);
      return false;
    }
  }
  report.add({contestant.name, "memory of an idle connection",
              (resident_kib(contestant.process->pid()) - before) / connections, "KiB"});
  return true;
}

// For both ends of each connection.
void allow_open_files() {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
}

// By turns, so that both see the same moods of the machine; each figure is the median of the rounds. False
// when an answer was no patch.
bool compare(const testing::Report& report, const Settings& settings,
             const std::vector<Contestant>& contestants, const std::vector<std::string>& bodies,
             double target) {
  std::vector<std::vector<Round>> rounds(contestants.size());
  for (int number = -1; number < settings.rounds; ++number) {  // the first is to warm up
    for (std::size_t i = 0; i < contestants.size(); ++i) {
      const std::optional<Round> round = play(contestants[i], bodies, settings.clients);
      if (!round) {
        return false;
      }
      if (number >= 0) {
        rounds[i].push_back(*round);
      }
    }
  }
  const std::string size = std::to_string((bodies.front().size() + 512) / 1024) + " KiB";
  for (std::size_t i = 0; i < contestants.size(); ++i) {
    const std::string name = size + ", " + contestants[i].name;
    report.add({name, "throughput", median(rounds[i], &Round::a_second), "a second"});
    report.add({name, "p50", median(rounds[i], &Round::p50), "ms"});
    report.add({name, "p99", median(rounds[i], &Round::p99), "ms"});
    report.add({name, "server's cpu", median(rounds[i], &Round::server_cpu), "us"});
    report.add({name, "client's cpu", median(rounds[i], &Round::client_cpu), "us"});
  }
  if (contestants.size() == 2) {
    std::vector<Round> ratios;  // each round's, which had the machine in one mood
    for (std::size_t i = 0; i < rounds[0].size(); ++i) {
      ratios.push_back({.a_second = rounds[1][i].a_second / rounds[0][i].a_second,
                        .p99 = rounds[0][i].p99 / rounds[1][i].p99});
    }
    report.add(
        {size + ", theirs over ours", "throughput", median(ratios, &Round::a_second), "ratio", target});
    report.add({size + ", ours over theirs", "p99", median(ratios, &Round::p99), "ratio", 1});
  }
  return true;
}

int run(const Settings& settings) {
  const std::optional<Json> job = testing::read_job(settings.job);
  const Result<std::unique_ptr<testing::ScratchDirectory>> folder = testing::ScratchDirectory::create();
  const testing::KeyPair pair = testing::new_server_pair();
  if (!job || !folder || !testing::write_private_file((*folder)->file("tls.crt"), pair.certificate_pem) ||
      !testing::write_private_file((*folder)->file("tls.key"), pair.key_pem)) {
    std::fprintf(stderr, "cannot read the job, or write a certificate\n");
    return 2;
  }
  const std::vector<int> ports = testing::free_ports(2);
  std::vector<Contestant> contestants;
  const auto add = [&](std::optional<Contestant> one) {
    if (one) {
      contestants.push_back(*std::move(one));
    }
    return one.has_value();
  };
  if (!add(start("ours",
                 {"/proc/self/exe", "--serve", (*folder)->path(), "--port", std::to_string(ports[0]),
                  "--workers", std::to_string(settings.workers)},
                 ports[0])) ||
      (!settings.peer.empty() &&
       !add(start("controller-runtime",
                  {settings.peer, (*folder)->path(), std::to_string(ports[1]), webhook::kMutatePath, kPatch},
                  ports[1])))) {
    return 1;
  }
  const testing::Report report("admission-peer", settings.json);
  const auto compare_with = [&](const Json& of, int requests, double target) {
    return compare(report, settings, contestants, testing::different_reviews(of, requests), target);
  };
  const std::string small = testing::different_reviews(testing::sample_job(), 1).front();
  bool all = true;
  for (const Contestant& contestant : contestants) {
    all = all && measure_idle(report, contestant, small, settings.idle);
  }
  all = all && compare_with(testing::sample_job(), settings.requests, kTargetSmall) &&
        compare_with(with_fewer_tables(*job), settings.requests / kMiddleShare, kTargetLarge) &&
        compare_with(*job, settings.requests / kLargeShare, kTargetLarge);
  return all ? 0 : 1;
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
  plimsoll::allow_open_files();
  return settings->serve.empty() ? plimsoll::run(*settings) : plimsoll::serve(*settings);
}
