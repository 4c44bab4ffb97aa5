// ParameterLifeCycle: what becomes of parameters, gradients and optimizer state while an iteration runs, when
// several trainers hold replicas of a model: DDP's buckets, ZeRO's shards, FSDP's gathering and scattering.
// Whoever executes the iteration (a lowered spec or a recorded trace) tells it what happens, in order; it
// allocates.
//
//   ParameterLifeCycle parameters(ledger, replication, held, optimizer);
//   parameters.persist();
//   parameters.enter_forward(0); ... parameters.leave_forward(0); ... parameters.end_forward();
//   parameters.enter_backward(0, -1); parameters.take_gradient(3, block); parameters.leave_backward(0);
//   parameters.end_backward();
//   parameters.step();
//
// A unit is what FSDP wraps: a layer of a transformer, a block. Parameters outside all units are the root's
// (kRootUnit), as FSDP's outermost module. Not thread-safe; one iteration owns one.
//
// Sources: torch/nn/parallel/distributed.py and csrc/distributed/c10d/reducer.cpp (DDP);
// torch/distributed/optim/zero_redundancy_optimizer.py; torch/distributed/fsdp/_runtime_utils.py and
// _flat_param.py (FSDP1); torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py and _fsdp_collectives.py
// (FSDP2); ZeRO: arXiv 1910.02054 and deepspeed/runtime/zero. The order of events was read off real runs
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

struct HeldParameter {
  std::int64_t elements = 0;  // of one of `count` equal ones
  std::int64_t rows = 0;      // elements over the last dimension's size
  std::int64_t columns = 0;   // elements over the last but one's; 0 for a vector
  std::int64_t first = 1;     // size of the first dimension, by which FSDP2 splits
  std::int64_t width = 4;     // bytes of an element as the model computes with it
  std::int64_t kept_width =
      4;  // ... as the optimizer updates it: 4 where ZeRO or FSDP keep an fp32 copy of half ones
  std::int64_t count = 1;
  std::int32_t unit = kRootUnit;
  bool apart = false;  // the optimizer updates it in a group of its own (TraceRunRequest::stepped_apart)

  Bytes bytes() const { return Bytes{elements} * width; }
};

// How replicas share what they all hold.
struct Replication {
  crds::ParallelStrategy strategy = crds::ParallelStrategy::kAuto;
  std::int64_t replicas = 1;
  std::int64_t rank = 0;                 // among them
  bool gradient_as_bucket_view = false;  // DDP's option
  bool reshard_after_forward = true;     // FSDP's
  bool collectives_copy = false;         // gloo stages what it gathers and scatters in a copy; NCCL does not
};

// Where blocks are accounted for.
class ParameterLedger {
 public:
  virtual ~ParameterLedger() = default;
  // `parameter`: in the list given to the life cycle; of a buffer for several, one of them.
  virtual BlockId allocate(Part part, Bytes bytes_of_one, std::int64_t count, std::size_t parameter) = 0;
  virtual void release(BlockId block) = 0;
};

class ParameterLifeCycle {
 public:
  // Beside what the ledger charges, `budget` pays for lists of parameters and of replicas.
  ParameterLifeCycle(ParameterLedger& ledger, const Replication& replication,
                     BudgetVector<HeldParameter> parameters, const OptimizerRun& optimizer,
                     Budget* budget = nullptr);

  // What lives from iteration to iteration.
  void persist();

  // What the last backward left of gradients, for a loop that keeps it until the next one; the blocks are the
  // caller's.
  std::vector<BlockId> left_gradients();

  // Around each unit's forward, once a forward pass; the root is entered before all others.
  void enter_forward(std::int32_t unit);
  void leave_forward(std::int32_t unit);
  void end_forward();

  // Around each unit's backward. `next`: the unit whose backward follows, kRootUnit when none.
  void enter_backward(std::int32_t unit, std::int32_t next);
  // A parameter's gradient of this pass is complete; the block is the life cycle's from now on.
  void take_gradient(std::size_t parameter, BlockId gradient);
  void leave_backward(std::int32_t unit);
  void end_backward();

  void step();

 private:
  struct Unit {
    explicit Unit(Budget* budget) : members(budget), gathered(budget), gradients(budget) {}

    BudgetVector<std::size_t> members;
    Bytes unpadded;  // of all members
    Bytes whole;     // ... padded to equal shards
    Bytes shard;
    BudgetVector<BlockId> gathered;  // the members as the model computes with them
    BlockId buffer = -1;             // FSDP2: what the all-gather wrote, before it is copied out
    BudgetVector<std::pair<std::size_t, BlockId>> gradients;
  };

  bool fsdp1() const;
  bool fsdp2() const;
  bool gathers() const { return fsdp1() || fsdp2(); }
  bool half_gradients() const;
  bool shards_gradients() const;
  bool shards_state() const;
  bool kept_apart(const HeldParameter& parameter) const { return parameter.kept_width != parameter.width; }
  std::int64_t shard_elements(const HeldParameter& parameter) const;
  bool owns(std::size_t parameter) const;  // ZeRO-1: this rank updates it
  void divide_by_owner();
  SteppedParameter stepped(std::size_t parameter) const;
  Unit& unit(std::int32_t id);  // made where it is new
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
  const BudgetVector<HeldParameter> parameters_;
  const OptimizerRun optimizer_;
  BudgetBytes memory_of_units_;
  std::map<std::int32_t, Unit> units_;
  BudgetVector<std::int64_t> owner_;  // by parameter: the rank that updates it
  // By parameter: what it has from earlier micro-batches; by unit's first member where gradients are sharded.
  BudgetVector<BlockId> kept_gradients_;
  BlockId last_buffer_ = -1;  // FSDP2: the gather before this one, still being copied out
  BlockId scattering_ = -1;   // FSDP2: the input of the reduce-scatter under way
};

}  // namespace plimsoll::estimator::parallel
