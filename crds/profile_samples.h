// What a MemoryProfile keeps of the jobs that it was learned from: one sample a job, in status.samples.
//
//   std::vector<ProfileSample> samples = decode_samples(profile.raw);
//   object["status"]["samples"] = encode(samples);
//
// Decoding skips what is malformed, as that of a TrainingJob's status does (training_job_status.h), and
// for the same reason. Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/json/json.h"

namespace plimsoll::crds {

struct ProfileSample {
  std::string job_uid;
  std::string job{};  // its name
  std::int64_t last_attempt = 0;
  std::string time{};  // RFC 3339, when that attempt ended
  // Of the attempt that exceeded its estimate most:
  std::string gpu_model{};
  std::int64_t trainers = 0;
  Bytes capacity{};                  // of one GPU; 0: not known
  std::optional<Bytes> estimated{};  // without what was learned
  std::optional<Bytes> needed{};     // observed, or at least needed
  std::optional<Bytes> transient{};  // of the estimate, activations and temporaries
  // Of all attempts:
  bool out_of_memory = false;
  std::optional<Bytes> startup{};
  std::optional<Bytes> context{};
  std::optional<Bytes> communication{};
  // Of its last attempt on that GPU model that trained through host memory, a second:
  std::optional<Bytes> host_bandwidth{};
  std::optional<Bytes> host_update_bandwidth{};

  bool operator==(const ProfileSample&) const = default;
};

inline constexpr std::size_t kMaxSamples = 64;

std::vector<ProfileSample> decode_samples(const Json& memory_profile);  // the whole object
Json encode(const std::vector<ProfileSample>& samples);

}  // namespace plimsoll::crds
