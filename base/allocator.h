// How a server's malloc behaves.
//
//   use_server_allocator();  // first thing in a server's main, before any thread
//
// One admission of a large model allocates a few blocks of megabytes and frees them. By default glibc maps each
// such block from the kernel and unmaps it again, so that every page is cleared and faulted in anew: a fifth of
// the time of a decision. After the call, blocks below 32 MiB come from the heap, which keeps up to 64 MiB that
// are free. The number of heaps is at most `heaps`, because each keeps what a burst has left in it. Affects
// the whole process; calling it twice does no harm. Where malloc is not glibc's it does nothing.
//
// return_free_memory() returns to the system what the heaps keep. It takes milliseconds: call it when idle.
#pragma once

#include "base/bytes.h"

namespace plimsoll {

void use_server_allocator(int heaps = 2);

void return_free_memory();

// The resident set size of this process; zero where it is unknown.
Bytes resident_memory();

}  // namespace plimsoll
