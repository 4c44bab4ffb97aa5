// The sharder's request and its result, the plan. Value types.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/budget.h"
#include "base/bytes.h"
#include "base/json/json.h"
#include "base/result.h"
#include "crds/training_job.h"

namespace plimsoll::estimator::inline sharder {

// One table; groups (`count`) are expanded by `expand_tables`.
struct Table {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t dim = 0;
  double lookups_per_sample = 1;  // pooling factor times lookup frequency, of all features
  std::int64_t element_bytes = 4;
  bool weighted = false;      // lookups carry weights, and the weights have gradients
  bool pooled = true;         // false: a row is sent for each lookup instead of one for each sample
  std::int64_t features = 1;  // that share it: a pooled row each

  // Pooled rows of a sample that has lookups of all features, or as many as it has on average.
  double pooled_rows() const { return static_cast<double>(features); }
  double pooled_rows_looked_up() const { return std::min(pooled_rows(), lookups_per_sample); }
};

// "name" for a single table, "name.0", "name.1", ... for a group.
std::vector<Table> expand_tables(const std::vector<crds::EmbeddingTable>& groups, Budget* budget = nullptr);
// Memory of this process that they take; and that they will take once they are expanded.
Bytes memory_of(const std::vector<Table>& tables);
Bytes memory_of_expanded(const std::vector<crds::EmbeddingTable>& groups);

struct Topology {
  std::int64_t trainers = 1;
  std::int64_t per_node = 8;                   // ranks [k*per_node, (k+1)*per_node) share a host
  Bytes intra_node_bandwidth = 600_GiB;        // bytes a second (torchrec's default)
  Bytes inter_node_bandwidth{13'421'772'800};  // 12.5 GiB/s
  Bytes hbm_bandwidth = 897_GiB;
  Bytes host_bandwidth = 32_GiB;  // between a card and its host's memory
};

// The next number of trainers that nodes allow: any up to one node, whole nodes above.
inline std::int64_t round_up_to_nodes(std::int64_t trainers, std::int64_t per_node) {
  return trainers <= per_node ? trainers : (trainers + per_node - 1) / per_node * per_node;
}

// Table-column-wise is column-wise within one node; grid is column blocks, each table-row-wise on a node.
enum class ShardingType {
  kDataParallel,
  kTableWise,
  kColumnWise,
  kTableColumnWise,
  kRowWise,
  kTableRowWise,
  kGrid
};
const char* name_of(ShardingType type);  // torchrec's names: "table_wise", ...

// What runs the lookups: fused with the optimizer, or dense (autograd; the only one for data-parallel tables);
// rows are in GPU memory, in host memory, or in host memory with a cache on the GPU.
enum class Kernel { kFused, kDense, kHost, kHostCached };
const char* name_of(Kernel kernel);  // torchrec's names: "fused", "dense", "fused_uvm", "fused_uvm_caching"

// Which inputs of the next batches are loaded while a batch is trained; they take memory.
enum class Pipeline { kNone, kSparseDist, kPrefetchSparseDist };

// The cost model; docs/sharding.md compares them.
enum class CostMethod {
  kTorchrec,  // that of torchrec's planner
  kStages     // stages in lockstep, exchanges of whole batches, optimizer state as the kernels allocate it
};

// Restricts how and where one table is sharded.
struct Constraint {
  std::int64_t table = 0;                // index into the request's tables
  std::vector<ShardingType> types = {};  // allowed; empty: all
  std::vector<std::int64_t> ranks = {};  // that may hold a shard of it; empty: all
};

struct ShardRequest {
  std::vector<Table> tables = {};
  Topology topology = {};
  std::int64_t batch_size = 512;    // per trainer
  Bytes budget = {};                // per trainer, for shards with optimizer state and buffers
  std::vector<Bytes> budgets = {};  // replaces `budget` where trainers differ: one for each
  Bytes host_budget = {};           // of host memory, per trainer; 0 keeps all tables on the GPUs
  crds::Optimizer optimizer = crds::Optimizer::kRowWiseAdagrad;
  Pipeline pipeline = Pipeline::kNone;
  bool embeddings_at_peak = false;  // with a pipeline: outputs count too, because the peak is in the lookups
  double cache_ratio = 0.2;         // share of a cached table's rows that the GPU holds (torchrec's default)
  CostMethod cost = CostMethod::kTorchrec;
  // Count bytes as the kernels allocate them, with either cost model. kStages always does; torchrec's planner
  // counts fewer for narrow column blocks, half-precision weights and rare lookups.
  bool allocated_bytes = false;
  // Trades time for memory: a plan may be slower than the bound by this share before its time counts. Among
  // such plans, the one with the smallest peak memory wins.
  double time_slack = 0.005;
  std::vector<Constraint> constraints = {};
  // Of the decision; null: no limit. All functions that take a request throw its BudgetExceeded.
  Budget* work_budget = nullptr;
};

struct Shard {
  std::int64_t rank = 0;
  std::int64_t row_begin = 0, row_end = 0;  // half-open
  std::int64_t column_begin = 0, column_end = 0;
};

struct TablePlacement {
  std::int64_t table = 0;  // index into the request's tables
  ShardingType type = ShardingType::kTableWise;
  Kernel kernel = Kernel::kFused;
  // Only shards with rows. Empty for data-parallel tables: every rank has the whole table.
  std::vector<Shard> shards;
};

// Milliseconds of one iteration's lookups and exchanges.
struct StageTimes {
  double forward_compute = 0;
  double forward_exchange = 0;
  double backward_compute = 0;
  double backward_exchange = 0;

