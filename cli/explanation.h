// `plimsoll estimate --explain`: how each part of the breakdown was computed, as text for people. Programs get the
// same as JSON (estimator/estimate/explain.h). One thread.
#pragma once

#include <string>
#include <vector>

#include "estimator/estimate/explain.h"

namespace plimsoll::cli {

// Rule, source and figures of each part.
std::string explanation_text(const std::vector<estimator::PartExplanation>& parts);

}  // namespace plimsoll::cli
