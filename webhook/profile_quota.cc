#include "webhook/profile_quota.h"

#include "base/json/packed.h"
#include "base/json/selection.h"
#include "base/log.h"
#include "kube/object_store.h"

namespace plimsoll::webhook {
namespace {

const JsonSelection& what_decisions_read() {
  static const JsonSelection selection =
      JsonSelection()
          .only({}, {"apiVersion", "kind", "metadata", "spec", "status"})
          .only({"metadata"}, {"name", "namespace", "uid", "resourceVersion"})
          .only({"spec"}, {"family", "bounds", "model", "training"})
          .only({"status"}, {"bounds"});
  return selection;
}

const JsonSelection& name_alone() {
  static const JsonSelection selection =
      JsonSelection()
          .only({}, {"metadata"})
          .only({"metadata"}, {"name", "namespace", "uid", "resourceVersion"});
  return selection;
}

}  // namespace

Json ProfileQuota::project(const JsonView& profile) {
  const std::string namespace_name = text_member(profile, {"metadata", "namespace"});
  const std::string key = namespace_name + "/" + text_member(profile, {"metadata", "name"});
  forget(key);
  const PackedJson slim(profile, what_decisions_read());
  const Bytes size{static_cast<std::int64_t>(slim.size())};
  Use& use = uses_[namespace_name];
  if (use.profiles >= options_.of_namespace || use.bytes + size > options_.bytes_of_namespace ||
      kept_ + size > options_.total) {
    if (!use.logged) {
      use.logged = true;
      log_warning("Left out MemoryProfiles: quota reached", {{"namespace", namespace_name},
                                                             {"first", key},
                                                             {"kept", use.profiles},
                                                             {"bytes", use.bytes.count},
                                                             {"bytesOfAllNamespaces", kept_.count}});
    }
    return PackedJson(profile, name_alone()).tree();
  }
  ++use.profiles;
  use.bytes += size;
  kept_ += size;
  sizes_.emplace(key, size);
  return slim.tree();
}

void ProfileQuota::forget(const std::string& key) {
  const auto known = sizes_.find(key);
  if (known == sizes_.end()) {
    return;
  }
  const auto use = uses_.find(kube::namespace_of(key));
  kept_ -= known->second;
  use->second.bytes -= known->second;
  if (--use->second.profiles == 0) {
    uses_.erase(use);
  }
  sizes_.erase(known);
}

}  // namespace plimsoll::webhook
