// EventRecorder: records what happened to an object as Kubernetes events. It never makes the caller wait or
// fail.
//
//   EventRecorder events(client, {.component = "plimsoll-operator", .instance = pod});
//   events.start();
//   events.record(reference_to(job), EventType::kWarning, "OOMDetected", "rank 3 ran out of GPU memory");
//   events.stop(5s);                          // writes the queued events, for at most this long
//
// Events wait in a bounded queue for a thread that correlates them (kube/event_correlator.h) and writes them;
// when the queue is full, new ones are dropped. `on_loss` is called for each event that is not written. While
// the server cannot be reached, an event is tried up to twelve times, 10 s apart, as in client-go; an event
// that the server rejects is dropped. Thread-safe; `start` and `stop` once, from one thread. The client must
// outlive the recorder.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
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
    kTooMany,     // for one object: the spam filter dropped it
    kNotWritten,  // rejected, tried too often, or still queued when the recorder was stopped
  };

  struct Options {
    std::string component;
    std::string instance;
    std::size_t queue_limit = 1000;  // client-go's
    int tries = 12;
    std::chrono::milliseconds between_tries{10'000};
    // Called from any thread; must be quick and must not call the recorder.
    std::function<void(Loss)> on_loss = [](Loss) {};
    std::uint64_t seed = std::random_device{}();
    const Clock* clock = &system_clock();
    Sleeper* sleeper = &system_sleeper();
  };

  EventRecorder(Client& client, Options options);
  ~EventRecorder();
  EventRecorder(const EventRecorder&) = delete;
  EventRecorder& operator=(const EventRecorder&) = delete;

  void record(const ObjectReference& about, EventType type, std::string reason, std::string message,
              std::map<std::string, std::string> annotations = {});

  void start();
  void stop(std::chrono::milliseconds patience);

 private:
  void run(const std::stop_token& stop);
  bool write(const CorrelatedEvent& event, const std::stop_token& stop);
  Result<Json> send(const CorrelatedEvent& event, const std::stop_token& stop);

  Client& client_;
  const Options options_;
  mutable Mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Occurrence> queue_ PLIMSOLL_GUARDED_BY(mutex_);
  bool busy_ PLIMSOLL_GUARDED_BY(mutex_) = false;    // an event left the queue and is being written
  bool ending_ PLIMSOLL_GUARDED_BY(mutex_) = false;  // no more events are accepted

  EventCorrelator correlator_;  // of the thread
  std::mt19937_64 random_;      // of the thread
  std::jthread thread_;
};

}  // namespace plimsoll::kube
