// What `plimsoll shard` is asked: its options, read into a request. One thread.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/options.h"
#include "crds/training_job.h"
#include "estimator/sharder/sharder.h"

namespace plimsoll::cli {

struct ShardInput {
  estimator::ShardRequest request;
  bool smallest = false;  // --trainers auto
};

// Everything but the tables. Errors: kInvalid naming the option.
Result<ShardInput> read_shard_input(const po::variables_map& values);

// The tables into the request, and the constraints that name them.
Result<void> add_tables(const po::variables_map& values, const std::vector<crds::EmbeddingTable>& tables,
                        ShardInput& question);

}  // namespace plimsoll::cli
