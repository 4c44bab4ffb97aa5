// Budget: what one decision may spend: time until a deadline, units of work and bytes of memory; and a stop
// token that cancels it.
//
//   Budget budget({.deadline = deadline, .stop = stop});
//   Result<Plan> plan = budget.run([&]() -> Result<Plan> { return search(request, budget); });
//   ...
//   const BudgetCause cause(&budget, {"spec.model.dlrm.tables", size});  // in search(): what makes it long
//   for (const Table& table : tables) {
//     charge(&budget, 1);
//     ...
//   }
//
// Whoever starts a decision owns its budget and passes a pointer down; null means no limit. `charge` and
// what takes memory throw BudgetExceeded when nothing is left, which only `run` catches, so that a
// computation of any depth ends at once and its destructors free what it holds. It is the only exception that
// Plimsoll throws. The error names the innermost BudgetCause.
//
// A BudgetVector takes memory from the budget with each allocation that it makes; a BudgetBytes takes it for
// something else.
//
// One thread computes with a budget; a stop may be requested from any.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <new>
#include <stop_token>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace plimsoll {

class BudgetExceeded final : public std::exception {
 public:
  explicit BudgetExceeded(Error error) : error_(std::move(error)) {}
  const char* what() const noexcept override { return error_.message.c_str(); }
  const Error& error() const { return error_; }

 private:
  Error error_;
};

class Budget {
 public:
  using Time = std::chrono::steady_clock::time_point;

  struct Limits {
    Time deadline = Time::max();
    std::stop_token stop = {};
    std::uint64_t work =
        std::numeric_limits<std::uint64_t>::max();  // in units of about a microsecond at most
    Bytes memory = Bytes::max();
  };

  // The user's value that makes a loop long or an object large.
  struct Cause {
    const char* field = "the job";  // its path, a literal: "spec.training.gradientAccumulation"
    std::int64_t value = 0;         // 0: no single number
  };

  Budget() : Budget(Limits()) {}  // no limit
  explicit Budget(Limits limits);
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  // Call it before the work, which must end soon: the clock is read once in kCheckInterval units.
  // Throws BudgetExceeded: kTimeout after the deadline, kCancelled after the stop, kTooLarge beyond the work.
  void charge(std::uint64_t units) {
    if (units < until_check_) {
      until_check_ -= units;
    } else {
      check(units);
    }
  }

  // Whether the deadline has passed or the stop has come.
  bool expired() const;
  const Limits& limits() const { return limits_; }
  std::uint64_t work_done() const { return charged_ - until_check_; }
  Bytes most_held() const { return most_held_; }

  // Calls `compute`, which returns a Result; exceptions for lack of budget or memory become the error.
  template <class Compute>
  auto run(Compute&& compute) -> decltype(compute()) {
    try {
      return std::forward<Compute>(compute)();
    } catch (const BudgetExceeded& exceeded) {
      return exceeded.error();
    } catch (const std::bad_alloc&) {
      return Error(ErrorCode::kTooLarge, "the process has no memory left for this decision");
    }
  }

 private:
  friend class BudgetBytes;
  friend class BudgetCause;
  template <class T>
  friend class BudgetAllocator;
  static constexpr std::uint64_t kCheckInterval = 4096;

  void check(std::uint64_t units);
  void take(Bytes bytes);
  void allow_until_next_check(std::uint64_t done);

  const Limits limits_;
  std::uint64_t charged_ = 0;      // of all work, up to the next look at the clock
  std::uint64_t until_check_ = 0;  // of these, not yet used
  Bytes held_;
  Bytes most_held_;
  Cause cause_;
};

inline void charge(Budget* budget, std::uint64_t units) {
  if (budget != nullptr) {
    budget->charge(units);
  }
}

// While it lives, the error of an exceeded budget names this value.
class BudgetCause {
 public:
  BudgetCause(Budget* budget, const Budget::Cause& cause) : budget_(budget) {
    if (budget_ != nullptr) {
      outer_ = std::exchange(budget_->cause_, cause);
    }
  }
  ~BudgetCause() {
    if (budget_ != nullptr) {
      budget_->cause_ = outer_;
    }
  }
  BudgetCause(const BudgetCause&) = delete;
  BudgetCause& operator=(const BudgetCause&) = delete;

 private:
  Budget* const budget_;
  Budget::Cause outer_;
};

// Memory that its owner is about to allocate, taken from the budget until this is destroyed. The budget must
// outlive it. `resize` throws BudgetExceeded, kTooLarge, and then keeps its size.
class BudgetBytes {
 public:
  explicit BudgetBytes(Budget* budget, Bytes bytes = {}) : budget_(budget) { resize(bytes); }
  ~BudgetBytes() {
    if (budget_ != nullptr) {
      budget_->held_ -= bytes_;
    }
  }
  BudgetBytes(BudgetBytes&& other) noexcept
      : budget_(other.budget_), bytes_(std::exchange(other.bytes_, Bytes{})) {}
  BudgetBytes& operator=(BudgetBytes&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  void resize(Bytes bytes) {
    if (budget_ != nullptr && bytes > bytes_) {
      budget_->take(bytes - bytes_);
    } else if (budget_ != nullptr) {
      budget_->held_ -= bytes_ - bytes;
    }
    bytes_ = bytes;
  }
  Budget* budget() const { return budget_; }
  Bytes bytes() const { return bytes_; }

 private:
  Budget* budget_;
  Bytes bytes_;
};

// Takes what it allocates from a budget, which must outlive it, and charges the time to write it. Null: no
// limit.
template <class T>
class BudgetAllocator {
 public:
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  BudgetAllocator(Budget* budget = nullptr) noexcept : budget_(budget) {}
  template <class U>
  BudgetAllocator(const BudgetAllocator<U>& other) noexcept : budget_(other.budget()) {}

  T* allocate(std::size_t count) {
    if (budget_ == nullptr) {
      return std::allocator<T>().allocate(count);
    }
    const Bytes bytes = bytes_of(count);
    budget_->charge(static_cast<std::uint64_t>(bytes.count / kBytesPerUnit));
    budget_->take(bytes);
    try {
      return std::allocator<T>().allocate(count);
    } catch (...) {
      budget_->held_ -= bytes;
      throw;
    }
  }
  void deallocate(T* memory, std::size_t count) noexcept {
    std::allocator<T>().deallocate(memory, count);
    if (budget_ != nullptr) {
      budget_->held_ -= bytes_of(count);
    }
  }

  Budget* budget() const { return budget_; }
  friend bool operator==(const BudgetAllocator& a, const BudgetAllocator& b) {
    return a.budget_ == b.budget_;
  }

 private:
  // A page of 4 KiB is mapped and filled within some 4 us.
  static constexpr std::int64_t kBytesPerUnit = 1024;

  static Bytes bytes_of(std::size_t count) {
    return Bytes{static_cast<std::int64_t>(sizeof(T))} * static_cast<std::int64_t>(count);
  }

  Budget* budget_;
};

template <class T>
using BudgetVector = std::vector<T, BudgetAllocator<T>>;

}  // namespace plimsoll
