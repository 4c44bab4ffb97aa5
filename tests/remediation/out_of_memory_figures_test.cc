#include "remediation/out_of_memory_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/remediation/endings.h"

namespace plimsoll::remediation {
namespace {

struct Figures {
  const char* text;
  std::optional<double> needed;  // GiB
  std::optional<double> capacity;
  std::optional<double> fragmentation;
};

TEST(OutOfMemoryFigures, ReadsTheFiguresOfEachSpelling) {
  const std::vector<Figures> all = {
      {kOutOfMemory, 79.90, 79.15, 5.25},
      {"CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; 15.78 GiB total capacity; 14.20 GiB already "
       "allocated; 312.75 MiB free; 14.38 GiB reserved in total by PyTorch)",
       14.88, 15.78, 0.18},
      // Who holds what is not said of this process: all that is not free.
      {"CUDA out of memory. Tried to allocate 1.00 GiB. GPU 1 has a total capacty of 40.00 GiB of which 0.50 "
       "GiB "
       "is free. Process 22 has 39.00 GiB memory in use. Of the allocated memory 37.10 GiB is allocated by "
       "PyTorch, and 1.25 GiB is reserved by PyTorch but unallocated.",
       40.50, 40.00, 1.25},
      {"CUDA out of memory. Tried to allocate 512 bytes.", {}, {}, {}},
      {"RuntimeError: CUDA error: out of memory", {}, {}, {}},
      {"CUDA out of memory. Tried to allocate nan GiB. GPU 0 has a total capacity of -1 GiB of which",
       {},
       {},
       {}},
      // No size that a card could have had to do with is taken for one.
      {"CUDA out of memory. Tried to allocate 1e308 GiB. this process has 1e308 GiB memory in use",
       {},
       {},
       {}},
      {"CUDA out of memory. Tried to allocate more than 1EB memory.", {}, {}, {}},
      {"CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 8.00 GiB of which 0 "
       "bytes "
       "is free. Of the allocated memory 14.51 GiB is allocated by PyTorch, and 15.90 MiB is reserved by "
       "PyTorch but unallocated.",
       8.0195, 8.00, 0.01553},
      // A private pool of CUDA graphs, a share of the card that the process may have.
      {"CUDA out of memory. Tried to allocate 1.50 GiB. GPU 3 has a total capacity of 79.11 GiB of which "
       "12.00 "
       "GiB is free. Including non-PyTorch memory, this process has 67.11 GiB memory in use. 63.29 GiB "
       "allowed; Of the allocated memory 60.00 GiB is allocated by PyTorch, with 54.00 MiB allocated in "
       "private pools (e.g., CUDA Graphs), and 2.25 GiB is reserved by PyTorch but unallocated.",
       68.61, 79.11, 2.25},
      // PyTorch 1.3 and before it.
      {"CUDA out of memory. Tried to allocate 256.00 MiB (GPU 0; 10.91 GiB total capacity; 9.50 GiB already "
       "allocated; 3.25 MiB free; 512.00 MiB cached)",
       10.25, 10.91, 0.50},
  };
  for (const Figures& figures : all) {
    const crds::OutOfMemoryFigures found = parse_out_of_memory_figures(figures.text);
    const auto expect = [&](const std::optional<Bytes>& is, const std::optional<double>& wanted) {
      ASSERT_EQ(is.has_value(), wanted.has_value()) << figures.text;
      if (is) {
        EXPECT_NEAR(static_cast<double>(is->count) / 0x1p30, *wanted, 0.001) << figures.text;
      }
    };
    expect(found.needed, figures.needed);
    expect(found.capacity, figures.capacity);
    expect(found.fragmentation, figures.fragmentation);
  }
}

TEST(OutOfMemoryFigures, DoesNotMixTwoRanksFigures) {
  const std::string two =
      "CUDA out of memory. Tried to allocate 1.00 GiB.\nCUDA out of memory. Tried to allocate 7.00 GiB. GPU "
      "0 has a "
      "total capacity of 10.00 GiB of which 1.00 GiB is free.";
  EXPECT_FALSE(parse_out_of_memory_figures(two).capacity.has_value());
}

}  // namespace
}  // namespace plimsoll::remediation
