#include "tests/bench/admission_load.h"

#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <latch>
#include <sstream>
#include <string_view>
#include <thread>

#include "base/yaml.h"
#include "tests/http/peer.h"
#include "tests/webhook/samples.h"

namespace plimsoll::testing {
namespace {

// The body's length that a header tells; nothing when it tells none.
std::optional<std::size_t> content_length(std::string_view header) {
  static constexpr std::string_view kName = "\r\ncontent-length:";
  const auto name = std::search(header.begin(), header.end(), kName.begin(), kName.end(),
                                [](char a, char b) { return std::tolower(a) == b; });
  if (name == header.end()) {
    return std::nullopt;
  }
  return static_cast<std::size_t>(std::atoll(std::string(name + kName.size(), header.end()).c_str()));
}

// True when the answer is a 200 with a patch.
bool ask(Peer& peer, std::string_view request) {
  if (!peer.write(request)) {
    return false;
  }
  std::array<char, 16 << 10> answer;  // no answer to the benchmarks' reviews is longer
  std::size_t size = 0;
  for (;;) {
    const int got = SSL_read(peer.tls(), answer.data() + size, static_cast<int>(answer.size() - size));
    if (got <= 0) {
      return false;
    }
    size += static_cast<std::size_t>(got);
    const std::string_view text(answer.data(), size);
    const std::size_t header = text.find("\r\n\r\n");
    if (header == text.npos) {
      continue;
    }
    const std::optional<std::size_t> length = content_length(text.substr(0, header + 2));
    if (!length) {
      return false;
    }
    if (size == header + 4 + *length) {
      return text.substr(0, 12) == "HTTP/1.1 200" && text.find("JSONPatch", header) != text.npos;
    }
  }
}

}  // namespace

Seconds cpu_time_of_thread() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return Seconds(static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec));
}

void Times::sort() {
  std::sort(times_.begin(), times_.end());
}

double Times::at(double share) const {
  const auto last = static_cast<double>(times_.size() - 1);
  return times_.empty() ? 0 : times_[static_cast<std::size_t>(share * last + 0.5)];
}

void report_times(const Report& report, const std::string& of, Times& times, const Aims& aims) {
  times.sort();
  report.add({of, "p50", 1e3 * times.at(0.50), "ms", aims.p50});
  report.add({of, "p90", 1e3 * times.at(0.90), "ms"});
  report.add({of, "p99", 1e3 * times.at(0.99), "ms", aims.p99});
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
               int clients) {
  std::vector<std::string> requests;
  for (const std::string& body : bodies) {
    requests.push_back(request_text("POST", target, "application/json", body));
  }
  Drive drive;
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;  // of `drive`
  std::latch ready(clients + 1);
  std::vector<std::thread> threads;
  for (int i = 0; i < clients; ++i) {
    threads.emplace_back([&] {
      Peer peer(port);
      const bool connected = peer.connected() && peer.start_tls();
      ready.arrive_and_wait();
      const Seconds begin = cpu_time_of_thread();
      Drive mine;
      for (std::size_t number = next++; connected && number < requests.size(); number = next++) {
        const auto sent = std::chrono::steady_clock::now();
        mine.patched += ask(peer, requests[number]) ? 1 : 0;
        mine.seconds.push_back(Seconds(std::chrono::steady_clock::now() - sent).count());
      }
      const std::lock_guard lock(mutex);
      drive.client_cpu += cpu_time_of_thread() - begin;
      drive.patched += mine.patched;
      drive.seconds.insert(drive.seconds.end(), mine.seconds.begin(), mine.seconds.end());
    });
  }
  ready.arrive_and_wait();
  const auto begin = std::chrono::steady_clock::now();
  for (std::thread& thread : threads) {
    thread.join();
  }
  drive.elapsed = std::chrono::steady_clock::now() - begin;
  return drive;
}

}  // namespace plimsoll::testing
