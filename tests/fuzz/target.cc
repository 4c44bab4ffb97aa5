#include "tests/fuzz/target.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#include "tests/fuzz/heap_meter.h"

namespace plimsoll::testing {
namespace {

std::vector<FuzzTarget>& registry() {
  static std::vector<FuzzTarget> targets;
  return targets;
}

std::chrono::nanoseconds processor_time() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::abort();
}

}  // namespace

const std::vector<FuzzTarget>& fuzz_targets() {
  return registry();
}

RegisteredTarget::RegisteredTarget(const char* name, void (*run)(std::string_view input)) {
  std::vector<FuzzTarget>& targets = registry();
  const FuzzTarget target{name, run};
  targets.insert(std::upper_bound(targets.begin(), targets.end(), target,
                                  [](const FuzzTarget& a, const FuzzTarget& b) {
                                    return std::string_view(a.name) < std::string_view(b.name);
                                  }),
                 target);
}

void execute(const FuzzTarget& target, std::string_view input, const ExecutionLimits& limits) {
  const std::chrono::nanoseconds begin = processor_time();
  HeapMeter::start(limits.heap);
  target.run(input);
  HeapMeter::stop();
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(processor_time() - begin);
  if (took > limits.processor_time) {
    fail(std::string(target.name) + ": an input of " + std::to_string(input.size()) + " bytes took " +
         std::to_string(took.count()) + " ms of processor time, and may take " +
         std::to_string(limits.processor_time.count()));
  }
}

void require(bool holds, std::string_view what) {
  if (!holds) {
    fail("does not hold: " + std::string(what));
  }
}

}  // namespace plimsoll::testing
