// What a text says about memory that ran out: of a GPU, in the words of PyTorch (old and new), CUDA's and
// AMD's libraries, NCCL, JAX and TensorFlow; or of the host.
//
//   if (std::optional<OutOfMemoryText> found = find_out_of_memory(termination_message)) ...
//
// Pure functions; any thread. Time linear in the text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace plimsoll::controllers {

struct OutOfMemoryText {
  bool of_gpu = true;
  std::string line;  // that says so, shortened
  // What the step that failed would have needed on the card: what the process held and what it asked for. An
  // upper bound for that step alone; later ones may need more.
  std::optional<Bytes> needed;
  std::optional<Bytes> capacity;       // of the card
  std::optional<Bytes> fragmentation;  // reserved by PyTorch but unallocated
};

// Of the GPU before the host, the first such line.
std::optional<OutOfMemoryText> find_out_of_memory(std::string_view text);

// The line around a position, without what surrounds it, at most `limit` bytes of it at whole characters.
std::string line_at(std::string_view text, std::size_t position, std::size_t limit = 300);

}  // namespace plimsoll::controllers
