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
// SharedMutex is std::shared_mutex in the same way, with a ReaderLock or a WriterLock. As their std counterparts; a
// lock is its thread's.
#pragma once

#include <mutex>
#include <shared_mutex>

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
  ~MutexLock() PLIMSOLL_THREAD_ANNOTATION(release_capability()) {
    if (is_locked_) {
      mutex_.unlock();
    }
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  // Condition variables unlock it while they wait.
  void lock() PLIMSOLL_THREAD_ANNOTATION(acquire_capability()) {
    mutex_.lock();
    is_locked_ = true;
  }
  void unlock() PLIMSOLL_THREAD_ANNOTATION(release_capability()) {
    is_locked_ = false;
    mutex_.unlock();
  }

 private:
  Mutex& mutex_;
  bool is_locked_ = true;
};

class PLIMSOLL_THREAD_ANNOTATION(capability("mutex")) SharedMutex {
 private:
  friend class ReaderLock;
  friend class WriterLock;

  std::shared_mutex mutex_;
};

class PLIMSOLL_THREAD_ANNOTATION(scoped_lockable) ReaderLock {
 public:
  explicit ReaderLock(SharedMutex& mutex) PLIMSOLL_THREAD_ANNOTATION(acquire_shared_capability(mutex))
      : lock_(mutex.mutex_) {}
  ~ReaderLock() PLIMSOLL_THREAD_ANNOTATION(release_capability()) = default;

 private:
  const std::shared_lock<std::shared_mutex> lock_;
};

class PLIMSOLL_THREAD_ANNOTATION(scoped_lockable) WriterLock {
 public:
  explicit WriterLock(SharedMutex& mutex) PLIMSOLL_THREAD_ANNOTATION(acquire_capability(mutex))
      : lock_(mutex.mutex_) {}
  ~WriterLock() PLIMSOLL_THREAD_ANNOTATION(release_capability()) = default;

 private:
  const std::unique_lock<std::shared_mutex> lock_;
};

}  // namespace plimsoll
