// GET, LIST and the beginning of WATCH. Thread-safe.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "tests/fake_apiserver/api.h"

namespace plimsoll::testing::fake {

class Reads {
 public:
  explicit Reads(const Store& store) : store_(store) {}

  Reply get(const Target& target, const Format& format) const;
  Reply list(const Request& request, const Target& target, const Format& format);
  Answer watch(const Request& request, const Target& target, const Format& format) const;

 private:
  // The remaining pages of a list; kept so that all pages have the same version.
  struct Continuation {
    std::string token;
    std::uint64_t version = 0;
    std::vector<ObjectPtr> objects;
  };
  Outcome<Snapshot> snapshot_for(const Request& request, const Target& target) const;
  std::string keep_continuation(std::uint64_t version, std::vector<ObjectPtr> objects);

  const Store& store_;
  std::mutex mutex_;
  std::deque<Continuation> continuations_;
};

// One object in the requested form.
std::string render_object(const ResourceType& type, const Object& object, const Format& format);
Reply reply_object(const ResourceType& type, const Json& object, const Format& format, int code = 200);

}  // namespace plimsoll::testing::fake
