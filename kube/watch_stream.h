// WatchStream: splits the body of a watch, which arrives in pieces of any size, into lines; each line is one
// event.
//
//   WatchStream stream(on_event);
//   while (read(piece)) {
//     if (Result<void> handled = stream.append(piece); !handled) return handled;
//   }
//   return stream.finish();
//
// It stores at most one incomplete line. Append nothing after an error. One thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "kube/client.h"

namespace plimsoll::kube {

inline constexpr std::size_t kWatchLineLimit = 16U << 20;  // one event; an object is at most 3 MiB

class WatchStream {
 public:
  using OnEvent = std::function<void(const WatchEvent&)>;

  // `on_event` must outlive the stream.
  explicit WatchStream(const OnEvent& on_event) : on_event_(on_event) {}

  // Calls on_event for each complete line. Errors: the error of an ERROR event (kExpired on 410); kInternal
  // for a line that is not an event; kTooLarge for a line longer than kWatchLineLimit.
  Result<void> append(std::string_view piece);

  // The stream has ended; the last line may lack its line break. Errors: as append.
  Result<void> finish();

 private:
  Result<void> deliver(std::string_view line) const;

  const OnEvent& on_event_;
  std::string incomplete_;  // the beginning of a line
};

}  // namespace plimsoll::kube
