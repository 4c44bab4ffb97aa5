// The time of an iteration in `plimsoll estimate`: as a member of its JSON, and as text for people. One thread.
#pragma once

#include <optional>
#include <string>

#include "base/json/json.h"
#include "cli/answer_budget.h"
#include "cli/placed_tables.h"
#include "estimator/speed/throughput.h"
#include "estimator/types/request.h"

namespace plimsoll::cli {

// Nothing where it is not known: without a card, for a card without figures, or for tables that do not fit, or within the budget. `placed`: of a
// model with tables.
std::optional<estimator::Throughput> throughput_of(const estimator::EstimateRequest& request,
                                                   const PlacedTables& placed, AnswerBudget& budget);

// As status.throughput of a job, and "parts": [{"name", "seconds"}], which sum to the iteration.
Json throughput_json(const estimator::Throughput& throughput);

// One line; with `parts` one more for each.
std::string throughput_text(const estimator::Throughput& throughput, bool parts);

}  // namespace plimsoll::cli
