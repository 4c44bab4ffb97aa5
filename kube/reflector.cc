#include "kube/reflector.h"

#include <cassert>
#include <unordered_set>

#include "base/log.h"

namespace plimsoll::kube {
namespace {

// A watch that ends sooner without an event is a fault of the server, not a routine end.
constexpr std::chrono::seconds kShortestWatch{1};
// Watches end by themselves after 5 to 10 minutes, spread so that not all of them come back at once.
constexpr int kLeastWatchSeconds = 300;
constexpr int kMostWatchSeconds = 600;
// So many watches in a row that fail before their first event cast doubt on the version they start from.
constexpr int kMostFailedWatches = 4;

// The server's history went back (etcd was restored), or this replica lags: apiserver's storage/errors.go.
bool is_version_too_large(const Error& error) {
  return error.code == ErrorCode::kTimeout &&
         error.message.find("Too large resource version") != std::string::npos;
}

// An object of the same name that is another one: deleted and made anew in between.
bool is_another(const Json& one, const Json& other) {
  const std::string uid = text_member(one, {"metadata", "uid"});
  const std::string other_uid = text_member(other, {"metadata", "uid"});
  return !uid.empty() && !other_uid.empty() && uid != other_uid;
}

// Failures of the way to the server rather than of the watch: the version we have is still good.
bool is_transient(const Error& error) {
  return error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kTimeout ||
         error.code == ErrorCode::kTooManyRequests;
}

}  // namespace

Reflector::Reflector(Client& client, Options options)
    : client_(client),
      options_(std::move(options)),
      store_(options_.indexers),
      backoff_(options_.backoff, options_.seed),
      random_(options_.seed) {
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
  const std::lock_guard lock(mutex_);
  return synced_;
}

bool Reflector::wait_for_sync(const std::stop_token& stop) const {
  std::unique_lock lock(mutex_);
  return changed_.wait(lock, stop, [this] { return synced_; });
}

void Reflector::run(const std::stop_token& stop) {
  plan_resync();
  while (!stop.stop_requested()) {
    const Result<void> ended = list_and_watch(stop);
    if (stop.stop_requested()) {
      return;
    }
    if (!ended) {
      const bool routine = ended.error().code == ErrorCode::kExpired;
      log(routine ? LogLevel::kDebug : LogLevel::kWarning, "Listing again",
          {{"resource", options_.resource.plural}, {"reason", to_string(ended.error())}});
    }
    pause(stop);
  }
}

// Waits for the next try; the delay grows until things have gone well for a while.
bool Reflector::pause(const std::stop_token& stop) {
  const Clock::SteadyTime now = options_.clock->steady_now();
  if (last_pause_ && now - *last_pause_ > options_.healthy_after) {
    backoff_.reset();
  }
  const bool went_on = options_.sleeper->sleep_for(backoff_.next(), stop);
  last_pause_ = options_.clock->steady_now();
  return went_on;
}

Result<void> Reflector::list_and_watch(const std::stop_token& stop) {
  Result<void> listed = list(stop);
  if (!listed && (listed.error().code == ErrorCode::kExpired || is_version_too_large(listed.error()))) {
    version_is_unavailable_ = true;
    listed = list(stop);
  }
  if (!listed) {
    return listed;
  }
  int failures = 0;
  while (!stop.stop_requested()) {
    events_ = 0;
    const Clock::SteadyTime began = options_.clock->steady_now();
    const Result<void> ended = watch(stop);
    resync_when_due();
    if (ended) {
      if (events_ == 0 && options_.clock->steady_now() - began < kShortestWatch) {
        return Error(ErrorCode::kUnavailable, "the server ends watches at once");
      }
      failures = 0;
      continue;
    }
    if (!is_transient(ended.error()) || is_version_too_large(ended.error())) {
      return ended;
    }
    failures = events_ == 0 ? failures + 1 : 0;
    if (failures == kMostFailedWatches) {
      return ended;
    }
    log_debug("Watching again",
              {{"resource", options_.resource.plural}, {"reason", to_string(ended.error())}});
    pause(stop);
  }
  return {};
}

Result<void> Reflector::list(const std::stop_token& stop) {
  ListOptions what;
  what.label_selector = options_.label_selector;
  what.field_selector = options_.field_selector;
  // The watch cache answers a list of a known version whole; a list without one goes to etcd, in pages.
  what.resource_version = version_is_unavailable_ ? "" : resource_version_;
  what.limit = version_is_unavailable_ ? options_.page_size : 0;
  CallOptions call;
  call.timeout = options_.list_timeout;
  call.stop = stop;
  const Result<Json> answer = client_.list(options_.resource, options_.namespace_name, what, call);
  if (!answer) {
    return answer.error();
  }
  version_is_unavailable_ = false;
  resource_version_ = text_member(*answer, {"metadata", "resourceVersion"});
  replace(*answer);
  return {};
}

Result<void> Reflector::watch(const std::stop_token& stop) {
  WatchOptions options;
  options.label_selector = options_.label_selector;
  options.field_selector = options_.field_selector;
  options.resource_version = resource_version_;
  options.server_timeout = std::chrono::seconds(
      std::uniform_int_distribution<int>(kLeastWatchSeconds, kMostWatchSeconds)(random_));
  options.idle_timeout = options_.idle_timeout;
  return client_.watch(
      options_.resource, options_.namespace_name, options, [this](const WatchEvent& event) { apply(event); },
      stop);
}

// Takes a whole list: what it lacks is gone, whether or not its deletion was seen.
void Reflector::replace(const Json& list) {
  std::unordered_set<std::string> present;
  for (const Json& object : list["items"]) {
    const std::string key = key_of(object);
    present.insert(key);
    set(key, object);
  }
  for (const std::string& key : store_.keys()) {
    if (!present.contains(key)) {
      remove(key, nullptr);
    }
  }
  const std::lock_guard lock(mutex_);
  synced_ = true;
  changed_.notify_all();
}

void Reflector::apply(const WatchEvent& event) {
  ++events_;
  const std::string version = text_member(event.object, {"metadata", "resourceVersion"});
  if (!version.empty()) {
    resource_version_ = version;
  }
  const std::string key = key_of(event.object);
  switch (event.type) {
    case WatchEventType::kAdded:
    case WatchEventType::kModified: set(key, event.object); break;
    case WatchEventType::kDeleted: remove(key, &event.object); break;
    case WatchEventType::kBookmark: break;
  }
  resync_when_due();
}

void Reflector::set(const std::string& key, const Json& object) {
  SharedObject before = store_.find(key);
  const std::string version = text_member(object, {"metadata", "resourceVersion"});
  if (before && !version.empty() && text_member(*before, {"metadata", "resourceVersion"}) == version) {
    return;  // a list repeats what is known
  }
  if (before && is_another(*before, object)) {
    remove(key, nullptr);
    before = nullptr;
  }
  Json kept = options_.project ? options_.project(object) : object;
  if (kept.isNull()) {
    remove(key, &object);
    return;
  }
  SharedObject shared = std::make_shared<const Json>(std::move(kept));
  store_.set(key, shared);
  notify({Change::Kind::kSet, key, std::move(shared), std::move(before), false});
}

// `final_state`: as the server saw it last, where that is known.
void Reflector::remove(const std::string& key, const Json* final_state) {
  SharedObject before = store_.remove(key);
  if (!before) {
    return;
  }
  SharedObject last = before;
  if (final_state != nullptr && !is_another(*before, *final_state)) {
    Json kept = options_.project ? options_.project(*final_state) : *final_state;
    if (!kept.isNull()) {
      last = std::make_shared<const Json>(std::move(kept));
    }
  }
  notify({Change::Kind::kRemoved, key, std::move(last), std::move(before), final_state == nullptr});
}

void Reflector::notify(const Change& change) const {
  for (const Handler& handler : handlers_) {
    handler(change);
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
