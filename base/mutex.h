// Mutex and MutexLock: std::mutex with annotations, so that clang proves at compile time what a lock guards
// (-Wthread-safety, scripts/gate/tidy). Without clang they are std::mutex and a lock.
//
//   class Counter {
//    public:
//     void wait_until_empty() {
//       MutexLock lock(mutex_);
//       changed_.wait(lock, [this]() PLIMSOLL_REQUIRES(mutex_) { return count_ == 0; });
//     }
//
//    private:
//     Mutex mutex_;
//     std::condition_variable_any changed_;
//     int count_ PLIMSOLL_GUARDED_BY(mutex_) = 0;
//   };
//
// As std::mutex and std::unique_lock; a MutexLock is its thread's.
#pragma once

#include <mutex>

#ifdef __clang__
#define PLIMSOLL_THREAD_ANNOTATION(annotation) __attribute__((annotation))
#else
#define PLIMSOLL_THREAD_ANNOTATION(annotation)
#endif
// Of a member: it is touched only with the mutex locked.
#define PLIMSOLL_GUARDED_BY(mutex) PLIMSOLL_THREAD_ANNOTATION(guarded_by(mutex))
// Of a function or a lambda: it is called only with the mutex locked.
#define PLIMSOLL_REQUIRES(mutex) PLIMSOLL_THREAD_ANNOTATION(requires_capability(mutex))

namespace plimsoll {

class PLIMSOLL_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  void lock() PLIMSOLL_THREAD_ANNOTATION(acquire_capability()) { mutex_.lock(); }
  void unlock() PLIMSOLL_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

class PLIMSOLL_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) PLIMSOLL_THREAD_ANNOTATION(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.lock();
  }
  ~MutexLock() PLIMSOLL_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  // For condition variables, which let the lock go while they wait.
  void lock() PLIMSOLL_THREAD_ANNOTATION(acquire_capability()) { mutex_.lock(); }
  void unlock() PLIMSOLL_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }

 private:
  Mutex& mutex_;
};

}  // namespace plimsoll
