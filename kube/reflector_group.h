// ReflectorGroup: the copy of one collection in some namespaces, for a client that may not list it in all of them.
//
//   ReflectorGroup jobs(client, {.resource = kTrainingJobs, .on_change = handler}, {"team-a", "team-b"});
//   jobs.start();
//   if (!jobs.wait_for_sync(stop)) return;
//   SharedObject job = jobs.find("team-a/ads");
//   jobs.stop();
//
// It is one Reflector (kube/reflector.h) for each namespace, or a single one over all of them where none is named, and is used as a
// reflector is. `project` and the handler are called by one thread at a time, with a lock held. Thread-safety and owner: as a Reflector's.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "kube/client.h"
#include "kube/reflector.h"

namespace plimsoll::kube {

class ReflectorGroup {
 public:
  // `options.namespace_name` must be empty. `namespaces`: each once; none means all.
  ReflectorGroup(Client& client, Reflector::Options options, const std::vector<std::string>& namespaces);
  ReflectorGroup(const ReflectorGroup&) = delete;
  ReflectorGroup& operator=(const ReflectorGroup&) = delete;

  void start();
  void stop();

  // True once the first lists of all namespaces are in the copy and the handler has seen them.
  bool has_synced() const;
  // Waits for that. False: a stop was requested first.
  bool wait_for_sync(const std::stop_token& stop) const;

  SharedObject find(const std::string& key) const;
  std::vector<SharedObject> snapshot() const;  // by key
  std::vector<SharedObject> by_index(const std::string& index, const std::string& value) const;
  std::size_t size() const;

 private:
  Mutex handling_;
  std::map<std::string, std::unique_ptr<Reflector>> members_;  // by namespace; "" is all of them
};

}  // namespace plimsoll::kube
