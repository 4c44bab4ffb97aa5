// LifeScript: what an iteration asked of its parameters' life cycle, in order, and the blocks that it allocated and
// freed in answer. Where trainers gather what they share, iterations of different numbers of them differ in nothing but
// the sizes of those blocks (parallel/life_cycle.h). So the ledger of another number is that of the first with other
// sizes, if its life cycle answers the same questions with the same blocks:
//
//   LifeScript script;
//   script.ask(life, {.kind = LifeCall::Kind::kEnterForward, .first = unit});  // calls life.enter_forward(unit)
//   ...
//   Ledger other = ledger;
//   if (script.resize(other, replication, parameters, optimizer, saving, budget)) use(other);
//
// Not thread-safe; a script that is complete may be read by several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/budget.h"
#include "estimator/ledger/ledger.h"
#include "estimator/parallel/life_cycle.h"

namespace plimsoll::estimator::inline execute {

struct LifeCall {
  enum class Kind : std::uint8_t {
    kPersist,
    kKeepGradients,
    kEnterForward,  // of the unit `first`
    kLeaveForward,  // the same
    kEndForward,
    kEnterBackward,  // of the unit `first`; `second` follows
    kLeaveBackward,  // of the unit `first`
    kTakeGradient,   // of the parameter `first`, the block `second`
    kEndBackward,
    kEndAccumulation,  // of the units from `first` to `second`
    kStep,
  };
  Kind kind = Kind::kPersist;
  std::int32_t first = 0;
  std::int32_t second = 0;
};

void perform(ParameterLifeCycle& life, const LifeCall& call);

class LifeScript {
 public:
  explicit LifeScript(Budget* budget = nullptr) : lines_(budget) {}

  // Calls the life cycle. Its ledger tells the script what it does meanwhile.
  void ask(ParameterLifeCycle& life, const LifeCall& call);
  void allocated(BlockId block, std::size_t parameter) {
    lines_.push_back({.call = {}, .block = block, .parameter = parameter});
  }
  void released(BlockId block) { lines_.push_back({.releases = true, .call = {}, .block = block}); }

  // Gives the ledger's blocks the sizes that they have with this replication. Nothing if its life cycle does anything
  // else than that of the script; the ledger is then of no use. Else what it keeps in the host's memory.
  std::optional<HostMemory> resize(Ledger& ledger, const Replication& replication,
                                   const BudgetVector<ReplicaParameter>& parameters,
                                   const OptimizerRun& optimizer, crds::CheckpointSaving saving,
                                   Budget* budget) const;

 private:
  struct Line {
    bool is_call = false;
    bool releases = false;
    LifeCall call;
    BlockId block = -1;
    std::size_t parameter = 0;  // of what is allocated
  };
  class Resizing;

  BudgetVector<Line> lines_;
};

}  // namespace plimsoll::estimator::execute
