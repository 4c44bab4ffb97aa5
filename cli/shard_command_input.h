// The options of `plimsoll shard`, read into a request. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/options.h"
#include "crds/training_job.h"
#include "estimator/sharder/sharder.h"

namespace plimsoll::cli {

inline constexpr std::int64_t kMaxPerNode = 1024;

struct ShardInput {
  estimator::ShardRequest request;
  bool fewest = false;  // --trainers auto
  Bytes reserve{};      // what the request's budgets leave of --hbm
};

// Everything but the tables.
ShardInput read_shard_input(OptionReader& options);

// The tables, and the constraints of --allow and --pin.
void add_tables(OptionReader& options, const std::vector<crds::EmbeddingTable>& tables,
                estimator::ShardRequest& request);

}  // namespace plimsoll::cli
