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
  // The rest of a list that was asked for in pages; kept so that all pages show the same version.
  struct Rest {
    std::string token;
    std::uint64_t version = 0;
    std::vector<ObjectPtr> objects;
  };
  Outcome<Snapshot> snapshot_for(const Request& request, const Target& target) const;
  std::string keep_rest(std::uint64_t version, std::vector<ObjectPtr> objects);

  const Store& store_;
  std::mutex mutex_;
  std::deque<Rest> rests_;
};

// One object, in the form asked for.
std::string render_object(const ResourceType& type, const Object& object, const Format& format);
Reply reply_object(const ResourceType& type, const Json& object, const Format& format, int code = 200);

}  // namespace plimsoll::testing::fake
