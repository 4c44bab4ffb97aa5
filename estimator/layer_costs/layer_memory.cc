#include "estimator/layer_costs/layer_memory.h"

#include <algorithm>

#include "estimator/execute/run_trace.h"

namespace plimsoll::estimator::inline layer_costs {
namespace {

// Adds up the blocks of a run that are there when the layer is alone.
class Alone {
 public:
  Alone(const TraceRun& run, const LayerTrace& layer, Budget* budget)
      : run_(run), layer_(layer), trace_(*layer.trace), held_(trace_.storages.size(), false) {
    charge(budget, run.ledger.events().size() + held_.size());
    for (const std::int32_t storage : layer.held) {
      if (storage >= 0) {
        held_[index(storage)] = true;
      }
    }
  }

  // Without autograd. A gradient of an earlier iteration is on the host.
  Bytes forward() { return peak(run_.ledger.events().size(), true); }
  Bytes backward() { return peak(run_.ledger.begin_of(Phase::kOptimizerStep), false); }

 private:
  using Source = TraceRun::Source;

  Bytes peak(std::size_t events, bool forward) {
    Bytes most;
    for (std::size_t i = 0; i < events; ++i) {
      const MemoryEvent& event = run_.ledger.events()[i];
      const Ledger::Block& block = run_.ledger.blocks()[index(event.block)];
      if (block.part == Part::kOptimizerState || (forward && block.part == Part::kGradients)) {
        continue;
      }
      if (event.kind == MemoryEvent::Kind::kRelease) {
        if (is_held(event.block)) {
          until_the_end_ += block.bytes;
        } else {
          live_ -= block.bytes;
        }
      } else if (event.kind == MemoryEvent::Kind::kAllocate) {
        const std::int32_t op = allocated_by(event.block);
        if (forward && layer_.loss_begin >= 0 && op >= layer_.loss_begin) {
          return most;
        }
        note_microbatch(op);
        live_ += block.bytes;
        most = std::max(most, live_);
      }
    }
    return most;
  }

  // The operator; -1: none, or what is allocated for a parameter.
  std::int32_t allocated_by(BlockId block) const {
    const TraceRun::Origin& origin = run_.origin_of(block);
    return origin.source == Source::kStorage  ? trace_.storages[index(origin.id)].allocated_at
           : origin.source == Source::kKernel ? origin.id
                                              : -1;
  }
  bool is_held(BlockId block) const {
    const TraceRun::Origin& origin = run_.origin_of(block);
    return origin.source == Source::kStorage && held_[index(origin.id)];
  }

  // When the next microbatch's forward pass begins, what the last one's variables named is gone.
  void note_microbatch(std::int32_t op) {
    if (op < 0) {
      return;
    }
    const bool backward = op >= trace_.loss_end;
    if (in_backward_ && !backward) {
      live_ -= until_the_end_;
      until_the_end_ = {};
    }
    in_backward_ = backward;
  }

  const TraceRun& run_;
  const LayerTrace& layer_;
  const Trace& trace_;
  std::vector<bool> held_;  // by storage
  Bytes live_;
  Bytes until_the_end_;  // freed by the trace, and still held
  bool in_backward_ = false;
};

}  // namespace

Result<LayerMemory> layer_memory(const LayerTrace& layer, const TraceProducer& producer,
                                 const LayerMemoryOptions& options) {
  // SGD has no state, and its step is not looked at.
  TraceRunRequest request{.batch = options.batch,
                          .optimizer = crds::Optimizer::kSGD,
                          .halve_floats = options.halve_floats,
                          .gpu_family = options.gpu_family,
                          .convolution_workspace = options.convolution_workspace,
                          .between = BetweenIterations{},
                          .lenient = options.lenient,
                          .budget = options.budget};
  const Result<TraceRun> forward = run_trace(*layer.trace, producer, request);
  if (!forward) {
    return forward.error();
  }
  request.between.reset();
  request.gradient_accumulation = 2;
  request.batch = 2 * options.batch;
  const Result<TraceRun> backward = run_trace(*layer.trace, producer, request);
  if (!backward) {
    return backward.error();
  }
  return LayerMemory{.forward = Alone(*forward, layer, options.budget).forward(),
                     .backward = Alone(*backward, layer, options.budget).backward()};
}

}  // namespace plimsoll::estimator::layer_costs
