#include "tests/fake_apiserver/faults.h"

namespace plimsoll::testing::fake {

void FaultInjector::add(Fault fault) {
  Armed armed;
  armed.verb = std::regex(fault.verb);
  armed.resource = std::regex(fault.resource);
  armed.name = std::regex(fault.name);
  armed.fault = std::move(fault);
  const std::lock_guard lock(mutex_);
  armed_.push_back(std::move(armed));
}

void FaultInjector::clear() {
  const std::lock_guard lock(mutex_);
  armed_.clear();
}

std::optional<Fault> FaultInjector::take(const std::string& verb, const std::string& resource,
                                         const std::string& name) {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < armed_.size(); ++i) {
    Armed& armed = armed_[i];
    if (!std::regex_match(verb, armed.verb) || !std::regex_match(resource, armed.resource) ||
        !std::regex_match(name, armed.name)) {
      continue;
    }
    const Fault fault = armed.fault;
    if (armed.fault.count > 0 && --armed.fault.count == 0) {
      armed_.erase(armed_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return fault;
  }
  return std::nullopt;
}

}  // namespace plimsoll::testing::fake
