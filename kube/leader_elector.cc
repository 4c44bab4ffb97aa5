#include "kube/leader_elector.h"

#include <chrono>
#include <utility>

#include "base/log.h"

namespace plimsoll::kube {
namespace {

const Resource kLeases{.group = "coordination.k8s.io", .version = "v1", .plural = "leases"};

// For giving the lease back, and how often a conflict is no reason to leave it.
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
  return Error(ErrorCode::kInternal, "no call");
}

// Says what changed.
void LeaderElector::tell() {
  leads_until_ = candidate_.leading() ? candidate_.leads_until() : Clock::SteadyTime::min();
  if (const std::string holder = candidate_.holder(); holder != told_holder_) {
    told_holder_ = holder;
    log_info("The lease has another holder", {{"lease", options_.lease.name}, {"holder", holder}});
    if (options_.on_new_leader) {
      options_.on_new_leader(holder);
    }
  }
  if (options_.on_master_status && candidate_.leading() != told_leading_) {
    options_.on_master_status(candidate_.leading());
  }
  told_leading_ = candidate_.leading();
  if (options_.on_slow_paths && candidate_.slow_paths() != told_slow_paths_) {
    options_.on_slow_paths(candidate_.slow_paths() - told_slow_paths_);
  }
  told_slow_paths_ = candidate_.slow_paths();
}

LeaderElector::End LeaderElector::run(const std::stop_token& stop, const std::function<void()>& on_started) {
  const Clock& clock = *options_.clock;
  bool started = false;
  while (!stop.stop_requested()) {
    const Action action = candidate_.next(clock.steady_now(), clock.wall_now());
    tell();
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
      log_debug("The lease could not be read or written",
                {{"lease", options_.lease.name}, {"reason", to_string(result.error())}});
    }
    candidate_.answer(clock.steady_now(), result);
    tell();
    if (candidate_.leading() && !started) {
      started = true;
      on_started();
    }
  }
  if (options_.release) {
    give_back();
  }
  return End::kStopped;
}

void LeaderElector::give_back() {
  for (int i = 0; i < kReleaseTries; ++i) {
    const std::optional<Json> lease = candidate_.release(options_.clock->wall_now());
    tell();
    if (!lease) {
      return;
    }
    const Result<Json> released =
        call({.kind = Action::Kind::kUpdate, .time = kReleaseTimeout, .lease = *lease}, {});
    if (released) {
      log_info("Gave the lease back", {{"lease", options_.lease.name}});
      return;
    }
    const Result<Json> now = call({.kind = Action::Kind::kGet, .time = kReleaseTimeout, .lease = {}}, {});
    if (released.error().code != ErrorCode::kConflict || !now) {
      log_warning("Could not give the lease back: the next leader waits until it has run out",
                  {{"lease", options_.lease.name}, {"reason", to_string(released.error())}});
      return;
    }
    candidate_.refresh(options_.clock->steady_now(), *now);
  }
}

}  // namespace plimsoll::kube
