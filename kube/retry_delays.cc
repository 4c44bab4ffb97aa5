#include "kube/retry_delays.h"

#include <algorithm>

#include "kube/object_key.h"

namespace plimsoll::kube {

TokenBucket::TokenBucket(double a_second, double burst, const Clock& clock)
    : rate_(a_second), burst_(burst), tokens_(burst), clock_(&clock), last_(clock.steady_now()) {}

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
  Flow& flow =
      flows_.try_emplace(namespace_of(key), Flow{TokenBucket(options_.a_second, options_.burst, *clock_)})
          .first->second;
  const auto [known, is_new] = failures_.emplace(key, 0);
  flow.failing += is_new ? 1 : 0;
  int& failed = known->second;
  std::chrono::nanoseconds own = std::min(options_.initial, options_.cap);
  for (int i = 0; i < failed && own < options_.cap; ++i) {
    own = own > options_.cap / 2 ? options_.cap : own * 2;
  }
  ++failed;
  return options_.a_second > 0 ? std::max(own, flow.bucket.reserve()) : own;
}

void RetryDelays::forget(const std::string& key) {
  if (failures_.erase(key) == 0) {
    return;
  }
  if (const auto flow = flows_.find(namespace_of(key)); --flow->second.failing == 0) {
    flows_.erase(flow);
  }
}

int RetryDelays::failures(const std::string& key) const {
  const auto found = failures_.find(key);
  return found == failures_.end() ? 0 : found->second;
}

}  // namespace plimsoll::kube
