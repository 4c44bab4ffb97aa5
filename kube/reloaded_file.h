// ReloadedFile: a small file that somebody else replaces now and then (a CA, a certificate), as text that is
// at most a minute old.
//
//   ReloadedFile ca(config.ca_file, config.ca_pem);
//   ... ca.current() ...
//   ca.expire();                                   // the server is not to be trusted by it: look now
//
// While the file cannot be read or is empty, the text is what it was: a volume may be in the middle of a
// swap. Whether the text is any good is for the caller to judge. Thread-safe.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"

namespace plimsoll::kube {

class ReloadedFile {
 public:
  // `text`: what was read when the process started.
  ReloadedFile(std::string path, std::string text, const Clock& clock = system_clock());

  std::string current();
  // The next current() reads the file, however short ago that was.
  void expire();

 private:
  const std::string path_;
  const Clock& clock_;
  Mutex mutex_;
  std::string text_ PLIMSOLL_GUARDED_BY(mutex_);
  std::optional<Clock::SteadyTime> read_at_ PLIMSOLL_GUARDED_BY(mutex_);
};

}  // namespace plimsoll::kube
