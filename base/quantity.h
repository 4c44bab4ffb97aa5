// Kubernetes resource.Quantity, read exactly: "80Gi", "1500m", "12.5Gi", "1e3", "0.5", "-2k".
// Source of the grammar: apimachinery pkg/api/resource/quantity.go (suffixes n u m "" k M G T P E, Ki..Ei,
// e/E). Pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/json/view.h"
#include "base/result.h"

namespace plimsoll {

// The quantity as a real number. Errors: kInvalid when it is not one, or is outside +-2^63.
Result<double> parse_quantity(std::string_view text);

// The quantity as bytes, fractions rounded up as Kubernetes does. Errors: kInvalid; also for negative
// amounts.
Result<Bytes> parse_bytes(std::string_view text);

// The bytes of a JSON value as Kubernetes takes them, 17179869184 or "16Gi"; nothing for any other value.
std::optional<Bytes> quantity_of(const JsonView& value);

// The shortest exact spelling with a binary suffix: "80Gi", "1536Mi", "1000".
std::string format_bytes(Bytes bytes);

// "5%" -> 0.05. Errors: kInvalid when it does not end in %, or is outside 0% to 100%.
Result<double> parse_percentage(std::string_view text);

}  // namespace plimsoll
