// DepartedPods: deleted pods whose end shows why an attempt failed, by the key of their Job, until that Job
// is deleted.
//
//   DepartedPods departed;
//   departed.remember("ads/kafka-0", pod);      // "NAMESPACE/JOB"
//   std::vector<Json> pods = departed.of("ads/kafka-0");
//
// Bounded in pods and bytes for all namespaces together. When it is full, the namespace that holds the most
// loses its oldest pod, so that no namespace evicts another's. Any thread.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/json/json.h"
#include "base/mutex.h"
#include "kube/reflector.h"

namespace plimsoll::controllers {

class DepartedPods {
 public:
  struct Limits {
    std::size_t pods = 4096;  // a preemption deletes few of each attempt
    Bytes bytes = 16_MiB;     // as JSON text, which takes more than what is kept; a pod has a few KiB
  };

  DepartedPods() : DepartedPods(Limits()) {}
  explicit DepartedPods(Limits limits) : limits_(limits) {}

  void remember(const std::string& child_key, const kube::SharedObject& pod);
  std::vector<Json> of(const std::string& child_key) const;
  void forget(const std::string& child_key);

 private:
  struct Entry {
    std::string child_key;
    kube::SharedObject pod;
    Bytes bytes;
  };
  struct Share {
    std::list<Entry> pods;  // the oldest first
    Bytes bytes;
  };
  double size_of(const Share& share) const;
  std::list<Entry>::iterator remove(Share& share, std::list<Entry>::iterator entry) PLIMSOLL_REQUIRES(mutex_);

  const Limits limits_;
  mutable Mutex mutex_;
  std::map<std::string, Share> shares_ PLIMSOLL_GUARDED_BY(mutex_);  // by namespace
  std::size_t pods_ PLIMSOLL_GUARDED_BY(mutex_) = 0;
  Bytes bytes_ PLIMSOLL_GUARDED_BY(mutex_);
};

}  // namespace plimsoll::controllers
