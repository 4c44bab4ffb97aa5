#include "base/words.h"

#include <algorithm>
#include <cctype>
#include <numeric>

namespace plimsoll {
namespace {

constexpr std::size_t kMaxWord = 64;  // a longer one is no misspelling, and the work grows with the square

bool same_letter(unsigned char a, unsigned char b) {
  return std::tolower(a) == std::tolower(b);
}

// Levenshtein's: insertions, deletions and replacements.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0U);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (same_letter(a[i], b[j]) ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

// "batchSize" for "batchSizePerTrainer": what was typed is the beginning of one known word.
bool begins(std::string_view word, std::string_view known) {
  constexpr std::size_t kShortest = 4;
  return word.size() >= kShortest && word.size() < known.size() &&
         std::equal(word.begin(), word.end(), known.begin(), same_letter);
}

}  // namespace

std::string closest_word(std::string_view word, const std::vector<std::string>& known) {
  if (word.size() > kMaxWord) {
    return {};
  }
  std::string best;
  // A third of the letters may be wrong, of short words two, but not all of them.
  std::size_t least = std::min(std::max<std::size_t>(2, word.size() / 3) + 1, word.size());
  for (const std::string& candidate : known) {
    if (const std::size_t distance = edit_distance(word, candidate); distance < least) {
      least = distance;
      best = candidate;
    }
  }
  if (best.empty()) {
    const auto found = std::find_if(known.begin(), known.end(),
                                    [&](const std::string& candidate) { return begins(word, candidate); });
    best = found == known.end() ? std::string() : *found;
  }
  return best;
}

std::string slip_of(std::string_view word, const std::vector<std::string>& known) {
  constexpr std::size_t kShortest = 6;
  constexpr std::size_t kMostEdits = 2;
  for (const std::string& candidate : known) {
    const bool may_be = word.size() >= kShortest && candidate.size() >= kShortest &&
                        word.size() <= kMaxWord && word.size() <= candidate.size() + kMostEdits &&
                        candidate.size() <= word.size() + kMostEdits;
    if (may_be && edit_distance(word, candidate) <= kMostEdits) {
      return candidate;
    }
  }
  return {};
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  const std::string hint = closest_word(word, known);
  return hint.empty() ? std::string() : "; did you mean " + hint + "?";
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_letter);
}

std::string counted(std::int64_t count, const std::string& noun) {
  return std::to_string(count) + ' ' + noun + (count == 1 ? "" : "s");
}

std::string listed(const std::vector<std::string>& words, std::size_t most) {
  const std::size_t shown = words.size() <= most + 1 ? words.size() : most;
  std::string text;
  for (std::size_t i = 0; i < shown; ++i) {
    text += (i == 0 ? "" : ", ") + words[i];
  }
  return shown == words.size() ? text : text + " and " + std::to_string(words.size() - shown) + " more";
}

}  // namespace plimsoll
