// ParameterLifeCycle: the blocks of parameters, gradients and optimizer state in an iteration, if several
// trainers hold replicas of a model: DDP's buckets, ZeRO's shards, FSDP's all-gather and reduce-scatter.
// Whoever executes the iteration reports its events in order; this class allocates and frees the blocks.
//
//   ParameterLifeCycle life(ledger, replication, parameters, optimizer);
//   life.persist();
//   life.enter_forward(0); ... life.leave_forward(0); ... life.end_forward();
//   life.enter_backward(0, -1); life.take_gradient(3, block); life.leave_backward(0);
//   life.end_backward();
//   life.step();
//
// A unit is what FSDP wraps: a layer of a transformer, a block. Parameters outside all units belong to the
// root unit (kRootUnit), FSDP's outermost module. Not thread-safe; each iteration owns its object.
//
// Sources: torch/nn/parallel/distributed.py and csrc/distributed/c10d/reducer.cpp (DDP);
// torch/distributed/optim/zero_redundancy_optimizer.py; torch/distributed/fsdp/_runtime_utils.py and
// _flat_param.py (FSDP1); torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py and _fsdp_collectives.py
// (FSDP2); ZeRO: arXiv 1910.02054 and deepspeed/runtime/zero. The order of events was recorded in real runs
// (tests/accuracy/parallel).
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/budget.h"
#include "base/bytes.h"
#include "crds/training_job.h"
#include "estimator/ledger/ledger.h"
#include "estimator/trace/optimizer.h"

namespace plimsoll::estimator::inline parallel {

inline constexpr std::int32_t kRootUnit = -1;

// A parameter of a replica, or several equal ones.
struct ReplicaParameter {
  std::int64_t elements = 0;         // of one of the `count` equal parameters
  std::int64_t rows = 0;             // number of elements divided by the size of the last dimension
  std::int64_t columns = 0;          // number of elements divided by the second-last one's; 0 for a vector
  std::int64_t first = 1;            // size of the first dimension, along which FSDP2 shards
  std::int64_t width = 4;            // bytes per element in the model's computation
  std::int64_t optimizer_width = 4;  // bytes per element that the optimizer updates: 4 for an fp32 copy
  std::int64_t count = 1;
  std::int32_t unit = kRootUnit;
  bool separate_step = false;  // the optimizer updates it in a separate group (see TraceRunRequest)

  Bytes bytes() const { return Bytes{elements} * width; }
};

// How replicas are synchronized and sharded.
struct Replication {
  crds::ParallelStrategy strategy = crds::ParallelStrategy::kAuto;
  std::int64_t replicas = 1;
  std::int64_t rank = 0;                 // of this trainer among the replicas
  bool gradient_as_bucket_view = false;  // DDP's option
  bool reshard_after_forward = true;     // FSDP's option
  bool collectives_copy = false;         // collectives work on a copy: true for gloo, false for NCCL
};

// Receives the blocks that the life cycle allocates and frees.
class ParameterLedger {
 public:
  virtual ~ParameterLedger() = default;
  // `parameter`: index in the life cycle's list; for a buffer of several parameters, one of them.
  virtual BlockId allocate(Part part, Bytes bytes_of_one, std::int64_t count, std::size_t parameter) = 0;
  virtual void release(BlockId block) = 0;
};

class ParameterLifeCycle {
 public:
  // `budget` pays for the lists of parameters and of replicas, in addition to what the ledger charges.
  ParameterLifeCycle(ParameterLedger& ledger, const Replication& replication,
                     BudgetVector<ReplicaParameter> parameters, const OptimizerRun& optimizer,
                     Budget* budget = nullptr);

  // Allocates what stays live from iteration to iteration.
  void persist();

  // Allocates the gradients that the last backward left, for a loop that keeps them until the next backward.
  // The caller frees the blocks.
  std::vector<BlockId> left_gradients();

  // Called around each unit's forward, once per forward pass. The root is entered before all others.
  void enter_forward(std::int32_t unit);
  void leave_forward(std::int32_t unit);
  void end_forward();

  // Called around each unit's backward. `next`: the unit whose backward follows; kRootUnit if there is none.
  void enter_backward(std::int32_t unit, std::int32_t next);
  // A parameter's gradient of this pass is complete. The life cycle owns the block from now on.
  void take_gradient(std::size_t parameter, BlockId gradient);
  void leave_backward(std::int32_t unit);
  void end_backward();

  void step();

 private:
  struct Unit {
    explicit Unit(Budget* budget) : members(budget), gathered(budget), gradients(budget) {}

    BudgetVector<std::size_t> members;
    Bytes unpadded;  // size of all members
    Bytes whole;     // size of all members, padded to equal shards
    Bytes shard;
    BudgetVector<BlockId> gathered;  // the members after the all-gather
    BlockId buffer = -1;             // FSDP2: output of the all-gather, before it is copied out
    BudgetVector<std::pair<std::size_t, BlockId>> gradients;
  };

  bool fsdp1() const;
  bool fsdp2() const;
  bool gathers() const { return fsdp1() || fsdp2(); }
  bool half_gradients() const;
  bool shards_gradients() const;
  bool shards_state() const;
  // True if the optimizer updates a copy that is wider than the model's parameter.
  bool has_optimizer_copy(const ReplicaParameter& parameter) const {
    return parameter.optimizer_width != parameter.width;
  }
  std::int64_t shard_elements(const ReplicaParameter& parameter) const;
  bool owns(std::size_t parameter) const;  // ZeRO-1: this rank updates it
  void assign_owners();
  SteppedParameter stepped(std::size_t parameter) const;
  Unit& unit(std::int32_t id);  // created if it does not exist
  void gather(Unit& unit, bool frees_last);
  void copy_out(Unit& unit);
  void reshard(Unit& unit);
  void reduce(Unit& unit);
  void stage(Bytes bytes, std::size_t parameter);
  void step(const std::vector<SteppedParameter>& updated);
  void release(BlockId& block);

  ParameterLedger& ledger_;
  Budget* const budget_;
  const Replication replication_;
  const BudgetVector<ReplicaParameter> parameters_;
  const OptimizerRun optimizer_;
  BudgetBytes memory_of_units_;
  std::map<std::int32_t, Unit> units_;
  BudgetVector<std::int64_t> owner_;  // by parameter: the rank that updates it
  // Gradients of earlier micro-batches, by parameter; if gradients are sharded, by the unit's first member.
  BudgetVector<BlockId> kept_gradients_;
  BlockId last_buffer_ = -1;  // FSDP2: buffer of the previous all-gather, still being copied out
  BlockId scattering_ = -1;   // FSDP2: input of the reduce-scatter in progress
};

}  // namespace plimsoll::estimator::parallel
