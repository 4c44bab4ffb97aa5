// ProfileQuota: how many MemoryProfiles a process keeps, in all and of each namespace, for anybody who may
// create them could otherwise fill its memory. For Reflector's option `project`.
//
//   ProfileQuota quota({});
//   options.project = [&](const JsonView& profile) { return quota.project(profile); };
//   ... quota.forget(key) ...                     // when one is removed
//
// What a namespace has beyond its share is left out: all that stays of it is its name, so that no decision
// finds it. A process that starts takes profiles in the order of their names, and those that come later while
// there is room; one that was left out is looked at again when it is written. The first of a namespace that
// is left out is logged. One thread.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "base/bytes.h"
#include "base/json/json.h"
#include "base/json/view.h"
#include "estimator/provisioner/cluster_view.h"

namespace plimsoll::webhook {

class ProfileQuota {
 public:
  struct Options {
    std::size_t of_namespace = estimator::kProfilesOfNamespace;
    Bytes bytes_of_namespace = 512_KiB;  // packed; one profile has 1 to 4 KiB
    Bytes in_all = 32_MiB;
  };
  explicit ProfileQuota(Options options) : options_(options) {}

  // What to keep of it: what decisions read, or only its name.
  Json project(const JsonView& profile);
  void forget(const std::string& key);  // "namespace/name"

  Bytes kept() const { return kept_; }

 private:
  struct Use {
    std::size_t profiles = 0;
    Bytes bytes;
    bool told = false;  // that some were left out
  };

  const Options options_;
  std::map<std::string, Bytes> sizes_;  // of those that are kept, by key
  std::map<std::string, Use> uses_;     // by namespace
  Bytes kept_;
};

}  // namespace plimsoll::webhook
