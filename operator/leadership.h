// Leadership: runs a part of a server only while it leads.
//
//   Leadership leadership(client, options.lease_name, lease, registry);
//   leadership.start([&] { controllers.start(); }, [&] { end_the_process(); });
//   ...
//   leadership.stop();                        // after the controllers have stopped: releases the lease
//
// Without a lease it leads at once, and says so in its metrics, too. When the lease is lost, `on_lost` is called once, on the election's
// thread; the process must then end, as controller-runtime's managers do, since another process may already
// lead. Call `leads` from any thread, `start` and `stop` from one.
#pragma once

#include <prometheus/registry.h>

#include <boost/program_options/options_description.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/result.h"
#include "kube/client.h"
#include "kube/leader_elector.h"
#include "metrics/kubernetes_metrics.h"

namespace plimsoll::process {

inline std::string in_seconds(std::chrono::milliseconds time) {
  return std::to_string(time / std::chrono::seconds(1)) + "s";
}

struct LeadershipOptions {
  bool elect = true;
  std::string lease_name = "plimsoll-operator";
  std::string lease_namespace;  // empty: the pod's own, outside of a cluster "default"
  // In the syntax of flags: "15s".
  std::string lease_duration = in_seconds(kube::LeaseDurations().lease_duration);
  std::string renew_deadline = in_seconds(kube::LeaseDurations().renew_deadline);
  std::string retry_period = in_seconds(kube::LeaseDurations().retry_period);
};

// client-go's names.
boost::program_options::options_description describe(LeadershipOptions& options);

// The lease that the options ask for. Errors: kInvalid, naming the option.
Result<kube::LeaseOptions> lease_of(const LeadershipOptions& options);

class Leadership {
 public:
  // Without a lease there is no election. `name`: the lease's, of the metrics.
  Leadership(kube::Client& client, const std::string& name, std::optional<kube::LeaseOptions> lease,
             prometheus::Registry& registry);
  ~Leadership();
  Leadership(const Leadership&) = delete;
  Leadership& operator=(const Leadership&) = delete;

  void start(std::function<void()> on_started, std::function<void()> on_lost);
  void stop();

  bool leads() const { return elector_ == nullptr || elector_->leading(); }

 private:
  metrics::ElectionMetrics metrics_;
  std::unique_ptr<kube::LeaderElector> elector_;
  std::jthread thread_;
};

}  // namespace plimsoll::process
