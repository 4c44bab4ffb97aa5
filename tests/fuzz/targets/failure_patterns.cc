// A cluster's own patterns, and a line that they are tried on.
#include <string>

#include "remediation/patterns.h"
#include "tests/fuzz/target.h"

namespace plimsoll::testing {

FUZZ_TARGET(failure_patterns) {
  using namespace plimsoll::remediation;
  const Result<Patterns> own = Patterns::with_own(input);
  if (!own) {
    require(!own.error().message.empty(), "an error says what is wrong");
    return;
  }
  for (const std::string_view line :
       {input, std::string_view("CUDA out of memory. Tried to allocate 2.00 GiB")}) {
    std::ptrdiff_t before = -1;
    for (const PatternMatch& match : own->match(line)) {
      require(match.at <= line.size(), "a match is in the line");
      const std::ptrdiff_t index = match.pattern - own->all().data();
      require(index > before, "matches are in the order of the file");
      before = index;
    }
  }
}

}  // namespace plimsoll::testing
