// Words in messages: what a misspelt one probably means, and long lists of them. Pure; any thread.
//
//   closest_word("batchSize", {"batchSizePerTrainer", "precision"});   // "batchSizePerTrainer"
//   closest_word("optimiser", {"optimizer", "precision"});             // "optimizer"
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

// Letters in another case count as equal. Empty when nothing is close, or the word has more than 64 characters.
std::string closest_word(std::string_view word, const std::vector<std::string>& known);

// The known word that this one is with up to two letters added, left out or replaced: surely a slip, where `closest_word` is a hint. Words of
// fewer than six letters have none. Empty: none.
std::string slip_of(std::string_view word, const std::vector<std::string>& known);

// "; did you mean optimizer?", or nothing.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

bool equal_ignoring_case(std::string_view a, std::string_view b);

// "1 trainer", "8 trainers".
std::string counted(std::int64_t count, const std::string& noun);

// "A10, A100-40GB, A30 and 40 more"; all of them when there are no more than `most` + 1.
std::string listed(const std::vector<std::string>& words, std::size_t most = 8);

}  // namespace plimsoll
