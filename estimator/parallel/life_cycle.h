// ParameterLifeCycle: the blocks of parameters, gradients and optimizer state in an iteration, if several
// trainers hold replicas of a model: DDP's buckets, ZeRO's shards, FSDP's all-gather and reduce-scatter.
// Whoever executes the iteration reports its events in order; this class allocates and frees the blocks.
//
//   ParameterLifeCycle life(ledger, replication, parameters, optimizer);
//   life.persist();
//   life.enter_forward(0); ... life.leave_forward(0); ... life.end_forward();
//   life.enter_backward(0, -1); life.take_gradient(3, block); life.leave_backward(0);
//   life.end_backward();      // after each micro-batch
//   life.end_accumulation(0, 4);  // after the last micro-batch, for units 0 to 3
//   life.step();
//
// A unit is what FSDP wraps: a layer of a transformer, a block. Parameters outside all units belong to the
// root unit (kRootUnit), FSDP's outermost module. With FSDP2 the experts of a unit that trainers share are a unit of
// their own within it (torchtitan, models/llama4/infra/parallelize.py: apply_fsdp), which has no events. Not thread-safe; each iteration owns its object.
//
// Sources: torch/nn/parallel/distributed.py and csrc/distributed/c10d/reducer.cpp (DDP);
// torch/distributed/optim/zero_redundancy_optimizer.py; torch/distributed/fsdp/_runtime_utils.py and
// _flat_param.py (FSDP1); torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py and _fsdp_collectives.py
// (FSDP2), both in fsdp.cc; DeepSpeed's ZeRO: deepspeed.cc. The order of events was recorded in real runs (tests/accuracy/parallel).
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/budget.h"
#include "base/bytes.h"
#include "base/result.h"
#include "crds/training_job.h"
#include "estimator/ledger/ledger.h"
#include "estimator/trace/host_memory.h"
#include "estimator/trace/optimizer.h"

namespace plimsoll::estimator::inline parallel {

inline constexpr std::int32_t kRootUnit = -1;

// A parameter of a replica, or several equal ones.
struct ReplicaParameter {
  std::int64_t elements = 0;  // of one of the `count` equal parameters
  std::int64_t rows = 0;      // number of elements divided by the size of the last dimension
  std::int64_t columns = 0;   // number of elements divided by the second-last one's; 0 for a vector
  std::int64_t dimensions = 1;
  std::int64_t first = 1;            // size of the first dimension, along which FSDP2 shards
  std::int64_t width = 4;            // bytes per element in the model's computation
  std::int64_t gathered_width = 0;   // bytes per element that FSDP2 gathers; 0: width
  std::int64_t optimizer_width = 4;  // bytes per element that the optimizer updates: 4 for an fp32 copy
  std::int64_t count = 1;
  std::int32_t unit = kRootUnit;
  // Trainers that share a layer's experts: as many times fewer hold the same expert (torchtitan's mesh efsdp,
  // DeepSpeed's and Megatron-LM's expert data parallel groups).
  std::int64_t experts_over = 1;
  bool separate_step = false;  // the optimizer updates it in a separate group (see TraceRunRequest)
  // False: frozen, or without a gradient. It is gathered as the others are, and has neither gradient nor state.
  bool trained = true;

  Bytes bytes() const { return Bytes{elements} * width; }
  Bytes gathered_bytes() const { return Bytes{elements} * (gathered_width > 0 ? gathered_width : width); }
};

// How replicas are synchronized and sharded.
struct Replication {
  crds::ParallelStrategy strategy = crds::ParallelStrategy::kAuto;
  std::int64_t replicas = 1;             // trainers that hold the same part of the model
  std::int64_t replicate = 1;            // FSDP: groups of them that shard by themselves (HSDP)
  std::int64_t rank = 0;                 // of this trainer among the replicas
  bool gradient_as_bucket_view = false;  // DDP's option
  bool reshard_after_forward = true;     // FSDP's option
  bool reduces_in_half = false;          // FSDP's reduce_dtype is the computation's, not the optimizer's
  // FSDP2: micro-batches add to whole gradients, which are reduced once after the last one, and parameters
  // stay gathered until then (torch.distributed.pipelining, stage.py: backward_maybe_with_nosync).
  bool reduces_once = false;
  // FSDP2 with reduces_once: inputs of the last reduce-scatters, one a chunk, that stay until the next iteration.
  std::int64_t kept_scatters = 0;
  bool collectives_copy = false;  // collectives work on a copy: true for gloo, false for NCCL
  std::int64_t reduce_bucket_elements = crds::kReduceBucketSize;  // DeepSpeed's reduce_bucket_size
  crds::Offload offload = crds::Offload::kNone;
  std::int64_t offload_percent = 100;  // Megatron-LM: of the elements that are updated, how many on the host
  // A parameter is updated, and its gradient freed, once the gradient is complete: one optimizer a parameter
  // (torchtitan, components/optimizer.py: OptimizersInBackwardContainer).
  bool steps_in_backward = false;
  // What is gathered and scattered is as large as the parameters themselves, not padded to equal shards: no number of
  // replicas has less. How much the padding is depends on the number, and does not rise or fall with it.
  bool without_padding = false;

