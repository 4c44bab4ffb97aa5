#include "kube/leader_elector.h"

#include <chrono>
#include <utility>

#include "base/log.h"

namespace plimsoll::kube {
namespace {

const Resource kLeases{.group = "coordination.k8s.io", .version = "v1", .plural = "leases"};

// Of releasing the lease; a conflict is tried again.
constexpr std::chrono::seconds kReleaseTimeout{5};
constexpr int kReleaseTries = 3;

std::chrono::milliseconds rounded_up(std::chrono::nanoseconds time) {
  return std::chrono::ceil<std::chrono::milliseconds>(time);
}

}  // namespace

LeaderElector::LeaderElector(Client& client, Options options)
    : client_(client), options_(std::move(options)), candidate_(options_.lease, options_.seed) {}

bool LeaderElector::leading() const {
  return options_.clock->steady_now() < leads_until_.load();
}

Result<Json> LeaderElector::call(const Action& action, const std::stop_token& stop) {
  CallOptions options;
  options.timeout = rounded_up(action.time);
  options.stop = stop;
  const std::string& namespace_name = options_.lease.namespace_name;
  switch (action.kind) {
    case Action::Kind::kGet: return client_.get(kLeases, namespace_name, options_.lease.name, options);
    case Action::Kind::kCreate: return client_.create(kLeases, namespace_name, action.lease, options);
    case Action::Kind::kUpdate: return client_.update(kLeases, namespace_name, action.lease, {}, options);
    case Action::Kind::kWait:
    case Action::Kind::kLost: break;
  }
  return Error(ErrorCode::kInternal, "the action is not a call");
}

void LeaderElector::report_changes() {
  leads_until_ = candidate_.leading() ? candidate_.leads_until() : Clock::SteadyTime::min();
  if (const std::string holder = candidate_.holder(); holder != reported_holder_) {
    reported_holder_ = holder;
    log_info("The lease has a new holder", {{"lease", options_.lease.name}, {"holder", holder}});
    options_.on_new_leader(holder);
  }
  if (candidate_.leading() != reported_leading_) {
    reported_leading_ = candidate_.leading();
    options_.on_master_status(reported_leading_);
  }
  if (const std::uint64_t more = candidate_.slow_paths() - reported_slow_paths_; more > 0) {
    reported_slow_paths_ += more;
    options_.on_slow_paths(more);
  }
}

LeaderElector::End LeaderElector::run(const std::stop_token& stop, const std::function<void()>& on_started) {
  const Clock& clock = *options_.clock;
  bool started = false;
  while (!stop.stop_requested()) {
    const Action action = candidate_.next(clock.steady_now(), clock.wall_now());
    report_changes();
    if (action.kind == Action::Kind::kLost) {
      log_error("Lost the lease", {{"lease", options_.lease.name}, {"holder", candidate_.holder()}});
      return End::kLost;
    }
    if (action.kind == Action::Kind::kWait) {
      options_.sleeper->sleep_for(rounded_up(action.time), stop);
      continue;
    }
    const Result<Json> result = call(action, stop);
    if (!result && result.error().code != ErrorCode::kNotFound && !stop.stop_requested()) {
      log_debug("Failed to read or write the lease",
                {{"lease", options_.lease.name}, {"reason", to_string(result.error())}});
    }
    candidate_.answer(clock.steady_now(), result);
    report_changes();
    if (candidate_.leading() && !started) {
      started = true;
      on_started();
    }
  }
  if (options_.release) {
    release();
  }
  return End::kStopped;
}

void LeaderElector::release() {
  for (int i = 0; i < kReleaseTries; ++i) {
    const std::optional<Json> lease = candidate_.release(options_.clock->wall_now());
    report_changes();
    if (!lease) {
      return;
    }
    const Result<Json> released =
        call({.kind = Action::Kind::kUpdate, .time = kReleaseTimeout, .lease = *lease}, {});
    if (released) {
      log_info("Released the lease", {{"lease", options_.lease.name}});
      return;
    }
    const Result<Json> now = call({.kind = Action::Kind::kGet, .time = kReleaseTimeout, .lease = {}}, {});
    if (released.error().code != ErrorCode::kConflict || !now) {
      log_warning("Failed to release the lease: the next leader must wait until it expires",
                  {{"lease", options_.lease.name}, {"reason", to_string(released.error())}});
      return;
    }
    candidate_.refresh(options_.clock->steady_now(), *now);
  }
}

}  // namespace plimsoll::kube