  double compute() const { return forward_compute + backward_compute; }
  double exchange() const { return forward_exchange + backward_exchange; }
  double total() const { return compute() + exchange(); }
  StageTimes& operator+=(const StageTimes& other) {
    return *this = {forward_compute + other.forward_compute, forward_exchange + other.forward_exchange,
                    backward_compute + other.backward_compute, backward_exchange + other.backward_exchange};
  }
};

// The longer of each stage.
inline StageTimes longest(const StageTimes& a, const StageTimes& b) {
  return {std::max(a.forward_compute, b.forward_compute), std::max(a.forward_exchange, b.forward_exchange),
          std::max(a.backward_compute, b.backward_compute),
          std::max(a.backward_exchange, b.backward_exchange)};
}

struct RankLoad {
  StageTimes stages;
  double milliseconds = 0;  // of all stages
  Bytes memory;             // GPU memory: shards, optimizer state, input and output buffers
  Bytes host_memory;        // of tables that are kept in host memory
  Bytes weights;            // of the shards alone, on GPU and host
  Bytes optimizer;          // their optimizer state
};

struct Plan {
  std::vector<TablePlacement> placements;  // in the order of the request's tables
  std::vector<RankLoad> ranks;
  StageTimes critical_path;     // the slowest rank of each stage
  double max_milliseconds = 0;  // of the slowest rank; with CostMethod::kStages, the critical path
  double mean_milliseconds = 0;
  double lower_bound_milliseconds = 0;  // proven: no plan of the options in docs/sharding.md is faster
  Bytes max_memory;
  Bytes mean_memory;
  Bytes node_max_memory;
  Bytes node_mean_memory;
};

// Why a request cannot be met. `constraint` is "TotalMemory" (of all trainers), "LargestPiece" (the smallest
// shard of one table), "Pinned" (a table's own constraint allows no option) or "Placement" (no lower bound
// excludes it, but no plan was found); empty when nothing is wrong.
struct Infeasibility {
  std::string constraint;
  std::string reason;
  // At least, over all trainers, of which equal ones grow alike. LargestPiece and Placement of unequal ones: what one of them lacks.
  Bytes missing;
  std::string table;  // where one table is the cause
};

}  // namespace plimsoll::estimator::sharder
