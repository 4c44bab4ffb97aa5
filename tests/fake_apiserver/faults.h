// Faults that a test asks the server to commit, per verb and resource: the next so-and-so-many requests that
// match are answered wrongly, late, or not to the end. Thread-safe.
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
    kStatus,      // answer with `status` and `reason`, do nothing
    kDelay,       // wait `delay`, then do what was asked
    kTruncate,    // do what was asked, then break the connection off within the answer
    kLoseAnswer,  // do what was asked, then answer 504: the client cannot know that it was done
    kExpired,     // of a watch: an ERROR event 410 Gone after `after_events` events; of a list: status 410
    kDropWatch,   // break the connection of a watch off after `after_events` events
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

class FaultBoard {
 public:
  void add(Fault fault);
  void clear();
  // The fault for this request, if one is due; counts it.
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