  bool operator==(const Replication&) const = default;
};

// `holders`: trainers that hold the same part of the model. Errors: kInvalid if parallelism.replicate does not
// divide them, or leaves FSDP1 nothing to shard over: PyTorch then makes it NO_SHARD, which does not average
// gradients among the groups (fsdp/_init_utils.py: _init_core_state).
Result<void> check_replicate(const crds::Parallelism& parallelism, std::int64_t holders);

// Errors: kInvalid if the optimizer cannot step in backward: gradients are not complete then (several
// micro-batches), or are exchanged later (replicas without FSDP), or the host steps.
Result<void> check_steps(const crds::Parallelism& parallelism, bool steps_in_backward, std::int64_t holders,
                         std::int64_t micro_batches);

// FSDP2 pads the first dimension to whole rows a trainer (_fsdp_param.py: _chunk_with_empty). A warning for a
// parameter that this makes at least twice as large, with its name and the alternatives; else empty.
std::string padding_warning(const std::string& name, const ReplicaParameter& parameter, std::int64_t shards);

// How a model is made before the first iteration (initialisation.cc).
struct Making {
  crds::Initialisation where = crds::Initialisation::kCPU;  // not kAuto
  // One trainer has the weights and sends them to the others: FSDP's sync_module_states, FSDP2's broadcast_from_rank0.
  bool is_sent = false;
  // Made on the GPU, and dropped before the model is sharded: transformers makes an output layer, which it then ties to the
  // embedding (modeling_utils.py: tie_weights).
  Bytes dropped{};
};

// Receives the blocks that the life cycle allocates and frees.
class ParameterLedger {
 public:
  virtual ~ParameterLedger() = default;
  // `parameter`: index in the life cycle's list; for a buffer of several parameters, one of them.
  virtual BlockId allocate(Part part, Bytes bytes_of_one, std::int64_t count, std::size_t parameter,
                           StreamId stream = kComputeStream) = 0;
  virtual void release(BlockId block) = 0;
};

class ParameterLifeCycle {
 public:
  // `budget` pays for the lists of parameters and of replicas, in addition to what the ledger charges.
  ParameterLifeCycle(ParameterLedger& ledger, const Replication& replication,
                     BudgetVector<ReplicaParameter> parameters, const OptimizerRun& optimizer,
                     Budget* budget = nullptr);

  // Before the first iteration (initialisation.cc): makes the model, and shards it; ZeRO-1 and -2 move it to the GPU as a whole.
  // The caller frees what remains.
  void initialise(const Making& making);

  // Allocates what stays live from iteration to iteration.
  void persist();

  // Allocates gradients that are there all the time, as zero_grad(set_to_none=False) leaves them: each
  // backward adds to them.
  void keep_gradients();

  // Allocates the gradients that the last backward left, for a loop that keeps them until the next backward.
  // The caller frees the blocks.
  std::vector<BlockId> left_gradients();

  // Called around each unit's forward, once per forward pass. The root is entered before all others.
  void enter_forward(std::int32_t unit);
  void leave_forward(std::int32_t unit);
  void end_forward();

  // Called around each unit's backward, and before all of them for a root whose own begins with the loss's. `next`: the unit
  // whose backward follows; kRootUnit if there is none.
  void enter_backward(std::int32_t unit, std::int32_t next);
  // A parameter's gradient of this pass is complete. The life cycle owns the block from now on.
  void take_gradient(std::size_t parameter, BlockId gradient);
  void leave_backward(std::int32_t unit);
  void end_backward();
  // The last micro-batch of the units [first, last) and of the root has ended.
  void end_accumulation(std::int32_t first, std::int32_t last);

  void step();

  // Saves a checkpoint of the model and its optimizer (checkpoint_saving.cc): allocates what is gathered for it, and
  // frees it again. Called after step().
  void save(crds::CheckpointSaving saving);

  // What this trainer keeps in its host's memory; of a full checkpoint that of rank 0, which writes it.
  HostMemory host_memory(crds::CheckpointSaving saving) const;

 private:
  struct Unit {
    explicit Unit(Budget* budget) : members(budget), gathered(budget), gradients(budget) {}

