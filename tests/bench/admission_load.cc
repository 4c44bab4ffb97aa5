#include "tests/bench/admission_load.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/yaml.h"
#include "tests/webhook/peer.h"
#include "tests/webhook/samples.h"

namespace plimsoll::testing {

void Times::sort() {
  std::sort(times_.begin(), times_.end());
}

double Times::at(double share) const {
  const auto last = static_cast<double>(times_.size() - 1);
  return times_.empty() ? 0 : times_[static_cast<std::size_t>(share * last + 0.5)];
}

void report_times(const Report& report, const std::string& of, Times& times, std::optional<double> aim) {
  times.sort();
  report.add({of, "p50", 1e3 * times.at(0.50), "ms"});
  report.add({of, "p90", 1e3 * times.at(0.90), "ms"});
  report.add({of, "p99", 1e3 * times.at(0.99), "ms", aim});
  report.add({of, "max", 1e3 * times.worst(), "ms"});
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

std::vector<std::string> different_reviews(const Json& job, int count) {
  std::vector<std::string> bodies;
  for (int number = 0; number < count; ++number) {
    Json one = job;
    one["metadata"]["name"] = text_member(job, {"metadata", "name"}) + "-" + std::to_string(number);
    one["metadata"]["namespace"] = "ads";
    one["spec"]["training"]["batchSizePerTrainer"] = 512 + number;
    Json& tables = one["spec"]["model"]["dlrm"]["tables"];
    if (tables.isArray() && !tables.empty()) {
      Json& table = tables[static_cast<::Json::ArrayIndex>(number) % tables.size()];
      table["rows"] = table["rows"].asInt64() + 1;
    }
    bodies.push_back(write_json(sample_review(one, "CREATE", "uid-" + std::to_string(number))));
  }
  return bodies;
}

Drive send_all(std::uint16_t port, const std::string& target, const std::vector<std::string>& bodies,
               int clients, Times& times) {
  std::atomic<std::size_t> next = 0;
  std::atomic<int> patched = 0;
  std::vector<std::thread> threads;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < clients; ++i) {
    threads.emplace_back([&] {
      Peer peer(port);
      if (!peer.connected() || !peer.start_tls()) {
        return;
      }
      for (std::size_t number = next++; number < bodies.size(); number = next++) {
        const auto sent = std::chrono::steady_clock::now();
        const std::optional<Response> answer =
            peer.exchange("POST", target, "application/json", bodies[number]);
        times.add(std::chrono::steady_clock::now() - sent);
        const bool good =
            answer && answer->status == 200 && answer->body.find("JSONPatch") != std::string::npos;
        patched += good ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return {.elapsed = std::chrono::steady_clock::now() - begin, .patched = patched};
}

}  // namespace plimsoll::testing
