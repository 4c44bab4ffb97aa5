// ReviewClient: an API server that knows three tokens: `reader` may get /metrics, `other` may not, and `mute` waits for a test.
//
//   ReviewClient client;
//   MetricsAccess access(client);
//   EXPECT_EQ(client.reviews(), 0);
//
// Thread-safe.
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "tests/kube/partial_client.h"
#include "tests/testing/latch.h"

namespace plimsoll::testing {

class ReviewClient : public PartialClient {
 public:
  Result<Json> create(const kube::Resource& resource, const std::string&, const Json& review,
                      const kube::CallOptions& options) override {
    ++reviews_;
    {
      const MutexLock lock(mutex_);
      if (failure_) {
        return *failure_;
      }
    }
    if (options.stop.stop_requested()) {
      return Error(ErrorCode::kCancelled, "stopping");
    }
    if (resource.plural == "tokenreviews") {
      const std::string token = text_member(review, {"spec", "token"});
      if (token.starts_with("mute")) {
        ++waiting_;
        answers.wait();
      }
      const bool known = token.starts_with("reader") || token == "other";
      return parse_json(known
                            ? R"({"status": {"authenticated": true, "user": {"username": ")" + token + "\"}}}"
                            : std::string(R"({"status": {"authenticated": false}})"));
    }
    const bool allowed = text_member(review, {"spec", "user"}).starts_with("reader") &&
                         text_member(review, {"spec", "nonResourceAttributes", "path"}) == "/metrics" &&
                         text_member(review, {"spec", "nonResourceAttributes", "verb"}) == "get";
    return parse_json(allowed ? R"({"status": {"allowed": true}})" : R"({"status": {"allowed": false}})");
  }

  int reviews() const { return reviews_; }
  int waiting() const { return waiting_; }  // so far, for `answers`
  // All reviews fail; nothing: they are answered again.
  void fail_with(std::optional<Error> failure) {
    const MutexLock lock(mutex_);
    failure_ = std::move(failure);
  }

  Latch answers{"the test lets tokens that begin with mute be reviewed"};

 private:
  std::atomic<int> reviews_ = 0;
  std::atomic<int> waiting_ = 0;
  Mutex mutex_;
  std::optional<Error> failure_ PLIMSOLL_GUARDED_BY(mutex_);
};

}  // namespace plimsoll::testing
