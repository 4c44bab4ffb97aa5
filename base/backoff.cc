#include "base/backoff.h"

namespace plimsoll {
namespace {

std::string group_of(const std::string& key) {
  const std::size_t slash = key.find('/');
  return slash == std::string::npos ? std::string() : key.substr(0, slash);
}

}  // namespace

std::chrono::nanoseconds exponential_delay(std::chrono::nanoseconds initial, std::chrono::nanoseconds cap,
                                           std::int64_t failures) {
  std::chrono::nanoseconds delay = std::min(initial, cap);
  for (; failures > 0 && delay < cap && delay.count() > 0; --failures) {
    delay = delay > cap / 2 ? cap : delay * 2;
  }
  return delay;
}

std::chrono::milliseconds Backoff::next() {
  const auto delay = std::chrono::duration_cast<std::chrono::milliseconds>(
      exponential_delay(options_.initial, options_.cap, failures_++));
  return with_jitter(delay, options_.jitter, std::uniform_real_distribution<double>()(random_));
}

TokenBucket::TokenBucket(double per_second, double burst, const Clock& clock)
    : rate_(per_second), burst_(burst), tokens_(burst), clock_(&clock), last_(clock.steady_now()) {}

void TokenBucket::refill() {
  const Clock::SteadyTime now = clock_->steady_now();
  const std::chrono::duration<double> passed = std::max(now - last_, Clock::SteadyTime::duration::zero());
  tokens_ = std::min(burst_, tokens_ + passed.count() * rate_);
  last_ = now;
}

std::chrono::nanoseconds TokenBucket::reserve() {
  refill();
  tokens_ -= 1;
  const std::chrono::duration<double> wait(tokens_ < 0 ? -tokens_ / rate_ : 0);
  return std::chrono::duration_cast<std::chrono::nanoseconds>(wait);
}

bool TokenBucket::try_take() {
  refill();
  if (tokens_ < 1) {
    return false;
  }
  tokens_ -= 1;
  return true;
}

RetryDelays::RetryDelays(Options options, const Clock& clock) : options_(options), clock_(&clock) {}

std::chrono::nanoseconds RetryDelays::next(const std::string& key) {
  Group& group =
      groups_.try_emplace(group_of(key), Group{TokenBucket(options_.per_second, options_.burst, *clock_)})
          .first->second;
  const auto [known, is_new] = failures_.emplace(key, 0);
  group.failing += is_new ? 1 : 0;
  const std::chrono::nanoseconds own = exponential_delay(options_.initial, options_.cap, known->second++);
  return options_.per_second > 0 ? std::max(own, group.bucket.reserve()) : own;
}

void RetryDelays::forget(const std::string& key) {
  if (failures_.erase(key) == 0) {
    return;
  }
  if (const auto group = groups_.find(group_of(key)); --group->second.failing == 0) {
    groups_.erase(group);
  }
}

int RetryDelays::failures(const std::string& key) const {
  const auto found = failures_.find(key);
  return found == failures_.end() ? 0 : found->second;
}

}  // namespace plimsoll
