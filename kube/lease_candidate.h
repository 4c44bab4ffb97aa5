// LeaseCandidate: the next action of a process that wants to lead, by client-go's rules
// (tools/leaderelection). It has no thread and no connection: LeaderElector (kube/leader_elector.h) or a
// simulation executes the actions.
//
//   LeaseCandidate candidate(options, seed);
//   LeaseCandidate::Action action = candidate.next(clock.steady_now(), clock.wall_now());
//   switch (action.kind) {
//     case LeaseCandidate::Action::Kind::kWait: wait_for(action.time); break;
//     case LeaseCandidate::Action::Kind::kGet: candidate.answer(clock.steady_now(), read_lease()); break;
//     ...
//   }
//
// A candidate uses the time when it saw the lease change, never the times in the lease, so clocks need not
// agree; they must only run equally fast. It is stricter than client-go, which promises no fencing, in two
// points: it stops leading when its last successful renewal is a whole lease duration old, counted from
// before that call was sent, and as soon as it sees another holder of the lease. So no two processes lead at
// the same time, unless one is paused between reading `leading` and its next action; writes need
// preconditions all the same. One thread.
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
  std::string identity;  // of this process, unique
  LeaseDurations durations{};
};

// Errors: kInvalid, naming the options that do not fit together.
Result<void> check(const LeaseOptions& options);

class LeaseCandidate {
 public:
  struct Action {
    enum class Kind {
      kWait,    // for `time`
      kGet,     // the lease, within `time`; then call answer(). The same for the next two
      kCreate,  // `lease`
      kUpdate,  // `lease`, if its resourceVersion is unchanged
      kLost     // this process no longer leads: all work of a leader must stop
    };
    Kind kind = Kind::kWait;
    std::chrono::nanoseconds time{};
    Json lease;
  };

  // The options must pass check().
  LeaseCandidate(LeaseOptions options, std::uint64_t seed);

  Action next(Clock::SteadyTime now, Clock::WallTime wall);
  // The result of the call that next() returned: the lease as the server has it.
  void answer(Clock::SteadyTime now, const Result<Json>& result);

  // The update that lets others lead at once; nothing when this process does not hold the lease. It no longer
  // leads.
  std::optional<Json> release(Clock::WallTime wall);
  // A newer state of the lease, after a conflict of the release.
  void refresh(Clock::SteadyTime now, const Json& lease) { observe(now, lease); }

  bool leading() const { return leading_; }
  // When it must have stopped leading unless it renews.
  Clock::SteadyTime leads_until() const { return renewed_ + options_.durations.lease_duration; }
  // The holder of the lease, as last seen; may be empty.
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
  Clock::SteadyTime cycle_began_{};  // a leader's first try since the last success
  bool in_cycle_ = false;
  bool leading_ = false;
  bool lost_ = false;
  Clock::SteadyTime renewed_{};  // begin of the last successful try
  std::uint64_t slow_paths_ = 0;
};

}  // namespace plimsoll::kube
