#include "base/mutex.h"

namespace plimsoll::gates {

class Counter {
 public:
  void add() { ++count_; }

 private:
  Mutex mutex_;
  int count_ PLIMSOLL_GUARDED_BY(mutex_) = 0;
};

void add(Counter& counter) {
  counter.add();
}

}  // namespace plimsoll::gates
