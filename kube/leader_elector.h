// LeaderElector: elects a leader among several processes by a Lease (coordination.k8s.io/v1), as client-go
// does.
//
//   LeaderElector elector(
//       client, {.lease = {.namespace_name = "plimsoll", .name = "operator", .identity = pod}});
//   const auto end = elector.run(stop, [&] { start_controllers(); });
//   stop_controllers();  // after kLost also end the process
//
// `run` blocks: it waits until it leads, calls `on_started` once, and renews the lease until it is stopped or
// has lost it. Stop it after the leader's work has ended: it then releases the lease, so that the next
// candidate leads at once. A process that loses the lease must end: nothing else is sure to end all its work.
// The rules, and where they are stricter than client-go's, are in kube/lease_candidate.h.
//
// `leading` may be called from any thread, and is correct even while the elector's thread is blocked. The
// client must outlive the elector.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <random>
#include <stop_token>
#include <string>

#include "base/clock.h"
#include "kube/client.h"
#include "kube/lease_candidate.h"
#include "kube/sleeper.h"

namespace plimsoll::kube {

class LeaderElector {
 public:
  struct Options {
    LeaseOptions lease;
    bool release = true;  // when it is stopped
    // The identity of each new holder; empty when the lease was released.
    std::function<void(const std::string&)> on_new_leader = [](const std::string&) {};
    // client-go's metrics: leader_election_master_status and leader_election_slowpath_total.
    std::function<void(bool)> on_master_status = [](bool) {};
    std::function<void(std::uint64_t)> on_slow_paths = [](std::uint64_t) {};
    std::uint64_t seed = std::random_device{}();
    const Clock* clock = &system_clock();
    Sleeper* sleeper = &system_sleeper();
  };

  enum class End { kStopped, kLost };

  // The lease's options must pass check().
  LeaderElector(Client& client, Options options);

  // Once only.
  End run(const std::stop_token& stop, const std::function<void()>& on_started);

  bool leading() const;

 private:
  using Action = LeaseCandidate::Action;

  Result<Json> call(const Action& action, const std::stop_token& stop);
  void release();
  void report_changes();

  Client& client_;
  const Options options_;
  LeaseCandidate candidate_;
  std::string reported_holder_;
  bool reported_leading_ = false;
  std::uint64_t reported_slow_paths_ = 0;
  std::atomic<Clock::SteadyTime> leads_until_{Clock::SteadyTime::min()};
};

}  // namespace plimsoll::kube
