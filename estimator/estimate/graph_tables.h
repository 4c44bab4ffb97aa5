// The embedding tables of an exported graph. Its lookups (estimator/trace/lookups.h) make what the tables give a
// trainer; the tables themselves are the sharder's (docs/graph.md).
//
//   Result<void> matches = check_tables(trace, tables, {.batch = 512});
//   Trace whole = with_batches_of_tables(trace, tables, {.batch = 512, .batches_in_flight = 3});
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/budget.h"
#include "base/result.h"
#include "crds/training_job.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline estimate {

struct TablesRequest {
  std::int64_t batch = 1;
  std::int64_t batches_in_flight = 1;  // batches whose inputs are on the device at once
  Budget* budget = nullptr;
};

// Whether the columns that the graph's lookups give are those of the tables. Errors: kInvalid with both
// numbers, and what to do.
Result<void> check_tables(const Trace& trace, const std::vector<crds::EmbeddingTable>& tables,
                          const TablesRequest& request);

// The trace with the inputs of all batches in flight, and with the indices of the lookups where the graph was
// exported without them: int64, one a row looked up and one offset a table and sample.
Trace with_batches_of_tables(const Trace& trace, const std::vector<crds::EmbeddingTable>& tables,
                             const TablesRequest& request);

}  // namespace plimsoll::estimator::estimate
