// Runs a watch: waits for changes and writes them as lines, until the deadline, the client's disconnection or
// stop. Blocks its thread.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "tests/fake_apiserver/api.h"

namespace plimsoll::testing::fake {

struct WatchStreamOptions {
  // kube-apiserver sends about one a minute; tests need them sooner.
  std::chrono::milliseconds bookmark_interval{5'000};
};

enum class StreamEnd { kClean, kAborted };

// `write` returns false when the client has disconnected. `stopped` is called after each wake of the store.
// kAborted: an injected fault demands that the connection is closed in the middle of the stream.
StreamEnd stream_watch(const WatchPlan& plan, const Store& store, const WatchStreamOptions& options,
                       const std::function<bool(const std::string&)>& write,
                       const std::function<bool()>& stopped);

}  // namespace plimsoll::testing::fake
