#include "kube/lease_candidate.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <utility>

#include "base/backoff.h"
#include "base/json/edit.h"
#include "base/json/view.h"

namespace plimsoll::kube {
namespace {

// Spreads the tries of followers, so that they do not come at the same time: client-go's JitterFactor.
constexpr double kJitter = 1.2;
// The share of a retry period within which followers try once the lease has expired.
constexpr double kExpiryJitter = 0.2;

// Integers of coordination/v1 have 32 bits; 0 for any other value.
std::int64_t integer_of(const Json& lease, const char* field) {
  const std::int64_t value = JsonView(member(lease, {"spec", field})).integer().value_or(0);
  return std::numeric_limits<std::int32_t>::min() <= value &&
                 value <= std::numeric_limits<std::int32_t>::max()
             ? value
             : 0;
}

std::chrono::seconds duration_of(const Json& lease) {
  return std::chrono::seconds(integer_of(lease, "leaseDurationSeconds"));
}

std::int64_t transitions_of(const Json& lease) {
  return integer_of(lease, "leaseTransitions");
}

}  // namespace

Result<void> check(const LeaseOptions& options) {
  if (options.name.empty() || options.namespace_name.empty() || options.identity.empty()) {
    return invalid("leader election needs the lease's namespace and name, and a unique identity");
  }
  if (options.durations.retry_period.count() < 1) {
    return invalid("leader election: the retry period must be above 0");
  }
  if (options.durations.lease_duration <= options.durations.renew_deadline) {
    return invalid("leader election: the lease must last longer than the renew deadline");
  }
  if (static_cast<double>(options.durations.renew_deadline.count()) <=
      kJitter * static_cast<double>(options.durations.retry_period.count())) {
    return invalid("leader election: the renew deadline must be more than 1.2 times the retry period");
  }
  return {};
}

LeaseCandidate::LeaseCandidate(LeaseOptions options, std::uint64_t seed)
    : options_(std::move(options)), random_(seed) {
  assert(check(options_).ok());
}

std::string LeaseCandidate::holder() const {
  return text_member(lease_, {"spec", "holderIdentity"});
}

// When a leader gives up unless it renews: client-go's deadline for the tries of one renewal, but never so
// late that others may take the lease.
Clock::SteadyTime LeaseCandidate::deadline() const {
  return in_cycle_ ? std::min(cycle_began_ + Clock::SteadyTime::duration(options_.durations.renew_deadline),
                              leads_until())
                   : leads_until();
}

bool LeaseCandidate::is_valid(Clock::SteadyTime now) const {
  return observed_ + duration_of(lease_) > now;
}

void LeaseCandidate::observe(Clock::SteadyTime now, const Json& lease) {
  if (lease_.isNull() || member(lease_, {"spec"}) != member(lease, {"spec"})) {
    observed_ = now;
  }
  lease_ = lease;
}

LeaseCandidate::Action LeaseCandidate::next(Clock::SteadyTime now, Clock::WallTime wall) {
  if (leading_ && now >= deadline()) {
    leading_ = false;
    lost_ = true;
  }
  if (lost_) {
    return {.kind = Action::Kind::kLost, .time = {}, .lease = {}};
  }
  switch (step_) {
    case Step::kIdle:
      if (now < next_try_) {
        const Clock::SteadyTime until = leading_ ? std::min(next_try_, deadline()) : next_try_;
        return {.kind = Action::Kind::kWait, .time = until - now, .lease = {}};
      }
      return begin(now, wall);
    case Step::kRenew: return call(Action::Kind::kUpdate, now, record(wall, true));
    case Step::kRead: return call(Action::Kind::kGet, now);
    case Step::kCreate: return call(Action::Kind::kCreate, now, record(wall, false));
    case Step::kTake: return call(Action::Kind::kUpdate, now, record(wall, holder() == options_.identity));
  }
  return {};
}

// A leader assumes that the lease is unchanged, and writes without reading.
LeaseCandidate::Action LeaseCandidate::begin(Clock::SteadyTime now, Clock::WallTime wall) {
  try_began_ = now;
  if (leading_ && !in_cycle_) {
    in_cycle_ = true;
    cycle_began_ = now;
  }
  step_ = holder() == options_.identity && is_valid(now) ? Step::kRenew : Step::kRead;
  return next(now, wall);
}

LeaseCandidate::Action LeaseCandidate::call(Action::Kind kind, Clock::SteadyTime now, Json lease) const {
  const Clock::SteadyTime end =
      leading_ ? deadline() : try_began_ + Clock::SteadyTime::duration(options_.durations.renew_deadline);
  // At most half of it, as in controller-runtime: after a call on a dead connection there is time for
  // another.
  const std::chrono::nanoseconds half = options_.durations.renew_deadline / 2;
  return {.kind = kind,
          .time = std::clamp<std::chrono::nanoseconds>(end - now, std::chrono::milliseconds(1), half),
          .lease = std::move(lease)};
}

Json LeaseCandidate::record(Clock::WallTime wall, bool keeps) const {
  JsonEdit lease(lease_);
  if (lease_.isNull()) {
    lease["apiVersion"] = "coordination.k8s.io/v1";
    lease["kind"] = "Lease";
    lease["metadata"]["name"] = options_.name;
    lease["metadata"]["namespace"] = options_.namespace_name;
  }
  const std::string time = format_micro_time(wall);
  const JsonPlace spec = lease["spec"];
  spec["holderIdentity"] = options_.identity;
  spec["leaseDurationSeconds"] = static_cast<int>(options_.durations.lease_duration.count());
  spec["renewTime"] = time;
  if (!keeps) {
    spec["acquireTime"] = time;
    spec["leaseTransitions"] = static_cast<::Json::Int64>(lease_.isNull() ? 0 : transitions_of(lease_) + 1);
  }
  // The API server's schema allows no lease of another shape.
  Result<Json> made = std::move(lease).take();
  return made ? *std::move(made) : lease_;
}

void LeaseCandidate::answer(Clock::SteadyTime now, const Result<Json>& result) {
  switch (step_) {
    case Step::kIdle: return;
    case Step::kRenew:
      if (result) {
        observe(now, *result);
        succeed(now);
      } else {
        step_ = Step::kRead;  // the lease has changed, or the server did not answer: read it
        ++slow_paths_;
      }
      return;
    case Step::kRead:
      if (!result) {
        if (result.error().code == ErrorCode::kNotFound) {
          lease_ = Json();
          step_ = Step::kCreate;
        } else {
          fail(now);
        }
        return;
      }
      observe(now, *result);
      if (holder() != options_.identity && !holder().empty()) {
        if (leading_) {
          leading_ = false;
          lost_ = true;
          return;
        }
        if (is_valid(now)) {
          fail(now);
          return;
        }
      }
      step_ = Step::kTake;
      return;
    case Step::kCreate:
    case Step::kTake:
      if (result) {
        observe(now, *result);
        succeed(now);
      } else {
        fail(now);
      }
      return;
  }
}

void LeaseCandidate::succeed(Clock::SteadyTime now) {
  step_ = Step::kIdle;
  in_cycle_ = false;
  next_try_ = now + Clock::SteadyTime::duration(options_.durations.retry_period);
  // A success that arrives too late does not count: others may hold the lease by now.
  if (now < try_began_ + options_.durations.lease_duration) {
    renewed_ = try_began_;
    leading_ = true;
  }
}

void LeaseCandidate::fail(Clock::SteadyTime now) {
  step_ = Step::kIdle;
  const double share = leading_ ? 0 : std::uniform_real_distribution<double>()(random_);
  const Clock::SteadyTime::duration period = options_.durations.retry_period;
  next_try_ = now + with_jitter(period, kJitter, share);
  if (!leading_ && is_valid(now)) {
    // client-go would try up to 2.2 periods after the lease has expired. Followers still do not come together.
    const auto after_expiry =
        std::chrono::duration_cast<Clock::SteadyTime::duration>(period * (kExpiryJitter * share));
    next_try_ = std::min(next_try_, observed_ + duration_of(lease_) + after_expiry);
  }
}

std::optional<Json> LeaseCandidate::release(Clock::WallTime wall) {
  leading_ = false;
  step_ = Step::kIdle;
  if (holder() != options_.identity) {
    return std::nullopt;
  }
  JsonEdit lease(lease_);
  const std::string time = format_micro_time(wall);
  lease["spec"]["holderIdentity"] = "";
  lease["spec"]["leaseDurationSeconds"] = 1;
  lease["spec"]["renewTime"] = time;
  lease["spec"]["acquireTime"] = time;
  Result<Json> released = std::move(lease).take();
  return released ? std::optional(*std::move(released)) : std::nullopt;
}

}  // namespace plimsoll::kube
