// WatchStream: the body of a watch as it arrives, in pieces of any size, cut into lines of which each is one
// event.
//
//   WatchStream stream(on_event);
//   while (read(piece)) {
//     if (Result<void> handled = stream.append(piece); !handled) return handled;
//   }
//   return stream.finish();
//
// It keeps at most one line that is not complete. After an error nothing more may be appended. One thread.
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

  // Calls on_event for each line that is complete now. Errors: what an ERROR event says (kExpired on 410);
  // kInternal for what is no event; kTooLarge for a line beyond kWatchLineLimit.
  Result<void> append(std::string_view piece);

  // The stream has ended; an answer that is not chunked may lack its last line's end. Errors: as append.
  Result<void> finish();

 private:
  Result<void> deliver(std::string_view line) const;

  const OnEvent& on_event_;
  std::string incomplete_;  // the beginning of a line
};

}  // namespace plimsoll::kube
