// LeaseCandidate: what a process that wants to lead does next, by client-go's rules (tools/leaderelection),
// as a value without a thread or a connection. LeaderElector (kube/leader_elector.h) drives it; so do
// simulations.
//
//   LeaseCandidate candidate(options, seed);
//   LeaseCandidate::Action action = candidate.next(clock.steady_now(), clock.wall_now());
//   switch (action.kind) {
//     case LeaseCandidate::Action::Kind::kWait: wait_for(action.time); break;
//     case LeaseCandidate::Action::Kind::kGet: candidate.answer(clock.steady_now(), read_lease()); break;
//     ...
//   }
//
// A candidate goes by when it itself saw the lease change, never by the times written in it, so clocks need
// not agree, only run equally fast. In two points it is stricter than client-go, which promises no fencing:
// it gives up when its last good renewal is a whole lease old, counted from before that call was sent; and as
// soon as it sees another's name on the lease. So no two lead at once, as long as the process is not paused
// between a look at `leading` and an act; writes need preconditions all the same. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <random>
#include <string>

#include "base/clock.h"
#include "base/json/json.h"
#include "base/result.h"
#include "kube/lease_defaults.h"

namespace plimsoll::kube {

struct LeaseOptions {
  std::string namespace_name;
  std::string name;
  std::string identity;  // of this process, unlike all others'
  LeaseDurations durations{};
};

// Errors: kInvalid, naming what does not fit together.
Result<void> check(const LeaseOptions& options);

class LeaseCandidate {
 public:
  struct Action {
    enum class Kind {
      kWait,    // for `time`
      kGet,     // the lease; then answer(). Within `time`, as the next two
      kCreate,  // `lease`
      kUpdate,  // `lease`, on the condition of its resourceVersion
      kLost     // it led, and does not any more: whatever leaders do must stop
    };
    Kind kind = Kind::kWait;
    std::chrono::nanoseconds time{};
    Json lease;
  };

  // The options must pass check().
  LeaseCandidate(LeaseOptions options, std::uint64_t seed);

  Action next(Clock::SteadyTime now, Clock::WallTime wall);
  // What came of the call that next() asked for: the lease as the server has it.
  void answer(Clock::SteadyTime now, const Result<Json>& result);

  // The update that lets others lead at once; nothing for one who does not lead. It leads no more.
  std::optional<Json> release(Clock::WallTime wall);
  // Takes another state of the lease into account, for a release that met a conflict.
  void refresh(Clock::SteadyTime now, const Json& lease) { observe(now, lease); }

  bool leading() const { return leading_; }
  // When it must have stopped leading unless it renews.
  Clock::SteadyTime leads_until() const { return renewed_ + options_.durations.lease_duration; }
  // Who holds the lease, as last seen; may be empty.
  std::string holder() const;
  std::uint64_t slow_paths() const { return slow_paths_; }  // leader_election_slowpath_total

 private:
  enum class Step { kIdle, kRenew, kRead, kCreate, kTake };

  Action begin(Clock::SteadyTime now, Clock::WallTime wall);
  Action call(Action::Kind kind, Clock::SteadyTime now, Json lease = {}) const;
  Json record(Clock::WallTime wall, bool keeps) const;
  void observe(Clock::SteadyTime now, const Json& lease);
  bool is_valid(Clock::SteadyTime now) const;
  void succeed(Clock::SteadyTime now);
  void fail(Clock::SteadyTime now);
  Clock::SteadyTime deadline() const;

  LeaseOptions options_;
  std::mt19937_64 random_;
  Json lease_;                    // as last seen; null: none
  Clock::SteadyTime observed_{};  // when its record was last seen to change
  Step step_ = Step::kIdle;
  Clock::SteadyTime next_try_{};  // of kIdle
  Clock::SteadyTime try_began_{};
  Clock::SteadyTime cycle_began_{};  // a leader's first try since the last good one
  bool in_cycle_ = false;
  bool leading_ = false;
  bool lost_ = false;
  Clock::SteadyTime renewed_{};  // when the last good try began
  std::uint64_t slow_paths_ = 0;
};

}  // namespace plimsoll::kube
