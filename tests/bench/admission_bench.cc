// ./scripts/bench admission: how long the webhook takes to answer for Model-A (2,190 tables) on a cluster of
// four GPU models with 64 nodes of 8 GPUs each, asked by 4 clients at once over TLS, no two requests alike.
//
// "server" is measured around the handler: the whole review in, the whole answer out (decode, estimate,
// shard, search, patch, encode). "client" is what a client on the same machine sees, TLS and HTTP included.
// References are what the project aims at. Everything runs in this process: figures on a busy machine are the
// machine's.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/allocator.h"
#include "base/json/edit.h"
#include "base/json/json.h"
#include "base/log.h"
#include "crds/training_job.h"
#include "tests/bench/admission_load.h"
#include "tests/bench/report.h"
#include "tests/checkout.h"
#include "tests/webhook/samples.h"
#include "tests/webhook/test_server.h"
#include "webhook/admission_handler.h"
#include "webhook/decision_scheduler.h"

namespace plimsoll {
namespace {

using testing::cpu_time_of_thread;
using testing::Seconds;
using testing::Times;

constexpr const char* kUsage =
    "usage: admission_bench [--json] [--requests N] [--clients N] [--workers N] [--job FILE] [--beside FILE]\n"
    "\n"
    "  --json         one object a line: {bench, case, metric, value, unit, reference}\n"
    "  --requests N   in all (default 400)\n"
    "  --clients N    at the same time (default 4)\n"
    "  --workers N    of the server (default 2)\n"
    "  --job FILE     a TrainingJob (default: examples/model-a.yaml)\n"
    "  --beside FILE  another TrainingJob, which a tenant of another namespace submits again and again meanwhile;\n"
    "                 what the webhook does for fairness is in force, and client times alone are told\n";

struct Settings {
  bool json = false;
  int requests = 400;
  int clients = 4;
  int workers = 2;
  std::string job = PLIMSOLL_SOURCE_DIR "/examples/model-a.yaml";
  std::string beside{};
};

// Threads of the server that may wait for their turn, as the process has them.
constexpr int kHandlers = 64;

// Submits one job over and over, until it goes.
class Tenant {
 public:
  Tenant(std::uint16_t port, const Json& job)
      : thread_([this, port, job](const std::stop_token& stop) {
          JsonEdit edit(job);
          edit["metadata"]["namespace"] = "hostile";
          const std::vector<std::string> bodies = {
              write_json(testing::sample_review(*std::move(edit).take(), "CREATE", "hostile"))};
          while (!stop.stop_requested()) {
            answered_ += static_cast<int>(
                testing::send_all(port, std::string(webhook::kMutatePath) + "?timeout=5s", bodies, 1)
                    .seconds.size());
          }
        }) {}
  int stop() {
    thread_.request_stop();
    thread_.join();
    return answered_;
  }

 private:
  int answered_ = 0;
  std::jthread thread_;
};

std::optional<Settings> parse(int argc, char** argv) {
  Settings settings;
  const bool good =
      testing::read_arguments(argc, argv,
                              {.json = &settings.json,
                               .numbers = {{"--requests", &settings.requests},
                                           {"--clients", &settings.clients},
                                           {"--workers", &settings.workers}},
                               .texts = {{"--job", &settings.job}, {"--beside", &settings.beside}}});
  return good ? std::optional(settings) : std::nullopt;
}

// Where the time goes without a search: reading the review, and the job in it.
void report_decoding(const testing::Report& report, const std::vector<std::string>& bodies) {
  Times parse;
  Times decode;
  for (std::size_t i = 0; i < std::min<std::size_t>(bodies.size(), 50); ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const webhook::Decoded review = webhook::decode_review(bodies[i]);
    const auto middle = std::chrono::steady_clock::now();
    const Result<crds::TrainingJob> job = crds::decode_training_job(review.request.object);
    parse.add(middle - begin);
    decode.add(job ? std::chrono::steady_clock::now() - middle : Seconds(1e9));
  }
  parse.sort();
  decode.sort();
  report.add({"review", "p50", 1e3 * parse.at(0.5), "ms"});
  report.add({"job", "p50", 1e3 * decode.at(0.5), "ms"});
}

int run(const Settings& settings) {
  const std::optional<Json> job = testing::read_job(settings.job);
  if (!job) {
    return 2;
  }
  use_server_allocator();
  configure_log(LogLevel::kError, LogFormat::kText);
  const std::vector<std::string> bodies = testing::different_reviews(*job, settings.requests);
  estimator::ClusterViewStore cluster;
  cluster.set(testing::sample_view());
  const bool besides = !settings.beside.empty();
  const std::optional<Json> other = besides ? testing::read_job(settings.beside) : std::nullopt;
  if (besides && !other) {
    return 2;
  }
  webhook::DecisionScheduler scheduler(webhook::DecisionScheduler::for_cpus(settings.workers));
  const webhook::AdmissionHandler handler({.cluster = &cluster,
                                           .tables = nullptr,
                                           .metrics = nullptr,
                                           .scheduler = besides ? &scheduler : nullptr});
  Times server_times;
  Times cpu_times;
  http::ServerOptions options = testing::test_options();
  options.workers = besides ? kHandlers : settings.workers;
  http::Server server(
      options,
      [&](const http::Request& request) {
        const auto begin = std::chrono::steady_clock::now();
        const Seconds cpu_begin = cpu_time_of_thread();
        http::Response response = handler.handle(request);
        cpu_times.add(cpu_time_of_thread() - cpu_begin);
        server_times.add(std::chrono::steady_clock::now() - begin);
        return response;
      },
      std::make_shared<testing::HeldCertificate>());
  if (const Result<void> started = server.start(); !started) {
    std::fprintf(stderr, "%s\n", started.error().message.c_str());
    return 1;
  }

  std::optional<Tenant> tenant;
  if (other) {
    tenant.emplace(server.port(), *other);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // until its decision is a long one
  }
  const testing::Drive drive = testing::send_all(
      server.port(), std::string(webhook::kMutatePath) + "?timeout=10s", bodies, settings.clients);
  const int answered = tenant ? tenant->stop() : 0;
  server.stop(std::chrono::milliseconds(0));

  if (!settings.json) {
    std::printf("%d admissions of %zu bytes, %d clients, %d workers: %.1f a second, %d given a patch\n",
                settings.requests, bodies.front().size(), settings.clients, settings.workers,
                settings.requests / drive.elapsed.count(), drive.patched);
  }
  const testing::Report report("admission", settings.json);
  Times client_times(drive.seconds);
  if (besides) {
    if (!settings.json) {
      std::printf("meanwhile %d decisions on %s\n", answered, settings.beside.c_str());
    }
    testing::report_times(report, "client", client_times, {.p99 = 100});
  } else {
    testing::report_times(report, "server", server_times, {.p99 = 25});
    testing::report_times(report, "cpu", cpu_times, {.p50 = 6});
    testing::report_times(report, "client", client_times, {.p99 = 25});
    report_decoding(report, bodies);
  }
  if (drive.patched != settings.requests) {
    std::fprintf(stderr, "%d of %d admissions got no patch\n", settings.requests - drive.patched,
                 settings.requests);
    return 1;
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
  return plimsoll::run(*settings);
}
