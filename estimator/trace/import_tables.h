// Reads the embedding tables that an exported graph's file describes (docs/graph.md). Inside the importer.
//
//   Result<std::vector<crds::EmbeddingTable>> tables = import_tables(root, budget);
//
// The file is untrusted: every value is checked. Pure; any thread.
#pragma once

#include <vector>

#include "base/budget.h"
#include "base/json/view.h"
#include "base/result.h"
#include "crds/training_job.h"

namespace plimsoll::estimator::inline trace {

// Of the file's "embeddings"; empty without it. Errors: kInvalid naming the place, as in
// "embeddings[3].rows: must be an integer". Throws the budget's BudgetExceeded.
Result<std::vector<crds::EmbeddingTable>> import_tables(JsonView root, Budget* budget);

}  // namespace plimsoll::estimator::trace
