// What is asked of the sharder, and what it answers. Value types.
#pragma once

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
  double lookups_per_sample = 1;  // pooling factor times lookup frequency
  std::int64_t element_bytes = 4;
  bool weighted = false;  // its lookups carry weights, whose gradients are wanted too
  bool pooled = true;     // else a row is sent for each lookup instead of one a sample
};

// "name" for a single table, "name.0", "name.1", ... for a group.
std::vector<Table> expand_tables(const std::vector<crds::EmbeddingTable>& groups, Budget* budget = nullptr);
// What they take in this process, and what they would take before they are expanded.
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

// What runs the lookups: fused with the optimizer, or dense (autograd's; data-parallel tables have no other);
// on rows in the card's memory, in the host's, or in the host's with a cache on the card.
enum class Kernel { kFused, kDense, kHost, kHostCached };
const char* name_of(Kernel kernel);  // torchrec's names: "fused", "dense", "fused_uvm", "fused_uvm_caching"

// How far the next batches' inputs are on their way while one is trained; they take memory.
enum class Pipeline { kNone, kSparseDist, kPrefetchSparseDist };

// Which figures are planned with; docs/sharding.md compares them.
enum class CostMethod {
  kTorchrec,  // those of torchrec's planner
  kStages     // stages in lockstep, exchanges of whole batches, optimizer state as the kernels allocate it
};

// Where one table may go, when not everywhere.
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
  std::vector<Bytes> budgets = {};  // instead, one for each trainer, where they are not alike
  Bytes host_budget = {};           // of the host's memory, per trainer: 0 keeps all tables on the cards
  crds::Optimizer optimizer = crds::Optimizer::kRowWiseAdagrad;
  Pipeline pipeline = Pipeline::kNone;
  bool embeddings_at_peak = false;  // with a pipeline: outputs count too, the peak being in the lookups
  double cache_ratio = 0.2;         // share of a cached table's rows that the card holds (torchrec's default)
  CostMethod cost = CostMethod::kTorchrec;
  // Bytes as the kernels allocate them, whichever model the times are of: what must fit a card. kStages has
  // no other; torchrec's count less for narrow column blocks, half-precision weights and seldom lookups.
  bool allocated_bytes = false;
  // The knob between time and memory: the share by which a plan may be slower than the bound before time
  // counts. Up to there, the plan with the emptiest fullest trainer wins.
  double time_slack = 0.005;
  std::vector<Constraint> constraints = {};
  // Of the decision; null: no limit. All functions below that take a request throw its BudgetExceeded.
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
  // Those that have rows. Data-parallel: none are listed, for every rank has the whole table.
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
};

struct RankLoad {
  StageTimes stages;
  double milliseconds = 0;  // of all stages
  Bytes memory;             // of the card: shards, optimizer state, input and output buffers
  Bytes host_memory;        // of the host: tables that are kept there
  Bytes weights;            // of the shards alone, wherever they are
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

// Why a request cannot be met. `constraint` is "TotalMemory" (of all trainers), "LargestPiece" (one table's
// smallest shard), "Pinned" (a table's own constraint leaves no way) or "Placement" (no bound forbids it, but
// no plan was found); empty when nothing is wrong.
struct Infeasibility {
  std::string constraint;
  std::string reason;
  Bytes missing;
  std::string table;  // the one at fault, where it is one
};

}  // namespace plimsoll::estimator::sharder
