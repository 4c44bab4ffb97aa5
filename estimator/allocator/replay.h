// replay(): what PyTorch's caching allocator reserves on the card while a trainer runs, from the events that
// the simulation of one iteration left in its Ledger.
//
//   ReplayResult result = replay(ledger, {.device = {.available = 11_GiB, .total = 12_GiB}});
//   result.reserved_peak;                     // torch.cuda.max_memory_reserved
//   result.out_of_memory;                     // and where, when 11 GiB are not enough
//
// Several iterations run, for the first differs from the later ones: the optimizer makes its state in the
// first step, out of blocks that the next forward pass will miss. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "base/budget.h"
#include "base/bytes.h"
#include "estimator/allocator/caching_allocator.h"
#include "estimator/ledger/ledger.h"

namespace plimsoll::estimator::inline allocator {

struct ReplayOptions {
  AllocatorSettings settings;
  CachingAllocator::Device device;
  // Kept from the first forward and the first backward pass on: cuBLAS's, of the caller's thread and of
  // autograd's.
  Bytes forward_workspace;
  Bytes backward_workspace;
  bool next_batch_early = false;  // a batch arrives before the last one is freed
  int iterations = 3;             // at most; an iteration that reserves nothing new is the last
  Budget* budget = nullptr;       // whose BudgetExceeded replay() throws
};

struct OutOfMemory {
  int iteration = 0;      // from 0; -1: before the first
  std::size_t event = 0;  // of the Ledger
  BlockId block = -1;     // the block that could not be had; -1: a workspace
  Bytes requested;        // of one, where the block stands for several
  Bytes allocated;        // by live blocks at that moment
  Bytes reserved;
};

struct ReplayResult {
  Bytes allocated_peak;  // in blocks as handed out: torch.cuda.max_memory_allocated
  Bytes reserved_peak;
  Bytes reserved;             // at the end, with its cache
  std::int64_t segments = 0;  // at the end
  std::int64_t retries = 0;   // times the card was full and the cache had to be given up
  int iterations = 0;         // that ran
  std::optional<OutOfMemory> out_of_memory;

  // Reserved memory that no tensor used, at most.
  Bytes fragmentation() const { return reserved_peak - allocated_peak; }
};

// The ledger's blocks before its first phase live on, with two exceptions: optimizer state begins at the
// first step, and inputs are freed and allocated again at the start of each iteration. What an iteration does not
// release goes at the start of the next (zero_grad). A dispensable block that cannot be had, once the cache
// was given up for it, is gone without.
ReplayResult replay(const Ledger& ledger, const ReplayOptions& options);

}  // namespace plimsoll::estimator::allocator
