// What one answer of a command may take: the time of --timeout, and memory that fits a laptop. A server's decisions have far less.
//
//   AnswerBudget budget(read_timeout(options));
//   request.budget = budget.get();
//   Result<estimator::Estimate> estimate = budget.run([&] { return estimator::estimate_memory(request); });
//
// One thread.
#pragma once

#include <chrono>
#include <type_traits>
#include <utility>

#include "base/budget.h"
#include "base/result.h"
#include "cli/options.h"

namespace plimsoll::cli {

// The largest models of examples/ take a second.
inline constexpr std::chrono::seconds kDefaultTimeout{60};

void add_timeout_option(po::options_description& options);
// A duration as kubectl takes them (base/duration.h), from a second to a day.
std::chrono::milliseconds read_timeout(OptionReader& options);

class AnswerBudget {
 public:
  explicit AnswerBudget(std::chrono::milliseconds timeout)
      : budget_({.deadline = std::chrono::steady_clock::now() + timeout, .memory = 4_GiB}) {}

  Budget* get() { return &budget_; }

  // As Budget::run(); where time is up, the error says how to have more.
  template <class Compute>
  std::invoke_result_t<Compute> run(Compute compute) {
    std::invoke_result_t<Compute> result = budget_.run(std::move(compute));
    if (!result && result.error().code == ErrorCode::kTimeout) {
      Error error = result.error();
      error.message += "; --timeout gives more time";
      return error;
    }
    return result;
  }

 private:
  Budget budget_;
};

}  // namespace plimsoll::cli
