// JobStatus: the C++ mirror of a TrainingJob's status, which the controller writes and people read.
//
//   JobStatus status = decode_status(object);
//   status.attempts.push_back({.number = 1, .trainers = 64});
//   object["status"] = encode(status);
//
// The status is the controller's memory: it has all that the controller must know after a restart. Decoding
// skips what is malformed, because a damaged status must not stop its job.
// Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/json/json.h"
#include "crds/enums.h"

namespace plimsoll::crds {

// How an attempt ended, or that it has not.
enum class Outcome {
  kRunning,
  kSucceeded,
  kCudaOutOfMemory,
  kHostOutOfMemory,
  kPreempted,
  kInfrastructureFailure,
  kShardingFailure,
  kUserError,
  kSuspended,
  kUnknown
};
template <>
inline constexpr auto kNames<Outcome> = std::to_array({"Running", "Succeeded", "CUDAOutOfMemory",
                                                       "HostOutOfMemory", "Preempted",
                                                       "InfrastructureFailure", "ShardingFailure",
                                                       "UserError", "Suspended", "Unknown"});

// What an out-of-memory message says, where it does.
struct OutOfMemoryFigures {
  // What the failed step would have needed on the card: what the process held and what it requested. An upper
  // bound for that step alone; later ones may need more.
  std::optional<Bytes> needed{};
  std::optional<Bytes> capacity{};       // of the card
  std::optional<Bytes> fragmentation{};  // reserved by PyTorch but unallocated
  // By other processes on the card, where the message shows that it is more than a CUDA context.
  std::optional<Bytes> held_by_others{};

  // Whether the card would have had room, but for what others held: the job's size is not the cause.
  bool others_filled_card() const { return held_by_others && needed && capacity && *needed <= *capacity; }

  bool operator==(const OutOfMemoryFigures&) const = default;
};

struct Attempt {
  std::int64_t number = 0;  // counts from 0
  std::string gpu_model{};
  std::int64_t trainers = 0;
  std::int64_t per_node = 0;
  std::int64_t batch_size = 0;       // samples that a replica takes in an optimizer step; 0: unknown
  std::int64_t accumulation = 1;     // equal parts that it takes them in
  std::optional<Bytes> estimated{};  // upper bound of one trainer, as estimated when the attempt began
  Bytes learned{};  // of it, what earlier attempts and jobs have taught; less than 0 where they needed less
  std::optional<Bytes> observed_startup{};  // of everything on the card before the first forward pass
  bool ended_in_startup = false;            // as its trainers reported
  std::optional<Bytes> observed_peak{};     // of everything on the card, the highest that a trainer reported
  std::optional<Bytes> observed_allocated{};
  std::optional<Bytes> observed_reserved{};
  std::optional<Bytes> observed_context{};
  std::optional<Bytes> observed_communication{};
  // Bytes a second, where it trained through host memory: of copies between host and GPU, and of the host's updates.
  std::optional<Bytes> observed_host_bandwidth{};
  std::optional<Bytes> observed_host_update_bandwidth{};
  OutOfMemoryFigures out_of_memory{};
  // Nodes on which others filled the cards, as this attempt or one before it found: the pods of later ones are kept off them. At most
  // kMaxAvoidedNodes.
  std::vector<std::string> avoid_nodes{};
  std::optional<std::int64_t> exit_code{};       // of the trainer that failed first
  std::string container{};                       // that it was; empty: it was the pod as a whole
  bool expandable_segments = false;              // Plimsoll set PyTorch's allocator so
  bool swap_plan = false;                        // it trained through host memory, by a swap plan
  std::optional<Bytes> predicted_host_memory{};  // of a pod's trainers, where each loads the whole model
  std::optional<Bytes> host_memory{};            // that Plimsoll had its containers ask for
  std::optional<Bytes> shared_memory{};          // that Plimsoll gave its /dev/shm at least
  bool shared_memory_full = false;               // it ended because /dev/shm was full
  std::string start_time{};                      // RFC 3339; empty until its Job exists
  std::string completion_time{};
  Outcome outcome = Outcome::kRunning;
  std::string message{};  // the evidence, at most kMaxAttemptMessage bytes

  bool operator==(const Attempt&) const = default;
};

inline constexpr std::size_t kMaxAttempts = 16;  // that the status keeps, the latest
inline constexpr std::size_t kMaxAttemptMessage = 1024;
inline constexpr std::size_t kMaxAvoidedNodes = 8;

// A metav1.Condition.
struct Condition {
  std::string type{};
  std::string status = "True";  // "True", "False" or "Unknown"
  std::int64_t observed_generation = 0;
  std::string last_transition_time{};
  std::string reason{};
  std::string message{};

  bool operator==(const Condition&) const = default;
};

struct JobStatus {
  std::int64_t observed_generation = 0;
  std::vector<Condition> conditions{};
  std::string start_time{};
  std::string completion_time{};
  std::optional<std::int64_t> requested_trainers{};
  std::string requested_gpu_model{};
  std::optional<std::int64_t> requested_global_batch{};
  std::optional<std::int64_t> gpus_saved{};
  std::optional<std::int64_t> global_batch{};
  Json throughput{};              // as in the schema; null when unknown
  Json swap_plan{};               // as in the schema; null for a job in GPU memory
  std::string gpu_hours{};        // of all attempts, once the job has ended
  std::string gpu_hours_saved{};  // for the same work; empty when unknown
  Json estimate{};                // of the present attempt, as in the schema; null without one
  std::string plan_name{};        // of the ConfigMap
  std::int64_t restarts = 0;
  std::int64_t restarts_counted = 0;  // towards failurePolicy.maxRestarts
  std::string next_attempt_time{};    // the back-off before it; empty when nothing waits
  std::vector<Attempt> attempts{};

  bool operator==(const JobStatus&) const = default;

  bool is_true(const std::string& type) const;
  const Condition* find(const std::string& type) const;
  // Sets a condition; the time changes only when `status` does. Conditions are kept in the order of kOrder in
  // the source file, the most important first, because kubectl's column shows the first that is True.
  void set(Condition condition, const std::string& now);
};

JobStatus decode_status(const Json& object);  // of the whole TrainingJob
Json encode(const JobStatus& status);

}  // namespace plimsoll::crds
