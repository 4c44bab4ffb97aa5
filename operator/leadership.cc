#include "operator/leadership.h"

#include <random>
#include <utility>

#include "base/file.h"
#include "operator/process.h"

namespace plimsoll::process {
namespace {

namespace po = boost::program_options;

constexpr const char* kPodNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

// Unique: the host's name and a random number.
std::string identity() {
  std::random_device random;
  char number[20];
  std::snprintf(number, sizeof number, "_%08x%08x", random(), random());
  return host_name() + number;
}

}  // namespace

po::options_description describe(LeadershipOptions& options) {
  po::options_description description("Leader election");
  description.add_options()  //
      ("leader-elect", po::value(&options.elect)->default_value(options.elect, "true")->value_name("BOOL"),
       "act only while holding a lease, so that several replicas may run")  //
      ("leader-elect-resource-name",
       po::value(&options.lease_name)->default_value(options.lease_name)->value_name("NAME"),
       "the lease's name")  //
      ("leader-elect-resource-namespace", po::value(&options.lease_namespace)->value_name("NAMESPACE"),
       "the lease's namespace; default: the pod's own, outside of a cluster `default`")  //
      ("leader-elect-lease-duration",
       po::value(&options.lease_duration)->default_value(options.lease_duration)->value_name("TIME"),
       "how long others wait for a leader that has gone silent")  //
      ("leader-elect-renew-deadline",
       po::value(&options.renew_deadline)->default_value(options.renew_deadline)->value_name("TIME"),
       "how long a leader tries to renew its lease before it gives up")  //
      ("leader-elect-retry-period",
       po::value(&options.retry_period)->default_value(options.retry_period)->value_name("TIME"),
       "the time between tries");
  return description;
}

Result<kube::LeaseOptions> lease_of(const LeadershipOptions& options) {
  kube::LeaseOptions lease;
  lease.name = options.lease_name;
  lease.namespace_name = options.lease_namespace;
  lease.identity = identity();
  if (lease.namespace_name.empty()) {
    const Result<std::string> own = read_file(kPodNamespace);
    lease.namespace_name = own ? *own : "default";
  }
  const auto lasts = duration_option("leader-elect-lease-duration", options.lease_duration);
  const auto renew = duration_option("leader-elect-renew-deadline", options.renew_deadline);
  const auto retry = duration_option("leader-elect-retry-period", options.retry_period);
  for (const auto* time : {&lasts, &renew, &retry}) {
    if (!*time) {
      return time->error();
    }
  }
  lease.durations.lease_duration = std::chrono::duration_cast<std::chrono::seconds>(*lasts);
  lease.durations.renew_deadline = *renew;
  lease.durations.retry_period = *retry;
  if (const Result<void> fits = kube::check(lease); !fits) {
    return fits.error().within("the options of the leader election");
  }
  return lease;
}

Leadership::Leadership(kube::Client& client, const std::string& name, std::optional<kube::LeaseOptions> lease,
                       prometheus::Registry& registry)
    : metrics_(registry, name) {
  if (!lease) {
    return;
  }
  kube::LeaderElector::Options options;
  options.on_master_status = [this](bool leading) { metrics_.master_status(leading); };
  options.on_slow_paths = [this](std::uint64_t more) { metrics_.slow_paths(more); };
  options.lease = *std::move(lease);
  elector_ = std::make_unique<kube::LeaderElector>(client, std::move(options));
}

Leadership::~Leadership() {
  stop();
}

void Leadership::start(std::function<void()> on_started, std::function<void()> on_lost) {
  if (elector_ == nullptr) {
    metrics_.master_status(true);  // an alert asks whether any operator leads
    on_started();
    return;
  }
  thread_ = std::jthread(
      [this, started = std::move(on_started), lost = std::move(on_lost)](const std::stop_token& stop) {
        if (elector_->run(stop, started) == kube::LeaderElector::End::kLost) {
          lost();
        }
      });
}

void Leadership::stop() {
  if (thread_.joinable()) {
    thread_.request_stop();
    thread_.join();
  }
}

}  // namespace plimsoll::process
