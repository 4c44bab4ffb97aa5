#include "kube/lease_candidate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <queue>
#include <random>
#include <utility>
#include <vector>

#include "tests/kube/lease_server.h"
#include "tests/kube/virtual_clock.h"
#include "tests/testing/random_cases.h"

namespace plimsoll::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::LeaseServer;
using testing::VirtualClock;
using Kind = LeaseCandidate::Action::Kind;
using Time = Clock::SteadyTime;

LeaseOptions options_of(const std::string& identity) {
  return {.namespace_name = "plimsoll", .name = "operator", .identity = identity};
}

TEST(LeaseOptions, MustFitTogether) {
  EXPECT_TRUE(check(options_of("a")).ok());
  EXPECT_FALSE(check(options_of("")).ok());
  LeaseOptions options = options_of("a");
  options.durations.renew_deadline = seconds(15);
  EXPECT_THAT(check(options).error().message, HasSubstr("longer than the renew deadline"));
  options = options_of("a");
  options.durations.retry_period = milliseconds(8400);
  EXPECT_THAT(check(options).error().message, HasSubstr("1.2 times the retry period"));
  options.durations.retry_period = milliseconds(0);
  EXPECT_THAT(check(options).error().message, HasSubstr("above 0"));
}

// A candidate with a server that answers at once, or does not answer.
class CandidateTest : public ::testing::Test {
 protected:
  // Goes on with what needs no time; the wait that ends it, or nothing once the lease is lost.
  std::optional<std::chrono::nanoseconds> go_on(LeaseCandidate& candidate) {
    while (true) {
      const LeaseCandidate::Action action = candidate.next(clock_.steady_now(), clock_.wall_now());
      if (action.kind == Kind::kWait || action.kind == Kind::kLost) {
        return action.kind == Kind::kWait ? std::optional(action.time) : std::nullopt;
      }
      calls_.push_back(action.kind);
      const Result<Json> down = Error(ErrorCode::kUnavailable, "no answer");
      candidate.answer(clock_.steady_now(), is_down_                       ? down
                                            : action.kind == Kind::kGet    ? server_.get()
                                            : action.kind == Kind::kCreate ? server_.create(action.lease)
                                                                           : server_.update(action.lease));
    }
  }

  // For so long; false once the lease is lost.
  bool run(LeaseCandidate& candidate, std::chrono::nanoseconds time) {
    const Time end = clock_.steady_now() + time;
    while (clock_.steady_now() < end) {
      const auto wait = go_on(candidate);
      if (!wait) {
        return false;
      }
      clock_.pass(std::min<std::chrono::nanoseconds>(*wait, end - clock_.steady_now()));
    }
    return true;
  }

  VirtualClock clock_;
  LeaseServer server_;
  bool is_down_ = false;
  std::vector<Kind> calls_;
};

TEST_F(CandidateTest, TheFirstMakesTheLease) {
  LeaseCandidate candidate(options_of("a"), 1);
  EXPECT_EQ(go_on(candidate), seconds(2));
  EXPECT_TRUE(candidate.leading());
  EXPECT_THAT(calls_, ElementsAre(Kind::kGet, Kind::kCreate));
  const Json lease = *server_.get();
  EXPECT_EQ(lease["apiVersion"].asString(), "coordination.k8s.io/v1");
  EXPECT_EQ(lease["spec"]["holderIdentity"].asString(), "a");
  EXPECT_EQ(lease["spec"]["leaseDurationSeconds"].asInt(), 15);
  EXPECT_EQ(lease["spec"]["leaseTransitions"].asInt(), 0);
  EXPECT_EQ(lease["spec"]["acquireTime"].asString(), "1970-01-01T00:00:00.000000Z");
}

