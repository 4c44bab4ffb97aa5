#include "tests/fake_apiserver/watch_stream.h"

#include <algorithm>

#include "tests/fake_apiserver/defaults.h"
#include "tests/fake_apiserver/reads.h"

namespace plimsoll::testing::fake {
namespace {

using Clock = std::chrono::steady_clock;

class Stream {
 public:
  Stream(const WatchPlan& plan, const std::function<bool(const std::string&)>& write)
      : plan_(plan), write_(write), format_(plan.format) {}

  // Each returns false when the stream has ended.
  bool send(const char* type, const ObjectPtr& object) {
    if (fault_due()) {
      return false;
    }
    ++sent_;
    const bool written = send_line(type, render_object(*plan_.type, *object, format_));
    format_.table.headers = false;
    return written;
  }

  bool send_change(const Change& change) {
    if (!plan_.namespace_name.empty() && change.key.namespace_name != plan_.namespace_name) {
      return true;
    }
    const bool fits_now = change.type != ChangeType::kDeleted && matches(change.object);
    const bool fitted = change.previous != nullptr && matches(change.previous);
    if (fits_now) {
      return send(fitted ? "MODIFIED" : "ADDED", change.object);
    }
    if (!fitted) {
      return true;
    }
    if (change.type == ChangeType::kDeleted) {
      return send("DELETED", change.object);
    }
    // It no longer matches: send the last matching state, with the version of the change.
    Json last = change.previous->json;
    last["metadata"]["resourceVersion"] = std::to_string(change.version);
    auto object = std::make_shared<Object>();
    object->text = write_json(last);
    object->json = std::move(last);
    object->version = change.version;
    return send("DELETED", object);
  }

  bool send_bookmark(std::uint64_t version, bool initial_end) {
    Json object(::Json::objectValue);
    object["apiVersion"] = plan_.type->api_version();
    object["kind"] = plan_.type->kind;
    object["metadata"]["creationTimestamp"] = Json();
    object["metadata"]["resourceVersion"] = std::to_string(version);
    if (initial_end) {
      object["metadata"]["annotations"]["k8s.io/initial-events-end"] = "true";
    }
    if (format_.kind != Format::Kind::kTable) {
      return send_line("BOOKMARK", write_json(object));
    }
    Json table = make_table(*plan_.type, {&object}, format_.table);
    table["metadata"]["resourceVersion"] = std::to_string(version);
    return send_line("BOOKMARK", write_json(table));
  }

  bool send_error(const Status& status) { return send_line("ERROR", write_json(to_json(status))); }

  bool fault_due() const {
    return plan_.fault &&
           (plan_.fault->kind == Fault::Kind::kDropWatch || plan_.fault->kind == Fault::Kind::kExpired) &&
           sent_ >= plan_.fault->after_events;
  }

 private:
  bool send_line(const char* type, const std::string& object) {
    return write_(std::string("{\"type\":\"") + type + "\",\"object\":" + object + "}\n");
  }

  bool matches(const ObjectPtr& object) const {
    return plan_.labels.matches(member(object->json, {"metadata", "labels"})) &&
           (plan_.fields.empty() || plan_.fields.matches(convert(object->json, plan_.type->api_version())));
  }

  const WatchPlan& plan_;
  const std::function<bool(const std::string&)>& write_;
  Format format_;
  int sent_ = 0;
};

}  // namespace

StreamEnd stream_watch(const WatchPlan& plan, const Store& store, const WatchStreamOptions& options,
                       const std::function<bool(const std::string&)>& write,
                       const std::function<bool()>& stopped) {
  Stream stream(plan, write);
  const auto end_of_fault = [&] {
    if (plan.fault->kind == Fault::Kind::kDropWatch) {
      return StreamEnd::kAborted;
    }
    stream.send_error(expired("too old resource version: an injected fault"));
    return StreamEnd::kClean;
  };
  bool alive = true;
  for (const ObjectPtr& object : plan.initial) {
    alive = alive && stream.send("ADDED", object);
  }
  if (alive && plan.initial_end) {
    alive = stream.send_bookmark(plan.after, true);
  }
  std::uint64_t seen = plan.after;
  Clock::time_point next_bookmark = Clock::now() + options.bookmark_interval;
  while (alive && !stopped()) {
    if (stream.fault_due()) {
      return end_of_fault();
    }
    const Store::Changes news =
        store.wait_changes(plan.type->storage(), seen, std::min(plan.deadline, next_bookmark), stopped);
    if (news.expired) {
      stream.send_error(expired("too old resource version: " + std::to_string(seen) + " (" +
                                std::to_string(store.oldest_version()) + ")"));
      return StreamEnd::kClean;
    }
    for (const Change& change : news.changes) {
      alive = alive && stream.send_change(change);
    }
    seen = std::max(seen, news.up_to);
    const bool over = Clock::now() >= plan.deadline;
    if (alive && plan.bookmarks && (over || Clock::now() >= next_bookmark)) {
      alive = stream.send_bookmark(seen, false);
    }
    if (Clock::now() >= next_bookmark) {
      next_bookmark = Clock::now() + options.bookmark_interval;
    }
    if (over) {
      break;
    }
  }
  return stream.fault_due() ? end_of_fault() : StreamEnd::kClean;
}

}  // namespace plimsoll::testing::fake
