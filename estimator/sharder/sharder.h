// shard(): places embedding tables on trainers so that the slowest trainer is as fast, and the fullest as
// empty, as can be, within each trainer's memory; and says how far that is from a proven bound.
//
//   ShardRequest request{.tables = tables, .topology = {.trainers = 64}, .batch_size = 1024,
//                        .budget = 71_GiB};
//   Result<Plan> plan = shard(request);  // kUnfittable: says which constraint failed and by how many bytes
//
// Cost model: torchrec's (docs/sharding.md gives the formulas and their source). Deterministic: equal
// requests give equal plans. Pure; any thread; no allocation outlives the call but the plan.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/budget.h"
#include "base/bytes.h"
#include "base/json.h"
#include "base/result.h"
#include "crds/training_job.h"

namespace plimsoll::estimator {

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

// Errors: kInvalid (a table or topology that cannot be), kUnfittable (the message names the constraint, the
// table where it is one, and the bytes that are missing; `why`, if given, gets the same as figures).
Result<Plan> shard(const ShardRequest& request, Infeasibility* why = nullptr);

// What the lower bounds on memory say, without searching: never refuses what could be met. The request must
// be one that `shard` does not call invalid.
Infeasibility rule_out(const ShardRequest& request);

// The smallest world size that `rule_out` cannot exclude, for `request` with any number of trainers up to
// `most`: multiples of per_node above one node, any count below. Errors: kUnfittable when `most` trainers are
// ruled out too.
Result<std::int64_t> fewest_trainers_bound(const ShardRequest& request, std::int64_t most);

struct SmallestPlan {
  std::int64_t trainers = 0;
  Plan plan;
  std::int64_t searched = 0;  // counts that took a search; the bounds ruled the others out
};

// The fewest trainers from `least` to `most` for which a plan is found: multiples of per_node above one node,
// any count below. Every count is looked at, since what fits on n trainers need not fit on more (buffers
// grow with the batch of all). `budget_of` is asked once for each count on the way, in ascending order, and
// may be empty, when the request's own budget holds for all; its error ends the search. Errors: also those
// of `shard`, for the largest count.
Result<SmallestPlan> shard_smallest(const ShardRequest& request, std::int64_t least, std::int64_t most,
                                    const std::function<Result<Bytes>(std::int64_t)>& budget_of = {},
                                    Infeasibility* why = nullptr);

// What would make an unfittable request fit; each was searched for, and found.
struct Remedy {
  std::optional<std::int64_t> trainers;  // the next count that does, with the same budget
  std::optional<Bytes> budget;  // a budget that does, with the same trainers; at most 2% more than needed
};
Remedy find_remedy(const ShardRequest& request, std::int64_t most_trainers);
std::string to_string(const Remedy& remedy, std::int64_t trainers);  // "72 trainers would do, or 64 with ..."

// An independent check of a plan against its request, written from the definitions: coverage of each row and
// column exactly once, ranks in range, bytes and times recomputed, budgets kept. Empty: all holds; else what
// is wrong.
std::vector<std::string> verify(const ShardRequest& request, const Plan& plan);

// The contract of docs/cli.md: feasible, perf, memory, plan.
Json to_json(const ShardRequest& request, const Plan& plan);

// torchrec's ShardingPlan, field for field, of the embedding collection at the path `module` ("cuda" or "cpu"
// being the device): examples/torchrec_plan.py makes the object of it.
Json to_torchrec_json(const ShardRequest& request, const Plan& plan, const std::string& module,
                      const std::string& device);

}  // namespace plimsoll::estimator
