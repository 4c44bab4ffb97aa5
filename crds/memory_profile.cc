#include "crds/memory_profile.h"

#include <strings.h>

#include "crds/object_header.h"
#include "crds/resource_fields.h"

namespace plimsoll::crds {
namespace {

// GPU models are named in any case, as the catalogue finds them.
bool same_model(const std::string& a, const std::string& b) {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

const LearnedBounds* entry_of(const std::vector<LearnedBounds>& bounds, const std::string& gpu_model) {
  for (const LearnedBounds& entry : bounds) {
    if (same_model(entry.gpu_model, gpu_model)) {
      return &entry;
    }
  }
  return nullptr;
}

void check_distinct_models(const std::vector<LearnedBounds>& bounds, const char* part, FieldErrors& errors) {
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    if (entry_of(bounds, bounds[i].gpu_model) != &bounds[i]) {
      const FieldPath parent(part);
      const FieldPath list(parent, "bounds");
      const FieldPath entry(list, i);
      errors.add(FieldPath(entry, "gpuModel"), "is twice in the list");
    }
  }
}

void override_with(LearnedBounds& entry, const LearnedBounds& set) {
  entry.cuda_context = set.cuda_context ? set.cuda_context : entry.cuda_context;
  entry.communication = set.communication ? set.communication : entry.communication;
  entry.workspace = set.workspace ? set.workspace : entry.workspace;
  entry.convolution_workspace =
      set.convolution_workspace ? set.convolution_workspace : entry.convolution_workspace;
  entry.startup = set.startup ? set.startup : entry.startup;
  entry.shortfall = set.shortfall ? set.shortfall : entry.shortfall;
  entry.peak_correction = set.peak_correction ? set.peak_correction : entry.peak_correction;
  entry.host_bandwidth = set.host_bandwidth ? set.host_bandwidth : entry.host_bandwidth;
  entry.host_update_bandwidth =
      set.host_update_bandwidth ? set.host_update_bandwidth : entry.host_update_bandwidth;
}

}  // namespace

Result<MemoryProfile> decode_memory_profile(const Json& object) {
  FieldErrors errors;
  MemoryProfile profile;
  ObjectHeader header = decode_header(object, "MemoryProfile", errors);
  ProfileSpec spec;
  ProfileStatus status;
  decode_part(object, "spec", spec, errors);
  decode_part(object, "status", status, errors);
  if (object.isObject() && member(object, {"spec"}).isNull()) {
    errors.add(FieldPath("spec"), "is required");
  }
  if (spec.model.has_value() != spec.training.has_value()) {
    const FieldPath parent("spec");
    errors.add(FieldPath(parent, "model"), "model and training must be given together");
  }
  check_distinct_models(spec.bounds, "spec", errors);
  check_distinct_models(status.bounds, "status", errors);
  if (!errors.empty()) {
    return to_error(errors);
  }
  profile.name = std::move(header.name);
  profile.namespace_name = std::move(header.namespace_name);
  profile.family = std::move(spec.family);
  profile.bounds = std::move(status.bounds);
  for (const LearnedBounds& set : spec.bounds) {
    const LearnedBounds* known = entry_of(profile.bounds, set.gpu_model);
    if (known == nullptr) {
      profile.bounds.push_back(set);
    } else {
      override_with(profile.bounds[static_cast<std::size_t>(known - profile.bounds.data())], set);
    }
  }
  profile.given = std::move(spec.bounds);
  profile.model = member(object, {"spec", "model"});
  profile.training = member(object, {"spec", "training"});
  profile.raw = object;
  return profile;
}

LearnedBounds bounds_for(const MemoryProfile& profile, const std::string& gpu_model) {
  const LearnedBounds* entry = entry_of(profile.bounds, gpu_model);
  if (entry == nullptr) {
    entry = entry_of(profile.bounds, "");
  }
  return entry == nullptr ? LearnedBounds{} : *entry;
}

LearnedBounds given_bounds_for(const MemoryProfile& profile, const std::string& gpu_model) {
  // Of the entry that holds, which the entry for all does only where the model has none.
  const bool own = entry_of(profile.bounds, gpu_model) != nullptr;
  const LearnedBounds* entry = entry_of(profile.given, own ? gpu_model : "");
  return entry == nullptr ? LearnedBounds{} : *entry;
}

}  // namespace plimsoll::crds
