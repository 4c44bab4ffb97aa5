// explain(): for each of the twelve parts of an estimate's breakdown, the rule by which it was computed, where that
// rule comes from (section of a paper, upstream file), and the figures that went in.
//
//   for (const PartExplanation& part : explain(request, estimate)) { ... part.rule ... }
//
// It reads the request as the estimator did, and repeats no computation. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/json/json.h"
#include "estimator/types/request.h"

namespace plimsoll::estimator::inline estimate {

struct Figure {
  std::string name;  // with its unit: "trainers", "denseParameterBytes"
  std::variant<std::int64_t, std::string> value;
};

struct PartExplanation {
  std::string part;  // as in the JSON of the breakdown, without "Bytes"
  Bytes bytes;
  std::string rule;
  std::vector<std::string> sources;  // never empty
  std::vector<Figure> figures;
};

// In the breakdown's order; their bytes sum to estimate.peak.upper_bound. `request` is the one that was estimated.
std::vector<PartExplanation> explain(const EstimateRequest& request, const Estimate& estimate);

Json to_json(
    const std::vector<PartExplanation>& parts);  // [{part, bytes, rule, sources, figures: {name: value}}]

}  // namespace plimsoll::estimator::estimate
