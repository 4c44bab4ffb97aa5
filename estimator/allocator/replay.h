// replay(): the memory that PyTorch's caching allocator reserves on the GPU while a trainer runs. Its input
// is the Ledger of one simulated iteration.
//
//   ReplayResult result = replay(ledger, {.device = {.available = 11_GiB, .total = 12_GiB}});
//   result.reserved_peak;                     // torch.cuda.max_memory_reserved
//   result.out_of_memory;                     // set if 11 GiB are not enough; says where it failed
//
// Several iterations are replayed, because the first one differs: the optimizer allocates its state in the
// first step, from cached blocks that the next forward pass then lacks. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/budget.h"
#include "base/bytes.h"
#include "estimator/allocator/caching_allocator.h"
#include "estimator/ledger/ledger.h"

namespace plimsoll::estimator::inline allocator {

struct ReplayOptions {
  AllocatorSettings settings;
  CachingAllocator::Device device;
  // cuBLAS workspaces of the caller's thread and of autograd's thread. They are allocated in the first
  // forward and the first backward pass and stay allocated.
  Bytes forward_workspace;
  Bytes backward_workspace;
  bool next_batch_early = false;  // a batch arrives on the GPU before the last one is freed
  int iterations = 3;             // at most; replay stops after an iteration that reserves nothing new
  // What the loop runs after these, in order: iterations of other sizes, and validation passes, whose ledgers have no
  // backward. Each has the persistent blocks of the replayed ledger, except its inputs; its own are ignored.
  std::span<const Ledger* const> afterwards{};
  Budget* budget = nullptr;  // replay() throws its BudgetExceeded
};

struct OutOfMemory {
  int iteration = 0;      // from 0; -1: before the first
  std::size_t event = 0;  // index of the ledger's event
  BlockId block = -1;     // the block that could not be allocated; -1: a workspace
  Bytes requested;        // bytes of one copy, if the block stands for several
  Bytes allocated;        // bytes of live blocks at that moment
  Bytes reserved;
};

struct ReplayResult {
  Bytes allocated_peak;  // sum of rounded block sizes: torch.cuda.max_memory_allocated
  Bytes reserved_peak;
  Bytes reserved;             // at the end, cached blocks included
  std::int64_t segments = 0;  // at the end
  std::int64_t retries = 0;   // times that the GPU was full and the cache was emptied
  int iterations = 0;         // iterations that ran
  std::optional<OutOfMemory> out_of_memory;

  // The reserved memory that no tensor used, as a difference of the two peaks.
  Bytes fragmentation() const { return reserved_peak - allocated_peak; }
};

// Blocks allocated before the ledger's first phase stay allocated, with two exceptions: optimizer state is
// allocated at the first step, and inputs are freed and allocated again at the start of each iteration. A
// block that an iteration does not free is freed at the start of the next one (zero_grad); gradients stay while
// a validation pass runs. If a dispensable
// block cannot be allocated even after the cache was emptied, the iteration runs without it.
ReplayResult replay(const Ledger& ledger, const ReplayOptions& options);

}  // namespace plimsoll::estimator::allocator