TEST_F(CandidateTest, RenewsWithoutLooking) {
  LeaseCandidate candidate(options_of("a"), 1);
  go_on(candidate);
  calls_.clear();
  clock_.pass(seconds(2));
  go_on(candidate);
  EXPECT_THAT(calls_, ElementsAre(Kind::kUpdate));
  const Json lease = *server_.get();
  EXPECT_EQ(lease["spec"]["renewTime"].asString(), "1970-01-01T00:00:02.000000Z");
  EXPECT_EQ(lease["spec"]["acquireTime"].asString(), "1970-01-01T00:00:00.000000Z");
  EXPECT_EQ(candidate.slow_paths(), 0U);
}

TEST_F(CandidateTest, LooksAgainWhenSomebodyChangedTheLease) {
  LeaseCandidate candidate(options_of("a"), 1);
  go_on(candidate);
  Json touched = *server_.get();
  touched["metadata"]["labels"]["x"] = "y";
  ASSERT_TRUE(server_.update(touched).ok());
  clock_.pass(seconds(2));
  go_on(candidate);
  EXPECT_TRUE(candidate.leading());
  EXPECT_EQ(candidate.slow_paths(), 1U);
  EXPECT_EQ((*server_.get())["metadata"]["labels"]["x"].asString(), "y") << "what others wrote stays";
}

TEST_F(CandidateTest, AnotherWaitsForAWholeLeaseOfSilenceThatItSawItself) {
  LeaseCandidate leader(options_of("a"), 1);
  LeaseCandidate other(options_of("b"), 2);
  go_on(leader);
  clock_.pass(std::chrono::hours(1));  // long run out, by the times written in it
  const Time seen = clock_.steady_now();
  run(other, seconds(15));
  EXPECT_FALSE(other.leading());
  run(other, seconds(5));
  EXPECT_TRUE(other.leading());
  EXPECT_GE(other.leads_until() - seconds(15), seen + seconds(15));
  EXPECT_EQ((*server_.get())["spec"]["leaseTransitions"].asInt(), 1);
}

// client-go's followers may look up to 2.2 retry periods after the lease has expired: 23.8 s after the death.
TEST_F(CandidateTest, AnotherTakesOverWithin20SecondsOfADeath) {
  for (std::uint64_t seed = 0; seed < 1'000; ++seed) {
    server_ = LeaseServer();
    LeaseCandidate leader(options_of("a"), seed);
    LeaseCandidate other(options_of("b"), seed + 1);
    go_on(leader);
    for (std::uint64_t renewals = 0; renewals < 1 + seed % 4; ++renewals) {
      run(other, seconds(2));
      go_on(leader);
    }
    const Time died = clock_.steady_now();
    run(other, seconds(15));
    ASSERT_FALSE(other.leading()) << "seed " << seed;
    run(other, died + seconds(20) - clock_.steady_now());
    ASSERT_TRUE(other.leading()) << "seed " << seed;
  }
}

TEST_F(CandidateTest, ALeaderWithoutAnswerGivesUpAfterTheRenewDeadline) {
  LeaseCandidate leader(options_of("a"), 1);
  run(leader, seconds(6));
  ASSERT_TRUE(leader.leading());
  is_down_ = true;
  const Time began = clock_.steady_now();
  EXPECT_FALSE(run(leader, seconds(60)));
  EXPECT_FALSE(leader.leading());
  EXPECT_EQ(clock_.steady_now() - began, seconds(10));
  is_down_ = false;
  EXPECT_EQ(go_on(leader), std::nullopt) << "lost is lost";
}

TEST_F(CandidateTest, ALeaderSurvivesAShortOutage) {
  LeaseCandidate leader(options_of("a"), 1);
  run(leader, seconds(6));
  is_down_ = true;
  EXPECT_TRUE(run(leader, seconds(7)));
  is_down_ = false;
  EXPECT_TRUE(run(leader, seconds(60)));
  EXPECT_TRUE(leader.leading());
}

TEST_F(CandidateTest, ALeaderThatSeesAnothersNameStopsAtOnce) {
  LeaseCandidate leader(options_of("a"), 1);
  go_on(leader);
  Json stolen = *server_.get();
  stolen["spec"]["holderIdentity"] = "thief";
  ASSERT_TRUE(server_.update(stolen).ok());
  EXPECT_FALSE(run(leader, seconds(3)));
}

