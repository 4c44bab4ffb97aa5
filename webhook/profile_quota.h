// ProfileQuota: limits the MemoryProfiles that a process keeps, in total and of each namespace: users who may
// create them could otherwise fill its memory. For Reflector's option `project`.
//
//   ProfileQuota quota({});
//   options.project = [&](const JsonView& profile) { return quota.project(profile); };
//   ... quota.forget(key) ...                     // when one is removed
//
// Of profiles beyond the quota only the name is kept, so that no decision finds them. A process that starts
// reads profiles in the order of their names, and later ones until the quota is reached; a profile that was
// left out is checked again when it is written. The first of each namespace that is left out is logged. One
// thread.
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
    Bytes total = 32_MiB;
  };
  explicit ProfileQuota(Options options) : options_(options) {}

  // What to keep of the profile: what decisions read, or only its name.
  Json project(const JsonView& profile);
  void forget(const std::string& key);  // "namespace/name"

  Bytes kept() const { return kept_; }

 private:
  struct Use {
    std::size_t profiles = 0;
    Bytes bytes;
    bool logged = false;  // that some were left out
  };

  const Options options_;
  std::map<std::string, Bytes> sizes_;  // of those that are kept, by key
  std::map<std::string, Use> uses_;     // by namespace
  Bytes kept_;
};

}  // namespace plimsoll::webhook
