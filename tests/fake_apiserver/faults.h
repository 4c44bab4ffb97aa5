// Faults that a test injects, by verb and resource: the next `count` requests that match get a wrong, late or
// incomplete answer. Thread-safe.
#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <regex>
#include <string>
#include <vector>

namespace plimsoll::testing {

struct Fault {
  enum class Kind {
    kStatus,      // answer with `status` and `reason`, without acting
    kDelay,       // wait `delay`, then serve the request
    kTruncate,    // serve the request, but close the connection in the middle of the answer
    kLoseAnswer,  // serve the request, then answer 504 instead
    kExpired,     // of a watch: an ERROR event 410 Gone after `after_events` events; of a list: status 410
    kDropWatch,   // close the connection of a watch after `after_events` events
  };

  Kind kind = Kind::kStatus;
  std::string verb = ".*";  // regular expressions: get list watch create update patch delete deletecollection
  std::string resource = ".*";  // "pods", "trainingjobs.plimsoll.dev"; a subresource follows a slash
  std::string name = ".*";
  int count = 1;  // how many requests; below 0: until faults are cleared
  int status = 500;
  std::string reason = "InternalError";
  int retry_after_seconds = 0;
  std::chrono::milliseconds delay{0};
  int after_events = 0;
};

namespace fake {

class FaultInjector {
 public:
  void add(Fault fault);
  void clear();
  // The fault for this request, if any; reduces its count.
  std::optional<Fault> take(const std::string& verb, const std::string& resource, const std::string& name);

 private:
  struct Armed {
    Fault fault;
    std::regex verb;
    std::regex resource;
    std::regex name;
  };
  std::mutex mutex_;
  std::vector<Armed> armed_;
};

}  // namespace fake
}  // namespace plimsoll::testing
