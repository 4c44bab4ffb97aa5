// The CSV of embedding tables, as `tablesFrom` ConfigMaps hold it and `plimsoll shard --tables` reads it:
//
//   # comments
//   name,rows,dim,pooling_factor[,lookup_frequency]
//
// with the header line optional and gzip understood. Pure; any thread.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "crds/training_job.h"

namespace plimsoll::crds {

inline constexpr std::int64_t kMaxEmbeddingTables = 100'000;  // after `count` is expanded; a limit of ours

// Errors: kInvalid naming the line, kTooLarge past kMaxEmbeddingTables lines or 64 MiB of content.
Result<std::vector<EmbeddingTable>> parse_embedding_tables_csv(std::string_view text);

}  // namespace plimsoll::crds
