#include "kube/event_recorder.h"

#include <cassert>
#include <utility>

#include "base/log.h"

namespace plimsoll::kube {
namespace {

const Resource kEvents{.group = "", .version = "v1", .plural = "events"};

bool is_retriable(const Error& error) {
  return error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kTimeout ||
         error.code == ErrorCode::kTooManyRequests;
}

}  // namespace

EventRecorder::EventRecorder(Client& client, Options options)
    : client_(client),
      options_(std::move(options)),
      correlator_({.component = options_.component, .instance = options_.instance, .clock = options_.clock}),
      random_(options_.seed) {}

EventRecorder::~EventRecorder() {
  stop(std::chrono::milliseconds(0));
}

void EventRecorder::record(const ObjectReference& about, EventType type, std::string reason,
                           std::string message, std::map<std::string, std::string> annotations) {
  const MutexLock lock(mutex_);
  if (ending_ || queue_.size() >= options_.queue_limit) {
    options_.on_loss(Loss::kQueueFull);
    return;
  }
  queue_.push_back({.about = about,
                    .type = type,
                    .reason = std::move(reason),
                    .message = std::move(message),
                    .time = options_.clock->wall_now(),
                    .annotations = std::move(annotations)});
  changed_.notify_all();
}

void EventRecorder::start() {
  assert(!thread_.joinable());
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void EventRecorder::stop(std::chrono::milliseconds patience) {
  if (!thread_.joinable()) {
    return;
  }
  {
    MutexLock lock(mutex_);
    ending_ = true;
    changed_.wait_for(lock, patience,
                      [this]() PLIMSOLL_REQUIRES(mutex_) { return queue_.empty() && !busy_; });
  }
  thread_.request_stop();
  thread_.join();
  const MutexLock lock(mutex_);
  for (; !queue_.empty(); queue_.pop_front()) {
    options_.on_loss(Loss::kNotWritten);
  }
}

void EventRecorder::run(const std::stop_token& stop) {
  while (true) {
    Occurrence occurrence;
    {
      MutexLock lock(mutex_);
      busy_ = false;
      changed_.notify_all();
      if (!changed_.wait(lock, stop, [this]() PLIMSOLL_REQUIRES(mutex_) { return !queue_.empty(); }) ||
          stop.stop_requested()) {
        return;
      }
      occurrence = std::move(queue_.front());
      queue_.pop_front();
      busy_ = true;
    }
    const std::optional<CorrelatedEvent> event = correlator_.correlate(occurrence);
    if (!event) {
      options_.on_loss(Loss::kTooMany);
    } else if (!write(*event, stop)) {
      options_.on_loss(Loss::kNotWritten);
    }
  }
}

bool EventRecorder::write(const CorrelatedEvent& event, const std::stop_token& stop) {
  for (int i = 0; i < options_.tries; ++i) {
    if (i > 0) {
      // The first pause is random, so that many recorders do not try again at the same time.
      std::chrono::milliseconds pause = options_.between_tries;
      if (i == 1) {
        pause = std::chrono::milliseconds(
            std::uniform_int_distribution<std::int64_t>(0, options_.between_tries.count())(random_));
      }
      if (!options_.sleeper->sleep_for(pause, stop)) {
        return false;
      }
    }
    const Result<Json> stored = send(event, stop);
    if (stored) {
      correlator_.written(event.key, *stored);
      return true;
    }
    if (i > 0 && stored.error().code == ErrorCode::kAlreadyExists) {
      return true;  // an earlier try was written, only its response was lost
    }
    if (!is_retriable(stored.error())) {
      log_debug("The server rejected an event", {{"event", text_member(event.event, {"metadata", "name"})},
                                                 {"reason", to_string(stored.error())}});
      return false;
    }
  }
  log_warning("Failed to write an event", {{"event", text_member(event.event, {"metadata", "name"})}});
  return false;
}

// Increases the count of a known event; the server deletes events after an hour, then it is created again.
Result<Json> EventRecorder::send(const CorrelatedEvent& event, const std::stop_token& stop) {
  CallOptions options;
  options.stop = stop;
  const std::string namespace_name = text_member(event.event, {"metadata", "namespace"});
  if (event.is_known) {
    Result<Json> patched =
        client_.patch(kEvents, namespace_name, text_member(event.event, {"metadata", "name"}),
                      PatchType::kMerge, event.patch, {}, options);
    if (patched || patched.error().code != ErrorCode::kNotFound) {
      return patched;
    }
  }
  return client_.create(kEvents, namespace_name, event.event, options);
}

}  // namespace plimsoll::kube
