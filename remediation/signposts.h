// read_signposts(): the GPU memory that the trainers of an attempt have reported in their pods' termination
// messages (docs/signposts.md).
//
//   Signposts seen = read_signposts({pod_0, pod_1});
//   attempt.observed_peak = seen.peak;
//
// Users write the messages: a line that is not a signpost, or has an impossible figure, is ignored. A false
// figure may remain; learning bounds its effect. The work is linear in the messages, of which as much is read
// as a kubelet keeps. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/json/json.h"

namespace plimsoll::remediation {

// The highest figures over all trainers and stages, each independent of the others.
struct Signposts {
  std::optional<Bytes> peak;  // everything on the card, or, where that was not seen, allocator and context
  std::optional<Bytes> allocated;
  std::optional<Bytes> reserved;
  std::optional<Bytes> context;
  std::optional<Bytes> startup;  // as `peak`, of the time before the first forward pass
  std::optional<Bytes>
      communication;  // of one trainer: on its card beyond allocator and context, at the peak
  // Bytes a second, of a trainer that trains through host memory: the most that a copy between host and GPU reached, the slower of both
  // ways, and what the host's updates of layers read and wrote.
  std::optional<Bytes> host_bandwidth;
  std::optional<Bytes> host_update_bandwidth;
  std::size_t lines = 0;  // that had a figure of memory
  // Lines that say whether the first forward pass had begun.
  std::size_t in_training = 0;
  std::size_t in_startup = 0;
};

// `pods`: as the API has them. The last end of a restarted container counts, too.
Signposts read_signposts(const std::vector<Json>& pods);

}  // namespace plimsoll::remediation
