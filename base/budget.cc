#include "base/budget.h"

#include <algorithm>
#include <string>

namespace plimsoll {
namespace {

std::string text_of(const Budget::Cause& cause) {
  return cause.value == 0 ? cause.field : std::string(cause.field) + " = " + std::to_string(cause.value);
}

}  // namespace

Budget::Budget(Limits limits) : limits_(std::move(limits)) {}  // the first charge looks at the clock

// `done` units have been used: the next look at the clock comes after kCheckInterval more, or where the work
// ends.
void Budget::allow_until_next_check(std::uint64_t done) {
  const std::uint64_t left = limits_.work - std::min(done, limits_.work);
  until_check_ = std::min(left, kCheckInterval) + 1;
  charged_ = done + until_check_;
}

bool Budget::expired() const {
  return limits_.stop.stop_requested() ||
         (limits_.deadline != Time::max() && std::chrono::steady_clock::now() >= limits_.deadline);
}

void Budget::check(std::uint64_t units) {
  const std::uint64_t done = work_done();
  if (limits_.stop.stop_requested()) {
    throw BudgetExceeded(Error(ErrorCode::kCancelled, "the decision was cancelled: the process stops"));
  }
  if (expired()) {
    throw BudgetExceeded(
        Error(ErrorCode::kTimeout, "the deadline of the decision passed, with " + text_of(cause_)));
  }
  if (units > limits_.work - std::min(done, limits_.work)) {
    throw BudgetExceeded(Error(ErrorCode::kTooLarge, text_of(cause_) + " is too large: a decision may take " +
                                                         std::to_string(limits_.work) + " units of work"));
  }
  allow_until_next_check(done + units);
}

void Budget::take(Bytes bytes) {
  if (bytes > limits_.memory - held_) {
    throw BudgetExceeded(Error(ErrorCode::kTooLarge, text_of(cause_) + " is too large: a decision may use " +
                                                         to_string(limits_.memory) + " of memory"));
  }
  held_ += bytes;
  most_held_ = std::max(most_held_, held_);
}

}  // namespace plimsoll
