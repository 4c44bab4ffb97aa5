// Reads a file of patterns (remediation/patterns.h says what it has). Pure; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "crds/training_job_status.h"

namespace plimsoll::remediation {

enum class Rule {
  kProof,        // the line proves the outcome by itself
  kMention,      // likewise, if it is the last line or an error's; a program may also remark on it, and go on
  kException,    // decides what an exception proves in whose message it stands
  kConsequence,  // of a peer or service that was lost: proves the outcome where nothing else is known
  kKilled,       // a launcher says that its child was killed, and was not killed itself
  kLauncher,     // of an exception's name: of a launcher, whose child failed, but not why
  kHarmless      // the line says itself that it is no failure: it is not read
};

struct Pattern {
  Rule rule = Rule::kProof;
  crds::Outcome outcome = crds::Outcome::kUnknown;
  bool shared_memory = false;  // /dev/shm was full
  bool is_own = false;         // of the cluster, not built in
  bool is_regex = false;
  std::string text{};    // as it is written in the file
  std::string with{};    // a regular expression that the line must have, too; empty: none
  std::string unless{};  // one that it must not have; empty: none
  std::string library{};
  std::string versions{};
  std::string source{};
};

inline constexpr std::size_t kMostOwnPatterns = 500;
inline constexpr std::size_t kLongestPattern = 300;  // bytes

// In the order of the file, one of each text. Empty for a file without any. Errors: kInvalid, with the index of the entry: what is no list
// of patterns, an unknown member, an unknown rule or outcome, a text of more than kLongestPattern bytes; kTooLarge beyond kMostOwnPatterns
// texts where `is_own`. Expressions are not looked into.
Result<std::vector<Pattern>> read_patterns(std::string_view yaml, bool is_own);

// As files have it: "proof".
std::string_view name_of(Rule rule);

}  // namespace plimsoll::remediation
