// ./scripts/bench admission --peer controller-runtime: our webhook server beside a small Go one on
// sigs.k8s.io/controller-runtime (tests/bench/peers/webhook), each a process of its own with the same
// certificate. Both decode every review into a typed TrainingJob and answer one and the same patch, so that
// TLS, HTTP and JSON are compared and no estimate. The same clients ask both, by turns.
//
// Without --peer only ours is measured.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/log.h"
#include "crds/training_job.h"
#include "tests/bench/admission_load.h"
#include "tests/bench/report.h"
#include "tests/controlplane/free_ports.h"
#include "tests/controlplane/scratch_directory.h"
#include "tests/controlplane/subprocess.h"
#include "tests/webhook/peer.h"
#include "tests/webhook/samples.h"
#include "tests/webhook/test_server.h"
#include "webhook/admission_handler.h"
#include "webhook/admission_review.h"
#include "webhook/http_server.h"

namespace plimsoll {
namespace {

using testing::Seconds;
using testing::Times;

constexpr const char* kUsage =
    "usage: admission_peer_bench [--json] [--peer PROGRAM] [--requests N] [--rounds N] [--clients N] "
    "[--workers N] [--job FILE]\n"
    "\n"
    "  --json         one object a line: {bench, case, metric, value, unit, reference}\n"
    "  --peer PROGRAM the Go webhook; without it ours alone is measured\n"
    "  --requests N   to each server in a round, of small reviews; a tenth of it of large ones (default "
    "2000)\n"
    "  --rounds N     by turns (default 5)\n"
    "  --clients N    at the same time (default 4)\n"
    "  --workers N    of our server (default 2)\n"
    "  --job FILE     the job of the large reviews (default: examples/model-a.yaml)\n";

constexpr const char* kPatch =
    R"([{"op":"add","path":"/spec/trainers","value":{"replicas":64,"perNode":8,"gpuModel":"A100-80GB"}}])";
constexpr int kLargeShare = 10;  // a large review for so many small ones
// Ours must answer at least 1.5 times as many; the report's aims are upper limits.
constexpr double kMostOfOurThroughput = 1 / 1.5;

struct Settings {
  bool json = false;
  std::string peer;
  int requests = 2000;
  int rounds = 5;
  int clients = 4;
  int workers = 2;
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
                   {"--port", &settings.port}},
       .texts = {{"--peer", &settings.peer}, {"--job", &settings.job}, {"--serve", &settings.serve}}});
  return good && settings.requests >= kLargeShare ? std::optional(settings) : std::nullopt;
}

// What ours does with a review here: decode it and its job, and answer the patch.
webhook::HttpResponse answer_fixed(const webhook::HttpRequest& request, const Json& patch) {
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
  configure_log(LogLevel::kError, LogFormat::kText);
  auto certificates = std::make_shared<webhook::FileCertificateSource>(
      webhook::FileCertificateOptions{.directory = settings.serve});
  if (const Result<void> started = certificates->start(); !started) {
    std::fprintf(stderr, "%s\n", started.error().message.c_str());
    return 1;
  }
  webhook::HttpServerOptions options = testing::test_options();
  options.port = static_cast<std::uint16_t>(settings.port);
  options.workers = settings.workers;
  const Json patch = *parse_json(kPatch);
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  webhook::HttpServer server(
      options, [&](const webhook::HttpRequest& request) { return answer_fixed(request, patch); },
      certificates);
  if (const Result<void> started = server.start(); !started) {
    std::fprintf(stderr, "%s\n", started.error().message.c_str());
    return 1;
  }
  int signal = 0;
  sigwait(&ends, &signal);
  return 0;
}

// One of the two, running.
struct Contestant {
  std::string name;
  std::uint16_t port = 0;
  std::unique_ptr<testing::Subprocess> process;
};

std::optional<Contestant> start(std::string name, const std::vector<std::string>& arguments, int port) {
  Result<std::unique_ptr<testing::Subprocess>> process =
      testing::Subprocess::start({.arguments = arguments, .environment = {}, .log_file = {}});
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

struct Score {
  Times times;
  Seconds elapsed{};
  std::size_t answered = 0;
  double a_second() const { return static_cast<double>(answered) / elapsed.count(); }
};

// By turns, so that both see the same moods of the machine. False when an answer was no patch.
bool compare(const testing::Report& report, const std::string& of, const Settings& settings,
             std::vector<Contestant>& contestants, const std::vector<std::string>& bodies) {
  std::vector<Score> scores(contestants.size());
  for (int round = -1; round < settings.rounds; ++round) {  // the first is to warm up
    for (std::size_t i = 0; i < contestants.size(); ++i) {
      Times unused;
      const testing::Drive drive = testing::send_all(contestants[i].port, webhook::kMutatePath, bodies,
                                                     settings.clients, round < 0 ? unused : scores[i].times);
      if (drive.patched != static_cast<int>(bodies.size())) {
        std::fprintf(stderr, "%s gave %d patches for %zu reviews\n", contestants[i].name.c_str(),
                     drive.patched, bodies.size());
        return false;
      }
      if (round >= 0) {
        scores[i].elapsed += drive.elapsed;
        scores[i].answered += bodies.size();
      }
    }
  }
  for (std::size_t i = 0; i < contestants.size(); ++i) {
    const std::string name = of + ", " + contestants[i].name;
    scores[i].times.sort();
    report.add({name, "throughput", scores[i].a_second(), "a second"});
    report.add({name, "p50", 1e3 * scores[i].times.at(0.5), "ms"});
    report.add({name, "p99", 1e3 * scores[i].times.at(0.99), "ms"});
  }
  if (contestants.size() == 2) {
    report.add(
        {of, "throughput", scores[1].a_second() / scores[0].a_second(), "of ours", kMostOfOurThroughput});
    report.add({of, "p99", scores[0].times.at(0.99) / scores[1].times.at(0.99), "of theirs", 1});
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
  const std::vector<std::string> small = testing::different_reviews(testing::sample_job(), settings.requests);
  const std::vector<std::string> large = testing::different_reviews(*job, settings.requests / kLargeShare);
  const auto title = [](const std::vector<std::string>& bodies) {
    return std::to_string((bodies.front().size() + 512) / 1024) + " KiB";
  };
  const bool all = compare(report, title(small), settings, contestants, small) &&
                   compare(report, title(large), settings, contestants, large);
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
  return settings->serve.empty() ? plimsoll::run(*settings) : plimsoll::serve(*settings);
}
