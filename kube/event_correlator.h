// EventCorrelator: aggregates events before they are written, by client-go's rules (tools/record). An event
// that was seen before only increases the count of the stored one; more than ten events of one object and
// reason within ten minutes, which differ in their messages only, become one "(combined from similar
// events)"; and the events of one object are limited to a burst of 25 and then one in five minutes.
//
//   std::optional<CorrelatedEvent> event = correlator.correlate(occurrence);
//   if (!event) return;                       // too many
//   correlator.written(event->key, write(*event));
//
// Remembers the last 4096 entries of each rule. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/json/edit.h"
#include "base/json/json.h"
#include "base/recently_used.h"

namespace plimsoll::kube {

struct ObjectReference {
  std::string api_version;
  std::string kind;
  std::string namespace_name;
  std::string name;
  std::string uid;
};

enum class EventType { kNormal, kWarning };

struct Occurrence {
  ObjectReference about;
  EventType type = EventType::kNormal;
  std::string reason;   // CamelCase
  std::string message;  // for users
  Clock::WallTime time{};
  std::map<std::string, std::string> annotations{};  // of the event; those of the latest occurrence count
};

struct CorrelatedEvent {
  Json event;             // the whole event, to be created
  bool is_known = false;  // the server has it under this name: `patch` increases its count
  Json patch;             // a merge patch
  std::string key;        // for written()
};

class EventCorrelator {
 public:
  // client-go's defaults (tools/record/events_cache.go).
  struct Options {
    std::string component;  // the reporter: "plimsoll-operator"
    std::string instance;   // of the component: the pod's name
    std::size_t cache = 4096;
    std::size_t max_similar = 10;
    std::chrono::seconds similar_within{600};
    double spam_burst = 25;
    double spam_per_second = 1.0 / 300;
    const Clock* clock = &system_clock();
  };

  explicit EventCorrelator(Options options);

  // Nothing: drop the event.
  std::optional<CorrelatedEvent> correlate(const Occurrence& occurrence);
  // The server has stored the event, under the name in its response.
  void written(const std::string& key, const Json& stored);

 private:
  struct Similar {
    std::set<std::string> messages;
    Clock::WallTime last{};
  };
  struct Seen {
    std::int64_t count = 0;
    std::string first;
    std::string name;
  };

  JsonObject event_of(const Occurrence& occurrence, const std::string& message) const;

  Options options_;
  RecentlyUsed<Similar> similar_;
  RecentlyUsed<Seen> seen_;
  RecentlyUsed<TokenBucket> allowed_;
};

}  // namespace plimsoll::kube
