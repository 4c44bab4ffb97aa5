#include "estimator/execute/life_script.h"

namespace plimsoll::estimator::inline execute {

void perform(ParameterLifeCycle& life, const LifeCall& call) {
  switch (call.kind) {
    case LifeCall::Kind::kPersist: life.persist(); break;
    case LifeCall::Kind::kKeepGradients: life.keep_gradients(); break;
    case LifeCall::Kind::kEnterForward: life.enter_forward(call.first); break;
    case LifeCall::Kind::kLeaveForward: life.leave_forward(call.first); break;
    case LifeCall::Kind::kEndForward: life.end_forward(); break;
    case LifeCall::Kind::kEnterBackward: life.enter_backward(call.first, call.second); break;
    case LifeCall::Kind::kLeaveBackward: life.leave_backward(call.first); break;
    case LifeCall::Kind::kTakeGradient:
      life.take_gradient(static_cast<std::size_t>(call.first), call.second);
      break;
    case LifeCall::Kind::kEndBackward: life.end_backward(); break;
    case LifeCall::Kind::kEndAccumulation: life.end_accumulation(call.first, call.second); break;
    case LifeCall::Kind::kStep: life.step(); break;
  }
}

void LifeScript::ask(ParameterLifeCycle& life, const LifeCall& call) {
  lines_.push_back({.is_call = true, .call = call});
  perform(life, call);
}

// Compares what a life cycle does with the script.
class LifeScript::Resizing : public ParameterLedger {
 public:
  Resizing(const LifeScript& script, Ledger& ledger) : script_(script), ledger_(ledger) {}

  BlockId allocate(Part part, Bytes bytes_of_one, std::int64_t count, std::size_t parameter,
                   StreamId stream) override {
    const Line* const line = answer(false);
    if (line == nullptr) {
      return 0;
    }
    const Ledger::Block& block = ledger_.blocks()[static_cast<std::size_t>(line->block)];
    same_ =
        block.part == part && block.count == count && block.stream == stream && line->parameter == parameter;
    ledger_.resize(line->block, bytes_of_one);
    return line->block;
  }
  void release(BlockId block) override {
    const Line* const line = answer(true);
    same_ = line != nullptr && line->block == block;
  }

  bool same() const { return same_; }
  // The next line, if it is a call. Null: the script is at its end, or there was another answer.
  const LifeCall* next_call() {
    if (!same_ || at_ == script_.lines_.size() || !script_.lines_[at_].is_call) {
      same_ = same_ && at_ == script_.lines_.size();
      return nullptr;
    }
    return &script_.lines_[at_++].call;
  }

 private:
  const Line* answer(bool releases) {
    same_ = same_ && at_ < script_.lines_.size() && !script_.lines_[at_].is_call &&
            script_.lines_[at_].releases == releases;
    return same_ ? &script_.lines_[at_++] : nullptr;
  }

  const LifeScript& script_;
  Ledger& ledger_;
  std::size_t at_ = 0;
  bool same_ = true;
};

std::optional<HostMemory> LifeScript::resize(Ledger& ledger, const Replication& replication,
                                             const BudgetVector<ReplicaParameter>& parameters,
                                             const OptimizerRun& optimizer, crds::CheckpointSaving saving,
                                             Budget* budget) const {
  charge(budget, lines_.size());
  Resizing answers(*this, ledger);
  ParameterLifeCycle life(answers, replication, parameters, optimizer, budget);
  while (const LifeCall* const call = answers.next_call()) {
    perform(life, *call);
  }
  if (!answers.same()) {
    return std::nullopt;
  }
  ledger.recount();
  return life.host_memory(saving);
}

}  // namespace plimsoll::estimator::execute
