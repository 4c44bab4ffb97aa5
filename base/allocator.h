// How a server's malloc behaves.
//
//   use_server_allocator();  // first thing in a server's main, before any thread
//
// One admission of a large model takes a few blocks of megabytes and gives them back. glibc maps each such
// block from the kernel and unmaps it again, so that every page is cleared and faulted in anew: a fifth of
// the time of a decision. Afterwards blocks below 32 MiB come from the heap, which keeps up to 64 MiB that
// are free. There are no more heaps than `heaps`, for each of them keeps what a burst has left in it. Affects
// the whole process; calling it twice does no harm. Where malloc is not glibc's it does nothing.
//
// What the heaps keep is given back by return_free_memory(), which takes milliseconds: for a quiet moment.
#pragma once

#include "base/bytes.h"

namespace plimsoll {

void use_server_allocator(int heaps = 2);

void return_free_memory();

// Of this process, in memory; zero where it cannot be told.
Bytes resident_memory();

}  // namespace plimsoll
