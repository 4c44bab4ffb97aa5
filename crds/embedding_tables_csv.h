// The CSV of embedding tables, as `tablesFrom` ConfigMaps hold it and `plimsoll shard --tables` reads it:
//
//  # comments
//  name,rows,dim,pooling_factor[,lookup_frequency]
//
// with the header line optional and gzip understood. Pure; any thread.
#pragma once

#include <string_view>
#include <vector>

#include "base/budget.h"
#include "base/bytes.h"
#include "base/result.h"
#include "crds/training_job.h"

namespace plimsoll::crds {

inline constexpr std::int64_t kMaxEmbeddingTables =
    100'000;  // after `count` is expanded; Plimsoll's own limit

// `limit`: of the text, unpacked. Errors: kInvalid naming the line, kTooLarge past kMaxEmbeddingTables lines
// or the limit. Throws the budget's BudgetExceeded.
Result<std::vector<EmbeddingTable>> parse_embedding_tables_csv(std::string_view text, Bytes limit = 64_MiB,
                                                               Budget* budget = nullptr);

// What the schema and its rules say of a list of tables (names, bounds, sums). Errors: kInvalid naming the
// first fields, as in "embeddings[3].rows: must be at least 1, is 0"; `name`: of the list.
Result<void> check_tables(const std::vector<EmbeddingTable>& tables, std::string_view name);

}  // namespace plimsoll::crds
