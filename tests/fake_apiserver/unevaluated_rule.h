// UnevaluatedRule: something that a real API server checks and the fake one cannot: a CEL expression, or the
// format of a text. A test whose result depends on it must run on a real API server. Plain values; any
// thread.
#pragma once

#include <string>
#include <vector>

namespace plimsoll::testing::fake {

struct UnevaluatedRule {
  std::string resource;   // "trainingjobs.plimsoll.dev"; or a webhook configuration
  std::string field;      // "spec.parts[].count": what the rule is about; or the webhook
  std::string construct;  // "x-kubernetes-validations", "matchConditions" or "format"
  std::string rule;       // the CEL expression, or the name of the format
  std::string message;    // what a real API server answers when the rule is broken
};

using UnevaluatedRules = std::vector<UnevaluatedRule>;

}  // namespace plimsoll::testing::fake
