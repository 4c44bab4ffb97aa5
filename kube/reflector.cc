#include "kube/reflector.h"

#include <cassert>
#include <unordered_set>

#include "base/catch_all.h"
#include "base/log.h"

namespace plimsoll::kube {
namespace {

// A watch that ends sooner without an event is a fault of the server, not a routine end.
constexpr std::chrono::seconds kShortestWatch{1};
// Version of a list or watch: any that the server has in memory.
constexpr const char* kAnyVersion = "0";
// After failures for this long the server may no longer have our version: etcd is compacted about as often
// (kube-apiserver's --etcd-compaction-interval).
constexpr std::chrono::minutes kVersionLifetime{5};

// The server's history went back (etcd was restored), or this replica lags: apiserver's storage/errors.go.
bool is_version_too_large(const Error& error) {
  return error.code == ErrorCode::kTimeout &&
         error.message.find("Too large resource version") != std::string::npos;
}

// Another object of the same name: the first one was deleted and recreated.
bool is_another(const JsonView& one, const JsonView& other) {
  const std::string uid = text_member(one, {"metadata", "uid"});
  const std::string other_uid = text_member(other, {"metadata", "uid"});
  return !uid.empty() && !other_uid.empty() && uid != other_uid;
}

bool is_version_unavailable(const Error& error) {
  return error.code == ErrorCode::kExpired || is_version_too_large(error);
}

// Failures of the connection or the server rather than of the watch: our version is still valid.
bool is_transient(const Error& error) {
  return error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kTimeout ||
         error.code == ErrorCode::kTooManyRequests;
}

}  // namespace

Reflector::Reflector(Client& client, Options options)
    : client_(client),
      options_(std::move(options)),
      observer_(options_.observer != nullptr ? *options_.observer : ignore_),
      store_(options_.indexers),
      backoff_(options_.backoff, options_.seed),
      random_(options_.seed),
      can_stream_(options_.stream_lists) {
  if (options_.on_change) {
    add_handler(options_.on_change);
  }
}

Reflector::~Reflector() {
  stop();
}

void Reflector::add_handler(Handler handler) {
  assert(!thread_.joinable());
  handlers_.push_back(std::move(handler));
}

void Reflector::start() {
  assert(!thread_.joinable());
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void Reflector::stop() {
  if (thread_.joinable()) {
    assert(thread_.get_id() != std::this_thread::get_id());
    thread_.request_stop();
    thread_.join();
  }
}

bool Reflector::has_synced() const {
  const MutexLock lock(mutex_);
  return synced_;
}

bool Reflector::wait_for_sync(const std::stop_token& stop) const {
  MutexLock lock(mutex_);
  return changed_.wait(lock, stop, [this]() PLIMSOLL_REQUIRES(mutex_) { return synced_; });
}

void Reflector::run(const std::stop_token& stop) {
  plan_resync();
  while (!stop.stop_requested()) {
    Result<void> ended;
    if (const std::optional<std::string> thrown = catch_all([&] { ended = list_and_watch(stop); })) {
      ended = Error(ErrorCode::kInternal, *thrown);
    }
    if (stop.stop_requested()) {
      return;
    }
    if (!ended) {
      const bool routine = ended.error().code == ErrorCode::kExpired;
      log(routine ? LogLevel::kDebug : LogLevel::kWarning, "Restarted the list and watch",
          {{"resource", options_.resource.plural}, {"reason", to_string(ended.error())}});
    }
    pause(stop);
  }
}

// Waits before the next try; the delay grows until there was no failure for `healthy_after`.
bool Reflector::pause(const std::stop_token& stop) {
  const Clock::SteadyTime now = options_.clock->steady_now();
  if (last_pause_ && now - *last_pause_ > options_.healthy_after) {
    backoff_.reset();
  }
  const bool not_stopped = options_.sleeper->sleep_for(backoff_.next(), stop);
  last_pause_ = options_.clock->steady_now();
  return not_stopped;
}

Result<void> Reflector::list_and_watch(const std::stop_token& stop) {
  bool is_listed = false;
  for (bool again = can_stream_; again && !is_listed;) {
    observer_.list_began();
    initial_.emplace();
    Result<void> ended = watch(stop);
    is_listed = !initial_.has_value();
    initial_.reset();
    if (stop.stop_requested()) {
      return {};
    }
    if (is_listed) {
      if (Result<void> good = check_end_of_watch(ended, stop); !good) {
        return good;
      }
    } else if (!ended && ended.error().code == ErrorCode::kTooManyRequests) {
      return ended;
    } else {
      again = !ended && is_version_unavailable(ended.error()) && !version_is_unavailable_;
      version_is_unavailable_ = version_is_unavailable_ || again;
      // For all other errors: a LIST shows whether the server fails or only the stream.
      log_debug("Failed to stream the list",
                {{"resource", options_.resource.plural},
                 {"reason", ended ? "it ended too early" : to_string(ended.error())}});
    }
  }
  if (!is_listed) {
    if (Result<void> listed = list(stop); !listed) {
      return listed;
    }
  }
  while (!stop.stop_requested()) {
    if (Result<void> good = check_end_of_watch(watch(stop), stop); !good) {
      return good;
    }
  }
  return {};
}

// After the end of a watch: ok when the next watch may begin where this one ended, perhaps after a pause. An
// error: list again.
Result<void> Reflector::check_end_of_watch(const Result<void>& ended, const std::stop_token& stop) {
  if (stop.stop_requested()) {
    return {};
  }
  const Clock::SteadyTime now = options_.clock->steady_now();
  if (ended) {
    if (events_ == 0 && now - watch_began_ < kShortestWatch) {
      observer_.watch_was_short();
      return Error(ErrorCode::kUnavailable, "the server ended the watch at once");
    }
    last_success_ = now;
    return {};
  }
  if (!is_transient(ended.error()) || is_version_too_large(ended.error()) ||
      now - last_success_ > kVersionLifetime) {
    return ended;
  }
  log_debug("Restarted the watch",
            {{"resource", options_.resource.plural}, {"reason", to_string(ended.error())}});
  pause(stop);
  return {};
}

Result<void> Reflector::list(const std::stop_token& stop) {
  Result<void> listed = request_list(stop);
  if (!listed && is_version_unavailable(listed.error()) && !version_is_unavailable_) {
    version_is_unavailable_ = true;
    listed = request_list(stop);
  }
  return listed;
}

Result<void> Reflector::request_list(const std::stop_token& stop) {
  ListOptions what;
  what.label_selector = options_.label_selector;
  what.field_selector = options_.field_selector;
  // The watch cache answers a list of a known version in one piece; a list without a version reads etcd, in
  // pages.
  what.resource_version = version_is_unavailable_ ? "" : resource_version_;
  what.limit = version_is_unavailable_ ? options_.page_size : 0;
  CallOptions call;
  call.timeout = options_.list_timeout;
  call.stop = stop;
  observer_.list_began();
  const Clock::SteadyTime began = options_.clock->steady_now();
  Items items;
  const Result<Json> list = client_.list_each(options_.resource, options_.namespace_name, what,
                                              {.begin = [&] { items.clear(); },
                                               .take =
                                                   [&](const JsonView& object) {
                                                     const std::string key = key_of(object);
                                                     if (SharedObject kept = keep(key, object); kept) {
                                                       items[key] = std::move(kept);
                                                     }
                                                   }},
                                              call);
  if (!list) {
    return list.error();
  }
  replace(items, text_member(*list, {"metadata", "resourceVersion"}), began);
  return {};
}

Result<void> Reflector::watch(const std::stop_token& stop) {
  WatchOptions options;
  options.label_selector = options_.label_selector;
  options.field_selector = options_.field_selector;
  options.resource_version = resource_version_;
  if (initial_) {
    options.send_initial_events = true;
    const bool is_known = !version_is_unavailable_ && resource_version_ != kAnyVersion;
    options.resource_version = is_known ? resource_version_ : "";
  }
  // A random duration, so that not all watches are renewed at the same time.
  std::uniform_int_distribution<std::int64_t> duration(options_.min_watch_time.count(),
                                                       2 * options_.min_watch_time.count());
  options.server_timeout = std::chrono::seconds(duration(random_));
  options.idle_timeout = options_.idle_timeout;
  events_ = 0;
  watch_end_ = std::stop_source();
  const std::stop_callback forward(stop, [this] { watch_end_.request_stop(); });
  watch_began_ = options_.clock->steady_now();
  observer_.watch_began();
  Result<void> ended = client_.watch(
      options_.resource, options_.namespace_name, options,
      [this](const WatchEvent& event) { initial_ ? apply_initial(event) : apply(event); },
      watch_end_.get_token());
  observer_.watched(options_.clock->steady_now() - watch_began_, events_);
  resync_when_due();
  return ended;
}

// Applies a whole list: objects that it lacks were deleted, whether or not the event was seen.
void Reflector::replace(const Items& items, const std::string& version, Clock::SteadyTime began) {
  for (const auto& [key, object] : items) {
    set(key, object);
  }
  for (const std::string& key : store_.keys()) {
    if (!items.contains(key)) {
      remove(key, nullptr, true);
    }
  }
  set_version(version);
  version_is_unavailable_ = false;
  last_success_ = options_.clock->steady_now();
  observer_.listed(last_success_ - began, items.size());
  const MutexLock lock(mutex_);
  synced_ = true;
  changed_.notify_all();
}

void Reflector::apply_initial(const WatchEvent& event) {
  const std::string key = key_of(event.object);
  switch (event.type) {
    case WatchEventType::kAdded:
    case WatchEventType::kModified:
      if (SharedObject kept = keep(key, event.object); kept) {
        (*initial_)[key] = std::move(kept);
        return;
      }
      initial_->erase(key);
      return;
    case WatchEventType::kDeleted: initial_->erase(key); return;
    case WatchEventType::kBookmark: break;
  }
  if (text_member(event.object, {"metadata", "annotations", kInitialEventsEnd}) != "true") {
    can_stream_ = false;  // the server does not know the option
    watch_end_.request_stop();
    return;
  }
  const Items items = std::move(*initial_);
  initial_.reset();
  replace(items, text_member(event.object, {"metadata", "resourceVersion"}), watch_began_);
}

void Reflector::apply(const WatchEvent& event) {
  ++events_;
  last_success_ = options_.clock->steady_now();
  const std::string key = key_of(event.object);
  SharedObject kept = event.type == WatchEventType::kBookmark ? SharedObject() : keep(key, event.object);
  // An object that is no longer kept counts as deleted.
  if (event.type == WatchEventType::kDeleted || (event.type != WatchEventType::kBookmark && !kept)) {
    remove(key, std::move(kept), false);
  } else if (event.type != WatchEventType::kBookmark) {
    set(key, std::move(kept));
  }
  set_version(text_member(event.object, {"metadata", "resourceVersion"}));
  resync_when_due();
}

// The packed form of an object for the copy: the one that it has already if the version is equal; null when
// it is not to be kept. Where history may have gone back, an equal version means nothing.
SharedObject Reflector::keep(const std::string& key, const JsonView& object) const {
  SharedObject known = store_.find(key);
  const std::string version = text_member(object, {"metadata", "resourceVersion"});
  if (known && !version_is_unavailable_ && !version.empty() &&
      text_member(*known, {"metadata", "resourceVersion"}) == version) {
    return known;
  }
  SharedObject kept;
  const std::optional<std::string> thrown = catch_all([&] {
    if (!options_.project) {
      kept = SharedObject(object, options_.keep);
    } else if (const Json projected = options_.project(object); !projected.isNull()) {
      kept = SharedObject(projected);
    }
  });
  if (thrown) {  // go on with the other objects
    log_error("Failed to keep an object",
              {{"resource", options_.resource.plural}, {"object", key}, {"reason", *thrown}});
  }
  return kept;
}

void Reflector::set(const std::string& key, SharedObject object) {
  SharedObject before = store_.find(key);
  if (object == before) {
    return;
  }
  if (before && is_another(*before, *object)) {
    remove(key, nullptr, true);
    before = nullptr;
  }
  store_.set(key, object);
  notify({Change::Kind::kSet, key, std::move(object), std::move(before), false});
}

// `last`: the last state of the object, where it is known.
void Reflector::remove(const std::string& key, SharedObject last, bool is_final_state_unknown) {
  SharedObject before = store_.remove(key);
  if (before) {
    SharedObject shown = last ? std::move(last) : before;
    notify({Change::Kind::kRemoved, key, std::move(shown), std::move(before), is_final_state_unknown});
  }
}

void Reflector::set_version(const std::string& version) {
  if (!version.empty()) {
    resource_version_ = version;
    observer_.version(version);
  }
}

void Reflector::notify(const Change& change) const {
  for (const Handler& handler : handlers_) {
    if (const std::optional<std::string> thrown = catch_all([&] { handler(change); })) {
      log_error("Change handler threw",
                {{"resource", options_.resource.plural}, {"object", change.key}, {"reason", *thrown}});
    }
  }
}

void Reflector::resync_when_due() {
  if (options_.resync.count() <= 0 || options_.clock->steady_now() < resync_due_) {
    return;
  }
  plan_resync();
  for (const SharedObject& object : store_.snapshot()) {
    notify({Change::Kind::kSet, key_of(*object), object, object, false});
  }
}

void Reflector::plan_resync() {
  std::uniform_real_distribution<double> share(0.9, 1.1);
  const std::chrono::duration<double, std::milli> in(static_cast<double>(options_.resync.count()) *
                                                     share(random_));
  resync_due_ = options_.clock->steady_now() + std::chrono::duration_cast<std::chrono::milliseconds>(in);
}

}  // namespace plimsoll::kube
