#include "kube/reflector.h"

#include <cassert>
#include <mutex>

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

// Failures of the way to the server rather than of the watch: the version we have is still good.
bool is_transient(const Error& error) {
  return error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kTimeout ||
         error.code == ErrorCode::kTooManyRequests;
}

}  // namespace

std::string key_of(const Json& object) {
  const std::string name = text_member(object, {"metadata", "name"});
  const std::string namespace_name = text_member(object, {"metadata", "namespace"});
  return namespace_name.empty() ? name : namespace_name + "/" + name;
}

Reflector::Reflector(Client& client, Options options)
    : client_(client),
      options_(std::move(options)),
      backoff_(options_.backoff, options_.seed),
      random_(options_.seed) {}

Reflector::~Reflector() {
  stop();
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
  const std::shared_lock lock(mutex_);
  return synced_;
}

SharedObject Reflector::find(const std::string& key) const {
  const std::shared_lock lock(mutex_);
  const auto found = objects_.find(key);
  return found == objects_.end() ? nullptr : found->second;
}

std::vector<SharedObject> Reflector::snapshot() const {
  const std::shared_lock lock(mutex_);
  std::vector<SharedObject> all;
  all.reserve(objects_.size());
  for (const auto& [key, object] : objects_) {
    all.push_back(object);
  }
  return all;
}

std::size_t Reflector::size() const {
  const std::shared_lock lock(mutex_);
  return objects_.size();
}

void Reflector::run(const std::stop_token& stop) {
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
  std::map<std::string, bool> present;
  for (const Json& object : list["items"]) {
    const std::string key = key_of(object);
    present[key] = true;
    set(key, object);
  }
  std::vector<std::string> gone;
  for (const auto& [key, object] : objects_) {  // only this thread writes, so reading needs no lock
    if (present.find(key) == present.end()) {
      gone.push_back(key);
    }
  }
  for (const std::string& key : gone) {
    remove(key);
  }
  const std::unique_lock lock(mutex_);
  synced_ = true;
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
    case WatchEventType::kDeleted: remove(key); break;
    case WatchEventType::kBookmark: break;
  }
}

void Reflector::set(const std::string& key, const Json& object) {
  const SharedObject before = find(key);
  const std::string version = text_member(object, {"metadata", "resourceVersion"});
  if (before && !version.empty() && text_member(*before, {"metadata", "resourceVersion"}) == version) {
    return;  // a list repeats what is known
  }
  Json kept = options_.project ? options_.project(object) : object;
  if (kept.isNull()) {
    remove(key);
    return;
  }
  SharedObject shared = std::make_shared<const Json>(std::move(kept));
  {
    const std::unique_lock lock(mutex_);
    objects_[key] = shared;
  }
  notify(Change::Kind::kSet, key, std::move(shared));
}

void Reflector::remove(const std::string& key) {
  SharedObject last;
  {
    const std::unique_lock lock(mutex_);
    const auto found = objects_.find(key);
    if (found == objects_.end()) {
      return;
    }
    last = std::move(found->second);
    objects_.erase(found);
  }
  notify(Change::Kind::kRemoved, key, std::move(last));
}

void Reflector::notify(Change::Kind kind, const std::string& key, SharedObject object) {
  if (options_.on_change) {
    options_.on_change({kind, key, std::move(object)});
  }
}

}  // namespace plimsoll::kube
