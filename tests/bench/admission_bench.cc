// ./scripts/bench admission: how long the webhook takes to answer for Model-A (2,190 tables) on a cluster of
// four GPU models with 64 nodes of 8 GPUs each, asked by 4 clients at once over TLS, no two requests alike.
//
// "server" is measured around the handler: the whole review in, the whole answer out (decode, estimate,
// shard, search, patch, encode). "client" is what a client on the same machine sees, TLS and HTTP included.
// References are what the project aims at. Everything runs in this process: figures on a busy machine are the
// machine's.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/log.h"
#include "base/yaml.h"
#include "crds/training_job.h"
#include "tests/bench/report.h"
#include "tests/webhook/peer.h"
#include "tests/webhook/samples.h"
#include "tests/webhook/test_server.h"
#include "webhook/admission_handler.h"

namespace plimsoll {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr const char* kUsage =
    "usage: admission_bench [--json] [--requests N] [--clients N] [--workers N] [--job FILE]\n"
    "\n"
    "  --json         one object a line: {bench, case, metric, value, unit, reference}\n"
    "  --requests N   in all (default 400)\n"
    "  --clients N    at the same time (default 4)\n"
    "  --workers N    of the server (default 2)\n"
    "  --job FILE     a TrainingJob (default: examples/model-a.yaml)\n";

struct Settings {
  bool json = false;
  int requests = 400;
  int clients = 4;
  int workers = 2;
  std::string job = PLIMSOLL_SOURCE_DIR "/examples/model-a.yaml";
};

std::optional<Settings> parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--json") {
      settings.json = true;
      continue;
    }
    if (i + 1 == argc) {
      return std::nullopt;
    }
    const std::string value = argv[++i];
    if (option == "--job") {
      settings.job = value;
    } else if (option == "--requests") {
      settings.requests = std::atoi(value.c_str());
    } else if (option == "--clients") {
      settings.clients = std::atoi(value.c_str());
    } else if (option == "--workers") {
      settings.workers = std::atoi(value.c_str());
    } else {
      return std::nullopt;
    }
  }
  const bool sane = settings.requests > 0 && settings.clients > 0 && settings.workers > 0;
  return sane ? std::optional(settings) : std::nullopt;
}

std::optional<Json> read_job(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  const Result<std::vector<Json>> documents = parse_yaml_documents(text.str());
  if (!documents) {
    std::fprintf(stderr, "%s: %s\n", path.c_str(), documents.error().message.c_str());
    return std::nullopt;
  }
  for (const Json& document : *documents) {
    if (text_member(document, {"kind"}) == "TrainingJob") {
      return document;
    }
  }
  std::fprintf(stderr, "%s holds no TrainingJob\n", path.c_str());
  return std::nullopt;
}

// Differs from every other by name, batch size and the rows of one table.
std::string review_of(Json job, int number) {
  job["metadata"]["name"] = "model-a-" + std::to_string(number);
  job["metadata"]["namespace"] = "ads";
  job["spec"]["training"]["batchSizePerTrainer"] = 512 + number;
  Json& tables = job["spec"]["model"]["dlrm"]["tables"];
  if (tables.isArray() && !tables.empty()) {
    Json& table = tables[static_cast<Json::ArrayIndex>(number) % tables.size()];
    table["rows"] = table["rows"].asInt64() + 1;
  }
  return write_json(testing::sample_review(job, "CREATE", "uid-" + std::to_string(number)));
}

Seconds cpu_time_of_thread() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return Seconds(static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec));
}

// Durations of many threads.
class Times {
 public:
  void add(Seconds time) {
    const std::lock_guard lock(mutex_);
    times_.push_back(time.count());
  }
  void sort() { std::sort(times_.begin(), times_.end()); }
  double at(double share) const {
    const auto last = static_cast<double>(times_.size() - 1);
    return times_.empty() ? 0 : times_[static_cast<std::size_t>(share * last + 0.5)];
  }
  double worst() const { return times_.empty() ? 0 : times_.back(); }

 private:
  std::mutex mutex_;
  std::vector<double> times_;
};

void report_times(const testing::Report& report, const std::string& of, Times& times,
                  std::optional<double> aim) {
  times.sort();
  report.add({of, "p50", 1e3 * times.at(0.50), "ms"});
  report.add({of, "p90", 1e3 * times.at(0.90), "ms"});
  report.add({of, "p99", 1e3 * times.at(0.99), "ms", aim});
  report.add({of, "max", 1e3 * times.worst(), "ms"});
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
  const std::optional<Json> job = read_job(settings.job);
  if (!job) {
    return 2;
  }
  configure_log(LogLevel::kError, LogFormat::kText);
  std::vector<std::string> bodies;
  for (int i = 0; i < settings.requests; ++i) {
    bodies.push_back(review_of(*job, i));
  }
  estimator::ClusterViewStore cluster;
  cluster.set(testing::sample_view());
  const webhook::AdmissionHandler handler({.cluster = &cluster, .tables = nullptr, .metrics = nullptr});
  Times server_times;
  Times cpu_times;
  Times client_times;
  webhook::HttpServerOptions options = testing::test_options();
  options.workers = settings.workers;
  webhook::HttpServer server(
      options,
      [&](const webhook::HttpRequest& request) {
        const auto begin = std::chrono::steady_clock::now();
        const Seconds cpu_begin = cpu_time_of_thread();
        webhook::HttpResponse response = handler.handle(request);
        cpu_times.add(cpu_time_of_thread() - cpu_begin);
        server_times.add(std::chrono::steady_clock::now() - begin);
        return response;
      },
      std::make_shared<testing::HeldCertificate>());
  if (const Result<void> started = server.start(); !started) {
    std::fprintf(stderr, "%s\n", started.error().message.c_str());
    return 1;
  }

  std::atomic<int> next = 0;
  std::atomic<int> provisioned = 0;
  std::vector<std::thread> clients;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < settings.clients; ++i) {
    clients.emplace_back([&] {
      testing::Peer peer(server.port());
      peer.start_tls();
      for (int number = next++; number < settings.requests; number = next++) {
        const auto sent = std::chrono::steady_clock::now();
        const std::optional<testing::Response> answer =
            peer.exchange("POST", std::string(webhook::kMutatePath) + "?timeout=10s", "application/json",
                          bodies[static_cast<std::size_t>(number)]);
        client_times.add(std::chrono::steady_clock::now() - sent);
        provisioned +=
            answer && answer->status == 200 && answer->body.find("JSONPatch") != std::string::npos ? 1 : 0;
      }
    });
  }
  for (std::thread& client : clients) {
    client.join();
  }
  const Seconds elapsed = std::chrono::steady_clock::now() - begin;
  server.stop(std::chrono::milliseconds(0));

  if (!settings.json) {
    std::printf("%d admissions of %zu bytes, %d clients, %d workers: %.1f a second, %d given a patch\n",
                settings.requests, bodies.front().size(), settings.clients, settings.workers,
                settings.requests / elapsed.count(), provisioned.load());
  }
  const testing::Report report("admission", settings.json);
  report_times(report, "server", server_times, 25);
  report_times(report, "cpu", cpu_times, std::nullopt);
  report_times(report, "client", client_times, std::nullopt);
  report_decoding(report, bodies);
  if (provisioned != settings.requests) {
    std::fprintf(stderr, "%d of %d admissions got no patch\n", settings.requests - provisioned,
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
