// The texts by which the ends of containers are recognised: those of patterns.yaml, which is compiled in, and a cluster's own.
//
//   const Patterns& known = Patterns::built_in();
//   for (const PatternMatch& match : known.match(line)) use(match.pattern->outcome);
//
// A file of patterns is a YAML list. Each entry has:
//   rule         what a line with the text proves (Rule, remediation/pattern_file.h)
//   outcome      the verdict; not of `harmless` and `launcher`
//   text, regex  a list of them, or both: parts of a line, compared in any case; regular expressions are RE2's
//   with         a regular expression that the line must have as well; unless: one that it must not have
//   sharedMemory true, of HostOutOfMemory: /dev/shm was full
//   library, versions, source   whose text it is, of which versions (default: all), and where it stands
// The first pattern of a line that counts decides, in the order of the file; the cluster's own come first.
//
// Immutable once made; any thread. Time linear in the line (RE2).
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "remediation/pattern_file.h"

namespace plimsoll::remediation {

struct PatternMatch {
  const Pattern* pattern = nullptr;  // of the Patterns that matched
  std::size_t at = 0;                // offset in the line
};

class Patterns {
 public:
  static const Patterns& built_in();

  // `own`: a file's text. Errors: as of read_patterns; kInvalid for an expression that RE2 does not take; kTooLarge where all
  // together exceed the memory that RE2 is given.
  static Result<Patterns> with_own(std::string_view own);

  // Those that the line has, in their order.
  std::vector<PatternMatch> match(std::string_view line) const;

  const std::vector<Pattern>& all() const;

 private:
  class Compiled;
  explicit Patterns(std::shared_ptr<const Compiled> compiled);

  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace plimsoll::remediation
