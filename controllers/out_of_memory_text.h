// What a line says about memory that ran out: of a GPU, in the words of PyTorch (old and new), CUDA's and
// AMD's libraries, NCCL, JAX, TensorFlow and what is built on them; or of the host.
//
//   if (std::optional<MemoryWords> words = find_memory_words(line)) ...
//   OutOfMemoryFigures figures = read_figures(text.substr(where_the_line_begins));
//
// Pure functions; any thread. Time linear in the text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace plimsoll::controllers {

struct MemoryWords {
  bool of_gpu = true;
  // A sentence that only the error has. Else the line speaks of a GPU and of memory that ran out, as a
  // program's own remark might.
  bool exact = true;
  std::size_t at = 0;  // of the words in the line
};

std::optional<MemoryWords> find_memory_words(std::string_view line);

struct OutOfMemoryFigures {
  // What the step that failed would have needed on the card: what the process held and what it asked for. An
  // upper bound for that step alone; later ones may need more.
  std::optional<Bytes> needed;
  std::optional<Bytes> capacity;       // of the card
  std::optional<Bytes> fragmentation;  // reserved by PyTorch but unallocated
};

// Of PyTorch's error at the beginning of the text, which may go over several lines; nothing of a second one
// behind it. What is no sane size is as if it were not there.
OutOfMemoryFigures read_figures(std::string_view text);

// In small letters, for comparing; each byte stays at its place.
std::string in_small_letters(std::string_view text);

}  // namespace plimsoll::controllers