    BudgetVector<std::size_t> members;
    std::size_t largest = 0;  // of the members: buffers of all of them have its name
    Bytes whole;              // size of all members, padded to equal shards
    Bytes buffered;           // the same in the precision that FSDP2 gathers
    Bytes shard;
    // Of the members that are trained, whose gradients are reduced.
    std::size_t trained = 0;  // how many
    std::size_t first_trained = 0;
    Bytes trained_unpadded;
    Bytes trained_whole;  // padded to equal shards
    Bytes trained_shard;
    std::int64_t elements = 0;        // of all members
    std::int64_t elements_after = 0;  // of all units whose forward comes later
    std::size_t used_from = 0;        // ZeRO-3: the unit's part of used_, [used_from, used_to)
    std::size_t used_to = 0;
    BudgetVector<BlockId> gathered;  // the members after the all-gather
    BlockId buffer = -1;             // FSDP2: output of the all-gather, before it is copied out
    BudgetVector<std::pair<std::size_t, BlockId>> gradients;
  };

  // ZeRO-3: an all-gather ahead, of what next_use_ passed over in [from, to).
  struct Flight {
    BlockId buffer = -1;
    std::int64_t waiting = 0;  // parameters that have not been used: they keep the buffer
    std::int64_t from = 0;
    std::int64_t to = 0;
    bool copied_out = false;
  };

  bool fsdp1() const;
  bool fsdp2() const;
  bool zero2() const { return replication_.strategy == crds::ParallelStrategy::kZeRO2; }
  bool zero3() const { return replication_.strategy == crds::ParallelStrategy::kZeRO3; }
  bool deepspeed() const;
  bool gathers() const { return fsdp1() || fsdp2() || zero3(); }
  bool accumulates_whole() const { return fsdp2() && replication_.reduces_once; }
  std::int64_t shards() const { return replication_.replicas / replication_.replicate; }
  std::int64_t shards(const ReplicaParameter& parameter) const {
    return std::max<std::int64_t>(1, shards() / parameter.experts_over);
  }
  bool reshards_after_forward(const Unit& unit) const;
  bool megatron() const { return replication_.strategy == crds::ParallelStrategy::kMegatron; }
  bool shards_gradients() const;
  bool shards_state() const;
  // True if the optimizer updates a copy that is wider than the model's parameter.
  bool has_optimizer_copy(const ReplicaParameter& parameter) const {
    return parameter.optimizer_width != parameter.width;
  }
  std::int64_t shard_elements(const ReplicaParameter& parameter) const;
  bool updates(std::size_t parameter) const;  // this rank does, all of its part; ZeRO-1: whole parameters
  bool offloads_optimizer() const { return replication_.offload != crds::Offload::kNone; }
  bool offloads_parameters() const { return replication_.offload == crds::Offload::kParameters; }
  // Megatron-LM's fp32 copy stays on the GPU, and the host has one more.
  bool offloads_copy() const { return offloads_optimizer() && !megatron(); }
  void choose_steps_on_host();
  // Of the elements of a parameter and its equal ones that this trainer updates, how many on the host.
  std::int64_t elements_on_host(std::size_t parameter) const;
  // What is updated on the GPU: so many whole parameters, and the rest of one.
  struct SteppedOnGpu {
    std::int64_t whole = 0;
    std::optional<SteppedParameter> rest;
  };
  SteppedOnGpu stepped_on_gpu(std::size_t parameter) const;
  void assign_owners();
  SteppedParameter stepped(std::size_t parameter) const;
  bool gradients_in_buckets() const;
  Bytes gradient_bytes(std::size_t parameter) const;  // what remains of it after backward
  BlockId low_precision_shard(const Unit& unit);
  std::int64_t gradient_width_ratio(const Unit& unit) const;  // of the shard's to computed gradients
  std::int64_t reduced_width_ratio(const Unit& unit) const;   // of reduced to computed gradients
  Unit& unit(std::int32_t id);                                // created if it does not exist
  // Whether the parameter belongs to experts that trainers share, and FSDP2 shards apart from the rest of the unit.
  bool is_shared_expert(const ReplicaParameter& parameter) const {
    return fsdp2() && parameter.experts_over > 1;
  }
  // So are, with FSDP1, trained parameters among frozen ones: a flat parameter is trained as a whole, and peft makes each adapter
  // a unit (utils/other.py: fsdp_auto_wrap_policy). Those of a unit are one here.
  bool is_apart(const ReplicaParameter& parameter) const {
    return is_shared_expert(parameter) || (fsdp1() && has_frozen_ && parameter.trained);
  }
  // A separate group of the optimizer: the foreach functions do not mix DTensors of different meshes.
  bool steps_apart(const ReplicaParameter& parameter) const {
    return parameter.separate_step || is_shared_expert(parameter);
  }
  std::int32_t unit_of(const ReplicaParameter& parameter) const;
  void finish_unit(std::int32_t id);
  void gather(Unit& unit, bool frees_last);
  void copy_out(Unit& unit);
  void reshard(Unit& unit);
  void accumulate(Unit& unit);
  void reduce(Unit& unit);
  void persist_partitions();
  bool persists(const ReplicaParameter& parameter) const;
  void order_uses();
  std::size_t used_at(std::int64_t use) const;
  std::int64_t uses() const { return 2 * static_cast<std::int64_t>(used_.size()); }
  void fetch_forward(std::int32_t id);
  void fetch_after(std::int32_t id);
  void fetch_backward(std::int32_t id);
  void finish_fetches();
  void use(std::int64_t at);
  void prefetch();
  void land(Flight& flight);
  void drop(std::size_t from, std::size_t to);
  void open_bucket(std::size_t parameter);
  void to_bucket(std::size_t parameter, BlockId gradient);
  void reduce_bucket();
  void step_partitions();
  void stage(Bytes bytes, std::size_t parameter);
  void step(const std::vector<SteppedParameter>& updated);
  void step_now(std::size_t parameter);
  void release(BlockId& block);
  void make(std::size_t parameter, BudgetVector<BlockId>& made);
  void keep_shard(Bytes bytes_of_one, std::int64_t count, std::size_t parameter);
  void broadcast(const Unit& unit);
  void flatten(const Unit& unit, bool is_sent, BudgetVector<BlockId>& made);
  void fully_shard(const Unit& unit, bool moves, BudgetVector<BlockId>& made);
  void receive_tensors();
  void partition(crds::Initialisation where, BudgetVector<BlockId>& made);
  Bytes saved_bytes(std::size_t parameter) const;
  std::vector<Bytes> saved_state(std::size_t parameter) const;
  Bytes saved_by_rank() const;
  void save_dtensors(bool offloaded);
  void save_flat_parameters(crds::CheckpointSaving saving);
  void save_module_by_module();
  void consolidate_states();

