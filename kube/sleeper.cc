#include "kube/sleeper.h"

#include <condition_variable>
#include <mutex>

namespace plimsoll::kube {
namespace {

class SystemSleeper final : public Sleeper {
 public:
  bool sleep_for(std::chrono::milliseconds duration, const std::stop_token& stop) override {
    std::mutex mutex;
    std::condition_variable_any never;
    std::unique_lock lock(mutex);
    never.wait_for(lock, stop, duration, [] { return false; });
    return !stop.stop_requested();
  }
};

}  // namespace

Sleeper& system_sleeper() {
  static SystemSleeper sleeper;
  return sleeper;
}

}  // namespace plimsoll::kube
