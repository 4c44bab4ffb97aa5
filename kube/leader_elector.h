// LeaderElector: one of several processes leads, by a Lease (coordination.k8s.io/v1), as client-go's elector.
//
//   LeaderElector elector(
//       client, {.lease = {.namespace_name = "plimsoll", .name = "operator", .identity = pod}});
//   const auto end = elector.run(stop, [&] { start_controllers(); });
//   stop_controllers();  // kLost: and end the process
//
// `run` blocks: it waits for its turn, calls `on_started` once, and renews until it is stopped or has lost
// the lease. Stop it when the leader's work is done: by then it gives the lease back, so that the next leads
// at once. Who loses the lease ends its process, for only that surely ends all it was doing. The rules, and
// where they are stricter than client-go's, are in kube/lease_candidate.h.
//
// `leading` may be asked from any thread, and is right even while the elector's own thread is stuck. The
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
    // Each new holder's identity, once it is seen; empty when the lease was given back.
    std::function<void(const std::string&)> on_new_leader = {};
    // client-go's metrics: leader_election_master_status and leader_election_slowpath_total.
    std::function<void(bool)> on_master_status = {};
    std::function<void(std::uint64_t)> on_slow_paths = {};
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
  void give_back();
  void tell();

  Client& client_;
  const Options options_;
  LeaseCandidate candidate_;
  std::string told_holder_;
  bool told_leading_ = false;
  std::uint64_t told_slow_paths_ = 0;
  std::atomic<Clock::SteadyTime> leads_until_{Clock::SteadyTime::min()};
};

}  // namespace plimsoll::kube