TEST_F(CandidateTest, AReleasedLeaseIsTakenAtTheNextTry) {
  LeaseCandidate leader(options_of("a"), 1);
  LeaseCandidate other(options_of("b"), 2);
  go_on(leader);
  go_on(other);
  ASSERT_TRUE(server_.update(*leader.release(clock_.wall_now())).ok());
  EXPECT_FALSE(leader.leading());
  EXPECT_EQ(server_.holder(), "");
  run(other, milliseconds(4401));
  EXPECT_TRUE(other.leading());
  EXPECT_EQ(leader.release(clock_.wall_now())->get("spec", {})["holderIdentity"].asString(), "");
  EXPECT_FALSE(other.release(clock_.wall_now()) == std::nullopt);
}

TEST_F(CandidateTest, ADeletedLeaseIsMadeAgain) {
  LeaseCandidate leader(options_of("a"), 1);
  go_on(leader);
  server_.erase();
  clock_.pass(seconds(2));
  go_on(leader);
  EXPECT_TRUE(leader.leading());
  EXPECT_EQ(server_.holder(), "a");
}

TEST_F(CandidateTest, ALeaseOfNonsenseIsTaken) {
  Json lease;
  lease["metadata"]["name"] = "operator";
  lease["spec"]["holderIdentity"] = 5;
  lease["spec"]["leaseDurationSeconds"] = "long";
  ASSERT_TRUE(server_.create(lease).ok());
  LeaseCandidate candidate(options_of("a"), 1);
  go_on(candidate);
  EXPECT_TRUE(candidate.leading());
}

TEST_F(CandidateTest, AnAnswerThatComesAfterAWholeLeaseDoesNotCount) {
  LeaseCandidate candidate(options_of("a"), 1);
  candidate.answer(clock_.steady_now(), [&] {
    (void)candidate.next(clock_.steady_now(), clock_.wall_now());
    return server_.get();
  }());
  const LeaseCandidate::Action create = candidate.next(clock_.steady_now(), clock_.wall_now());
  ASSERT_EQ(create.kind, Kind::kCreate);
  const Result<Json> created = server_.create(create.lease);
  clock_.pass(seconds(15));
  candidate.answer(clock_.steady_now(), created);
  EXPECT_FALSE(candidate.leading());
}

// Three processes on one virtual clock, whose calls take time to reach the server and to come back, fail on
// the way there or on the way back, are cut off by their deadline, and who crash and start anew. What must
// hold at any moment: no two lead.
class Simulation {
 public:
  explicit Simulation(unsigned seed) : random_(seed) {
    for (int i = 0; i < kProcesses; ++i) {
      restart(i);
    }
  }

  // The longest time without a leader while all was well; failures are in `problem`.
  void run() {
    const Time end = Time{} + seconds(120);
    const Time calm = Time{} + seconds(70);  // from here on nothing fails
    while (now_ < end && problem.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.at;
      calm_ = now_ >= calm;
      Process& process = processes_[static_cast<std::size_t>(event.process)];
      if (event.kind == Event::kServer) {
        serve(event, process);
      } else if (event.life == process.life) {
        act(event, process);
      }
      look();
    }
    if (problem.empty() && leaders() != 1) {
      problem = "nobody leads in the end";
    }
  }

  std::string problem;
  int changes = 0;

 private:
  static constexpr int kProcesses = 3;
  struct Process {
    std::optional<LeaseCandidate> candidate;
    std::optional<Result<Json>> answer;
    int life = 0;
    int call = 0;
  };
  struct Event {
    enum What { kServer, kAct };
    Time at;
    int order;
    int process;
    int life;
    What kind;
    int call;  // that it belongs to; -1: none
    bool operator<(const Event& other) const {
      return std::pair(at, order) > std::pair(other.at, other.order);
    }
  };

