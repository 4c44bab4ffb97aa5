// Carries a watch out: waits for changes and writes them as lines, until the deadline, the client's end, or
// stop. Runs on a thread of its own; blocks there.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "tests/fake_apiserver/api.h"

namespace plimsoll::testing::fake {

struct WatchStreamOptions {
  // kube-apiserver sends about one a minute; tests want to see them sooner.
  std::chrono::milliseconds bookmark_interval{5'000};
};

enum class StreamEnd { kClean, kAborted };

// `write` returns false when the client has gone. `stopped` is asked after each wake of the store. kAborted:
// a fault wants the connection broken off instead of ended.
StreamEnd stream_watch(const WatchPlan& plan, const Store& store, const WatchStreamOptions& options,
                       const std::function<bool(const std::string&)>& write,
                       const std::function<bool()>& stopped);

}  // namespace plimsoll::testing::fake
