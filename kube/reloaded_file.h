// ReloadedFile: the text of a small file that others replace from time to time (a CA, a certificate); it is
// at most a minute old.
//
//   ReloadedFile ca(config.ca_file, config.ca_pem);
//   ... ca.current() ...
//   ca.expire();                                   // the server was not trusted: read the file again
//
// While the file cannot be read or is empty, the text stays as it was: a volume may be in the middle of a
// swap. The caller checks the text. Thread-safe.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"

namespace plimsoll::kube {

class ReloadedFile {
 public:
  // `text`: what was read when the process started. Without a path the text never changes.
  ReloadedFile(std::string path, std::string text, const Clock& clock = system_clock());

  std::string current();
  // The next current() reads the file, whenever it was read last.
  void expire();
  bool is_file() const { return !path_.empty(); }

 private:
  const std::string path_;
  const Clock& clock_;
  Mutex mutex_;
  std::string text_ PLIMSOLL_GUARDED_BY(mutex_);
  std::optional<Clock::SteadyTime> read_at_ PLIMSOLL_GUARDED_BY(mutex_);
};

}  // namespace plimsoll::kube
