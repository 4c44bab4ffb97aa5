// Quantities and percentages.
#include "base/quantity.h"

#include "tests/fuzz/target.h"

namespace plimsoll::testing {

FUZZ_TARGET(quantity) {
  (void)parse_quantity(input);
  const Result<double> share = parse_percentage(input);
  require(!share || (*share >= 0 && *share <= 1), "a percentage is a share");
  const Result<Bytes> bytes = parse_bytes(input);
  if (bytes) {
    require(*bytes >= Bytes{}, "bytes are not negative");
    const Result<Bytes> again = parse_bytes(format_bytes(*bytes));
    require(again && *again == *bytes, "bytes are written exactly");
  }
}

}  // namespace plimsoll::testing
