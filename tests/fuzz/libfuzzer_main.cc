// What libFuzzer calls, for the one target that is linked.
#include <cstddef>
#include <cstdint>

#include "base/log.h"
#include "tests/fuzz/target.h"

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  // Warnings about bad input would be most of the work.
  plimsoll::configure_log(plimsoll::LogLevel::kError, plimsoll::LogFormat::kText);
  // What a target sets up once, such as a cluster, is no part of any execution.
  plimsoll::testing::fuzz_targets().front().run("");
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  plimsoll::testing::execute(plimsoll::testing::fuzz_targets().front(),
                             {reinterpret_cast<const char*>(data), size});
  return 0;
}
