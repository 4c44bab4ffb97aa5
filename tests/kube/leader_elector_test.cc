// The elector's own loop; its rules are tested in lease_candidate_test.cc.
#include "kube/leader_elector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "tests/kube/lease_server.h"
#include "tests/kube/partial_client.h"
#include "tests/kube/virtual_clock.h"

namespace plimsoll::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using testing::LeaseServer;
using testing::VirtualClock;

LeaseOptions options_of(const std::string& identity) {
  return {.namespace_name = "plimsoll", .name = "operator", .identity = identity};
}

// A client that is a LeaseServer, and time that passes as it sleeps.
class LeaseClient final : public testing::PartialClient, public Sleeper {
 public:
  explicit LeaseClient(VirtualClock& clock) : clock_(clock) {}

  bool sleep_for(milliseconds duration, const std::stop_token& stop) override {
    clock_.pass(duration);
    if (on_sleep) {
      on_sleep();
    }
    return !stop.stop_requested();
  }
  Result<Json> get(const Resource& resource, const std::string&, const std::string& name,
                   const CallOptions& options) override {
    EXPECT_EQ(path_of(resource, "plimsoll", name),
              "/apis/coordination.k8s.io/v1/namespaces/plimsoll/leases/operator");
    EXPECT_LE(options.timeout, seconds(5)) << "half the renew deadline";
    return is_down ? down() : server.get();
  }
  Result<Json> create(const Resource&, const std::string&, const Json& object, const CallOptions&) override {
    return is_down ? down() : server.create(object);
  }
  Result<Json> update(const Resource&, const std::string&, const Json& object, const std::string&,
                      const CallOptions& options) override {
    if (swallowed > 0) {  // by a connection that leads nowhere: nothing comes until the time is up
      --swallowed;
      clock_.pass(options.timeout);
      return Error(ErrorCode::kTimeout, "no answer in time");
    }
    if (std::exchange(conflicts, std::max(0, conflicts - 1)) > 0) {
      return Error(ErrorCode::kConflict, "on purpose");
    }
    return is_down ? down() : server.update(object);
  }
  LeaseServer server;
  bool is_down = false;
  int conflicts = 0;  // of the next updates
  int swallowed = 0;  // of the next updates
  std::function<void()> on_sleep;

 private:
  static Error down() { return {ErrorCode::kUnavailable, "no answer"}; }

  VirtualClock& clock_;
};

class ElectorTest : public ::testing::Test {
 protected:
  LeaderElector::Options options(const std::string& identity) {
    return {.lease = options_of(identity),
            .on_new_leader = [this](const std::string& holder) { holders_.push_back(holder); },
            .on_master_status = [this](bool leading) { statuses_.push_back(leading); },
            .on_slow_paths = [this](std::uint64_t more) { slow_paths_ += more; },
            .seed = 1,
            .clock = &clock_,
            .sleeper = &client_};
  }

  VirtualClock clock_;
  LeaseClient client_{clock_};
  std::stop_source stop_;
  std::vector<std::string> holders_;
  std::vector<bool> statuses_;
  std::uint64_t slow_paths_ = 0;
};

TEST_F(ElectorTest, LeadsUntilItIsStoppedAndGivesTheLeaseBack) {
  LeaderElector elector(client_, options("a"));
  int sleeps = 0;
  int started = 0;
  client_.on_sleep = [&] {
    EXPECT_TRUE(elector.leading());
    if (++sleeps == 10) {
      client_.conflicts = 1;
      stop_.request_stop();
    }
  };
  EXPECT_EQ(elector.run(stop_.get_token(), [&] { ++started; }), LeaderElector::End::kStopped);
  EXPECT_EQ(started, 1);
  EXPECT_FALSE(elector.leading());
  EXPECT_EQ(client_.server.holder(), "");
  EXPECT_THAT(holders_, ElementsAre("a"));
  EXPECT_THAT(statuses_, ElementsAre(true, false));
  EXPECT_EQ(slow_paths_, 0U);
}

TEST_F(ElectorTest, EndsWhenTheLeaseIsLost) {
  LeaderElector elector(client_, options("a"));
  client_.on_sleep = [&] { client_.is_down = true; };
  EXPECT_EQ(elector.run(stop_.get_token(), [] {}), LeaderElector::End::kLost);
  EXPECT_FALSE(elector.leading());
  EXPECT_THAT(statuses_, ElementsAre(true, false));
  EXPECT_GT(slow_paths_, 0U);
}

TEST_F(ElectorTest, ADeadConnectionDoesNotCostTheLease) {
  LeaderElector elector(client_, options("a"));
  int sleeps = 0;
  client_.on_sleep = [&] {
    client_.swallowed = ++sleeps == 3 ? 1 : 0;
    if (sleeps == 6) {
      stop_.request_stop();
    }
  };
  EXPECT_EQ(elector.run(stop_.get_token(), [] {}), LeaderElector::End::kStopped);
  EXPECT_EQ(slow_paths_, 1U);
}

TEST_F(ElectorTest, IsNoLeaderOnceItsTimeIsUpEvenWhileItHangs) {
  LeaderElector elector(client_, options("a"));
  client_.on_sleep = [&] {
    clock_.pass(seconds(12));
    EXPECT_TRUE(elector.leading());
    clock_.pass(seconds(1));
    EXPECT_FALSE(elector.leading()) << "the thread that renews is still in its sleep";
    client_.on_sleep = {};
    client_.is_down = true;
  };
  EXPECT_EQ(elector.run(stop_.get_token(), [] {}), LeaderElector::End::kLost);
}

TEST_F(ElectorTest, StoppedBeforeItLedItTouchesNothing) {
  Json lease;
  lease["metadata"]["name"] = "operator";
  lease["spec"]["holderIdentity"] = "other";
  lease["spec"]["leaseDurationSeconds"] = 15;
  ASSERT_TRUE(client_.server.create(lease).ok());
  LeaderElector elector(client_, options("a"));
  client_.on_sleep = [&] { stop_.request_stop(); };
  EXPECT_EQ(elector.run(stop_.get_token(), [] { FAIL() << "another leads"; }), LeaderElector::End::kStopped);
  EXPECT_EQ(client_.server.holder(), "other");
  EXPECT_THAT(holders_, ElementsAre("other"));
}

}  // namespace
}  // namespace plimsoll::kube
