// read_signposts(): what the trainers of an attempt have reported of the memory of their cards, from their
// pods' termination messages (docs/signposts.md).
//
//   Signposts seen = read_signposts({pod_0, pod_1});
//   attempt.observed_peak = seen.peak;
//
// The messages are the user's: whatever is no signpost, or says what cannot be, is passed over. What a line
// says may still be a lie; learning bounds what it can do. Work is linear in the messages, of which so much
// is read as a kubelet keeps. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/json.h"

namespace plimsoll::controllers {

// The highest over all trainers and stages, each by itself.
struct Signposts {
  std::optional<Bytes> peak;  // everything on the card, or, where that was not seen, allocator and context
  std::optional<Bytes> allocated;
  std::optional<Bytes> reserved;
  std::optional<Bytes> context;
  std::optional<Bytes>
      communication;      // of one trainer: on its card beyond allocator and context, at the peak
  std::size_t lines = 0;  // that said something of memory
};

// `pods`: as the API has them. Containers that were started again say what they said last, too.
Signposts read_signposts(const std::vector<Json>& pods);

}  // namespace plimsoll::controllers
