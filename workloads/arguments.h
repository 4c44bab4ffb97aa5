// Finds where a container's command, arguments and environment repeat the size of its job, and writes another size there:
// `torchrun --nproc-per-node 8 --nnodes=16`, `accelerate launch --num_processes 128`, `WORLD_SIZE=128`.
//
//   SizeMentions mentions = find_mentions(container, {.pods = 16, .gpus_per_pod = 8});
//   if (!mentions.uncertain.empty()) return keep_the_size(mentions.uncertain);
//   for (const auto& [pointer, text] : rewritten(container, mentions, {.pods = 8, .gpus_per_pod = 8})) replace(pointer, text);
//
// A flag that is known, with the value that the job has now, is certain. A flag that is known with another value is not, and then the
// size should stay. Values that the launcher finds by itself ("auto", "$WORLD_SIZE") need no change. What a script's own flags
// mean is not known. Linear in the text. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/json/view.h"

namespace plimsoll::workloads {

struct JobSize {
  std::int64_t pods = 0;
  std::int64_t gpus_per_pod = 0;

  std::int64_t gpus() const { return pods * gpus_per_pod; }
};

enum class SizeQuantity { kPods, kGpusPerPod, kGpus };

struct SizeMention {
  std::string pointer;  // of the text, in the container: "/args/2", "/env/0/value"
  std::size_t begin = 0;
  std::size_t length = 0;
  SizeQuantity quantity = SizeQuantity::kPods;
};

struct SizeMentions {
  std::vector<SizeMention> list;  // by text, then by position
  std::string uncertain;          // why the size should stay, naming the argument; empty: it may change
};

SizeMentions find_mentions(const JsonView& container, const JobSize& now);

// The texts that change, whole: {pointer in the container, new text}.
std::vector<std::pair<std::string, std::string>> rewritten(const JsonView& container,
                                                           const SizeMentions& mentions, const JobSize& next);

}  // namespace plimsoll::workloads
