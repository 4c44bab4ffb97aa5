// What the admission benchmarks share: reviews of one job that are never alike, and clients that send them.
//
//   std::vector<std::string> bodies = different_reviews(job, 400);
//   Drive drive = send_all(port, path, bodies, 4);
//   Times times(drive.seconds);
//   report_times(report, "client", times, {.p99 = 25});
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json/json.h"
#include "tests/bench/report.h"

namespace plimsoll::testing {

using Seconds = std::chrono::duration<double>;

// Durations, from many threads.
class Times {
 public:
  Times() = default;
  explicit Times(std::vector<double> seconds) : times_(std::move(seconds)) {}
  void add(Seconds time) {
    const std::lock_guard lock(mutex_);
    times_.push_back(time.count());
  }
  void sort();
  // Of sorted times: the one that this share of them does not exceed.
  double at(double share) const;
  double worst() const { return times_.empty() ? 0 : times_.back(); }

 private:
  std::mutex mutex_;
  std::vector<double> times_;
};

Seconds cpu_time_of_thread();

// Milliseconds that are aimed at.
struct Aims {
  std::optional<double> p50 = {};
  std::optional<double> p99 = {};
};
// Sorts them; p50, p90, p99 and the worst, in milliseconds.
void report_times(const Report& report, const std::string& of, Times& times, const Aims& aims);

// The TrainingJob in a file of YAML; nothing, and a line on standard error, when there is none.
std::optional<Json> read_job(const std::string& path);

// Reviews that differ by the job's name, batch size and the rows of one table.
std::vector<std::string> different_reviews(const Json& job, int count);

struct Drive {
  Seconds elapsed{};
  Seconds client_cpu{};         // of the clients' threads: what is not the server's
  int patched = 0;              // answers that hold a patch
  std::vector<double> seconds;  // of each request, in no order
};

// Sends every body once, each of `clients` connections (TLS, kept alive) one after the other. A client
// costs as little as it can, for it shares the processors with the server: requests are put together
// beforehand, and of an answer no more is read than its status, its length and whether it holds a patch.
Drive send_all(std::uint16_t port, const std::string& target, const std::vector<std::string>& bodies,
               int clients);

}  // namespace plimsoll::testing
