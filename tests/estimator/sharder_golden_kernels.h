// What torchrec's planner says of three tables in every sharding type, kernel, optimizer, width and pipeline:
// data figures only, printed by tests/accuracy/torchrec/golden_options.py from torchrec 1.9.2
// (github.com/meta-pytorch/torchrec, BSD-3-Clause; the figures of its commit 376cac6a are the same).
#pragma once

#include <array>
#include <cstdint>

#include "estimator/sharder/sharder.h"

namespace plimsoll::estimator {

// Column blocks have 64 columns wherever columns are cut.
struct GoldenKernel {
  std::size_t of;  // kGoldenCases
  ShardingType type;
  Kernel kernel;
  std::int64_t rows;     // of the first shard
  std::int64_t columns;  // of the first shard
  double milliseconds;   // of the first shard
  std::int64_t card;     // bytes of the first shard in the card's memory
  std::int64_t host;     // and in the host's
};

inline constexpr std::array<GoldenKernel, 308> kGoldenKernels = {{
#include "tests/estimator/sharder_golden_kernels.inc"
}};

// As the script lists them, in its order.
inline std::array<ShardRequest, 11> golden_cases() {
  using enum crds::Optimizer;
  using enum Pipeline;
  const Table large{.name = "large", .rows = 100'003, .dim = 256, .lookups_per_sample = 5.424};
  const Table rare{.name = "rare", .rows = 1'000'000, .dim = 64, .lookups_per_sample = 0.4};
  const Table tiny{.name = "tiny", .rows = 37, .dim = 384, .lookups_per_sample = 12.5};
  const auto of = [](Table table, std::int64_t element_bytes, bool weighted) {
    table.element_bytes = element_bytes;
    table.weighted = weighted;
    return std::vector<Table>{table};
  };
  const auto request = [](std::vector<Table> tables, std::int64_t trainers, std::int64_t batch,
                          crds::Optimizer optimizer, Pipeline pipeline = kNone, bool at_peak = false,
                          double cache = 0.2) {
    return ShardRequest{.tables = std::move(tables),
                        .topology = {.trainers = trainers},
                        .batch_size = batch,
                        .optimizer = optimizer,
                        .pipeline = pipeline,
                        .embeddings_at_peak = at_peak,
                        .cache_ratio = cache};
  };
  return {request({large}, 64, 1024, kRowWiseAdagrad),
          request({rare}, 64, 1024, kRowWiseAdagrad),
          request({tiny}, 64, 1024, kSGD),
          request({large}, 16, 512, kAdagrad),
          request({large}, 8, 2048, kRowWiseAdagrad),
          request(of(rare, 2, true), 8, 2048, kAdam, kSparseDist, true, 0.35),
          request(of(rare, 2, true), 64, 1024, kAdam, kSparseDist),
          request(of(large, 1, false), 64, 1024, kAdagrad, kPrefetchSparseDist),
          request(of(rare, 4, true), 16, 512, kSGD, kPrefetchSparseDist, true, 0.1),
          request({tiny}, 16, 512, kAdagrad),
          request(of(tiny, 2, true), 8, 2048, kRowWiseAdagrad, kNone, false, 0.5)};
}

}  // namespace plimsoll::estimator