  milliseconds between(int least, int most) {
    return milliseconds(std::uniform_int_distribution<int>(least, most)(random_));
  }
  bool chance(int percent) { return static_cast<int>(random_() % 100) < percent; }
  void at(Time time, int process, Event::What what, int call = -1) {
    const int life = processes_[static_cast<std::size_t>(process)].life;
    events_.push({time, order_++, process, life, what, call});
  }
  // Their wall clocks do not agree.
  Clock::WallTime::duration skew(int index) const {
    return std::chrono::duration_cast<Clock::WallTime::duration>(now_ - Time{}) +
           index * std::chrono::hours(7);
  }
  Process& of(int index) { return processes_[static_cast<std::size_t>(index)]; }

  void restart(int index) {
    ++of(index).life;
    ++of(index).call;
    of(index).candidate.emplace(
        options_of("p" + std::to_string(index) + "." + std::to_string(of(index).life)), random_());
    at(now_ + between(0, 5000), index, Event::kAct);
  }

  void act(const Event& event, Process& process) {
    if (event.call != -1) {
      if (event.call != process.call) {
        return;  // answered, or given up by then
      }
      ++process.call;
      process.candidate->answer(now_, process.answer.value_or(Error(ErrorCode::kTimeout, "no answer")));
      process.answer.reset();
    }
    if (!calm_ && chance(1)) {
      restart(event.process);  // crashed
      return;
    }
    const LeaseCandidate::Action action =
        process.candidate->next(now_, Clock::WallTime{} + skew(event.process));
    switch (action.kind) {
      case Kind::kLost: restart(event.process); return;
      case Kind::kWait: at(now_ + action.time, event.process, Event::kAct); return;
      default: break;
    }
    // The request arrives, or not; the answer comes, or the deadline.
    const bool slow = !calm_ && chance(10);
    if (calm_ || !chance(15)) {
      requests_[order_] = action;
      at(now_ + (slow ? between(0, 30'000) : between(0, 50)), event.process, Event::kServer, process.call);
    }
    at(now_ + action.time, event.process, Event::kAct, process.call);
  }

  // What its sender has given up on, or does not live to see, is done all the same.
  void serve(const Event& event, Process& process) {
    const auto request = requests_.find(event.order);
    const LeaseCandidate::Action& action = request->second;
    const Result<Json> answer = action.kind == Kind::kGet      ? server_.get()
                                : action.kind == Kind::kCreate ? server_.create(action.lease)
                                                               : server_.update(action.lease);
    requests_.erase(request);
    if (event.life == process.life && event.call == process.call && (calm_ || !chance(10))) {
      process.answer = answer;
      at(now_ + (calm_ || chance(90) ? between(0, 50) : between(0, 20'000)), event.process, Event::kAct,
         event.call);
    }
  }

  int leaders() {
    int count = 0;
    for (Process& process : processes_) {
      count += process.candidate->leading() && now_ < process.candidate->leads_until() ? 1 : 0;
    }
    return count;
  }

  void look() {
    if (leaders() > 1) {
      problem = "two lead at " + std::to_string((now_ - Time{}).count() / 1'000'000) + " ms";
    }
    changes += server_.holder() != last_holder_ ? 1 : 0;
    last_holder_ = server_.holder();
  }

  std::mt19937_64 random_;
  std::array<Process, kProcesses> processes_{};
  std::priority_queue<Event> events_;
  std::map<int, LeaseCandidate::Action> requests_;  // on their way, by their event's order
  int order_ = 0;
  Time now_{};
  bool calm_ = false;
  LeaseServer server_;
  std::string last_holder_;
};

TEST(LeaderElectionSimulation, NoTwoLeadOnTenThousandSeeds) {
  int changes = 0;
  constexpr int kSeeds = plimsoll::testing::random_cases(10'000);
  for (int seed = 0; seed < kSeeds; ++seed) {
    Simulation simulation(seed);
    simulation.run();
    ASSERT_EQ(simulation.problem, "") << "seed " << seed;
    changes += simulation.changes;
  }
  EXPECT_GT(changes, 2 * kSeeds) << "the lease should change hands often";
}

}  // namespace
}  // namespace plimsoll::kube