  ParameterLedger& ledger_;
  Budget* const budget_;
  const Replication replication_;
  const BudgetVector<ReplicaParameter> parameters_;
  const bool has_frozen_;
  const OptimizerRun optimizer_;
  BudgetBytes memory_of_units_;
  std::map<std::int32_t, Unit> units_;
  BudgetVector<std::int64_t> owner_;    // by parameter: the rank that updates it
  BudgetVector<std::int64_t> on_host_;  // by parameter: elements_on_host(); empty: all or none
  // Gradients of earlier micro-batches, by parameter; if gradients are sharded, by the unit's first member.
  BudgetVector<BlockId> kept_gradients_;
  std::int32_t after_adapters_ = kRootUnit;  // FSDP1: the unit to gather once this one's adapters are done
  BlockId last_buffer_ = -1;            // FSDP2: buffer of the previous all-gather, still being copied out
  BlockId scattering_ = -1;             // FSDP2: input of the reduce-scatter in progress
  BlockId bucket_ = -1;                 // DeepSpeed: where gradients wait for their reduction
  BudgetVector<std::size_t> bucketed_;  // the parameters whose gradients are there
  std::int64_t bucketed_elements_ = 0;
  // Gradients that exceed the bucket, until their reduction.
  BudgetVector<BlockId> beside_bucket_;
  // ZeRO-3. Sharded parameters in the order in which forward uses them; backward is the reverse. The root's first one
  // comes before the units, its others after them.
  BudgetVector<std::size_t> used_;
  std::size_t used_after_units_ = 0;      // where those of the root begin
  BudgetVector<BlockId> whole_;           // by parameter: what is gathered
  BudgetVector<std::int64_t> in_flight_;  // by parameter: index of its flight; -1: none
  BudgetVector<Flight> flights_;          // of this pass
  std::int64_t next_use_ = 0;             // the coordinator's queue: uses before it are gathered or have been
  std::int64_t live_elements_ = 0;        // gathered, or on the way
};

// FSDP and ZeRO-3 gather a unit's parameters before it runs. With several shards the order of all their blocks is the
// same for any number of replicas.
bool gathers(crds::ParallelStrategy strategy);

// Bytes of the blocks that persist() allocates. Where they are sharded, more replicas never have more each, but for
// padding.
Bytes persistent_bytes(const Replication& replication, const BudgetVector<ReplicaParameter>& parameters,
                       const OptimizerRun& optimizer, Budget* budget = nullptr);

}  // namespace plimsoll::estimator::parallel
