// A fuzz target: a function that takes any bytes and must come back, without a crash, within the limits of
// one execution.
//
//   FUZZ_TARGET(quantity) {
//     (void)parse_quantity(input);                       // std::string_view input
//     require(parse_quantity("1").ok(), "1 is a quantity");
//   }
//
// One file in targets/ each. With clang (preset `fuzz`) each is a libFuzzer program of that name; the unit
// test fuzz_test holds all of them and gives them the files of corpus/<name>: the seeds, and what was found.
// One thread.
#pragma once

#include <chrono>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace plimsoll::testing {

struct FuzzTarget {
  const char* name;
  void (*run)(std::string_view input);
};

// Those that are linked, by name.
const std::vector<FuzzTarget>& fuzz_targets();

struct ExecutionLimits {
  Bytes heap = 256_MiB;  // at any time, beyond what was allocated before
  // Of the thread's processor time: on a busy machine wall time says nothing. An execution that never ends is
  // libFuzzer's to end (-timeout).
  std::chrono::milliseconds processor_time{1000};
};

// Runs the target; aborts the process with a line on standard error when it goes beyond the limits. An
// exception that the target lets out ends the process, too.
void execute(const FuzzTarget& target, std::string_view input, const ExecutionLimits& limits = {});

// Ends the process as a failed assertion does, in every build, unless `holds`.
void require(bool holds, std::string_view what);

// For FUZZ_TARGET.
struct RegisteredTarget {
  RegisteredTarget(const char* name, void (*run)(std::string_view input));
};

}  // namespace plimsoll::testing

// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): it defines a function and registers it
#define FUZZ_TARGET(NAME)                                                          \
  static void fuzz_##NAME(std::string_view input);                                 \
  static const plimsoll::testing::RegisteredTarget registered(#NAME, fuzz_##NAME); \
  static void fuzz_##NAME([[maybe_unused]] std::string_view input)
