// RecentlyUsed: a cache of at most `limit` values by key, which forgets what was used least recently.
//
//   RecentlyUsed<Decision> decisions(64);
//   decisions.put(key, decision);
//   if (const Decision* known = decisions.find(key)) use(*known);
//
// Owns its values; a pointer or reference to one is good until the next put(). One thread.
#pragma once

#include <cstddef>
#include <list>
#include <string>
#include <unordered_map>
#include <utility>

namespace plimsoll {

template <class Value>
class RecentlyUsed {
 public:
  explicit RecentlyUsed(std::size_t limit) : limit_(limit) {}

  // Makes the entry the most recently used; null when there is none.
  Value* find(const std::string& key) {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) {
      return nullptr;
    }
    entries_.splice(entries_.begin(), entries_, found->second);
    return &found->second->second;
  }
  Value& put(const std::string& key, Value value) {
    if (Value* known = find(key)) {
      *known = std::move(value);
      return *known;
    }
    entries_.emplace_front(key, std::move(value));
    by_key_[key] = entries_.begin();
    if (entries_.size() > limit_) {
      by_key_.erase(entries_.back().first);
      entries_.pop_back();
    }
    return entries_.front().second;
  }

 private:
  using Entries = std::list<std::pair<std::string, Value>>;

  std::size_t limit_;
  Entries entries_;  // most recently used first
  std::unordered_map<std::string, typename Entries::iterator> by_key_;
};

}  // namespace plimsoll
