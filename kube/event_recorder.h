// EventRecorder: tells users what happened to an object, as Kubernetes events, without ever making the caller
// wait or fail.
//
//   EventRecorder events(client, {.component = "plimsoll-operator", .instance = pod});
//   events.start();
//   events.record(reference_to(job), EventType::kWarning, "OOMDetected", "rank 3 ran out of GPU memory");
//   events.stop(5s);                          // writes what is left, for so long at most
//
// Events wait in a bounded queue for a thread that correlates them (kube/event_correlator.h) and writes them;
// when the queue is full, new ones are dropped. Whatever is not written is counted (`on_loss`). A server that
// cannot be reached is tried again up to twelve times, 10 s apart, as client-go does; what it refuses is
// dropped. Thread-safe; `start` and `stop` once, from one thread. The client must outlive the recorder.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <random>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"
#include "kube/client.h"
#include "kube/event_correlator.h"
#include "kube/sleeper.h"

namespace plimsoll::kube {

class EventRecorder {
 public:
  enum class Loss {
    kQueueFull,
    kTooMany,     // of one object; the spam filter's
    kNotWritten,  // refused, given up, or left when it was stopped
  };

  struct Options {
    std::string component;
    std::string instance;
    std::size_t queue_limit = 1000;  // client-go's
    int tries = 12;
    std::chrono::milliseconds between_tries{10'000};
    std::function<void(Loss)> on_loss = {};  // from any thread; quick, and no call of the recorder
    std::uint64_t seed = std::random_device{}();
    const Clock* clock = &system_clock();
    Sleeper* sleeper = &system_sleeper();
  };

  EventRecorder(Client& client, Options options);
  ~EventRecorder();
  EventRecorder(const EventRecorder&) = delete;
  EventRecorder& operator=(const EventRecorder&) = delete;

  void record(const ObjectReference& about, EventType type, std::string reason, std::string message);

  void start();
  void stop(std::chrono::milliseconds patience);

  std::uint64_t dropped() const;  // that found the queue full

 private:
  void run(const std::stop_token& stop);
  bool write(const CorrelatedEvent& event, const std::stop_token& stop);
  Result<Json> send(const CorrelatedEvent& event, const std::stop_token& stop);

  void lose(Loss why);

  Client& client_;
  const Options options_;
  mutable Mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Occurrence> queue_ PLIMSOLL_GUARDED_BY(mutex_);
  bool busy_ PLIMSOLL_GUARDED_BY(mutex_) = false;    // with one that is no longer in the queue
  bool ending_ PLIMSOLL_GUARDED_BY(mutex_) = false;  // nothing more is taken
  std::uint64_t dropped_ PLIMSOLL_GUARDED_BY(mutex_) = 0;

  EventCorrelator correlator_;  // the thread's
  std::mt19937_64 random_;      // likewise
  std::jthread thread_;
};

}  // namespace plimsoll::kube
