// The default durations of leader election (kube/leader_elector.h): client-go's and controller-runtime's. The
// command line's flags and docs/jobs.md show the same figures; a test compares them.
#pragma once

#include <chrono>

namespace plimsoll::kube {

struct LeaseDurations {
  std::chrono::seconds lease_duration{15};           // how long others wait for a leader that does not renew
  std::chrono::milliseconds renew_deadline{10'000};  // how long a leader tries to renew before it gives up
  std::chrono::milliseconds retry_period{2'000};     // between tries
};

}  // namespace plimsoll::kube
