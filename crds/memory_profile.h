// MemoryProfile (plimsoll.dev/v1alpha1, namespaced, `mp`): what was learned about the jobs of one model
// family, and what its model is, for workloads that do not say it. The webhook reads it, and the calibration controller writes its status. Plain values; any
// thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/json/json.h"
#include "base/result.h"

namespace plimsoll::crds {

// Upper bounds learned for one GPU model ("" applies to all); absent ones keep the built-in table's value.
struct LearnedBounds {
  std::string gpu_model;
  std::optional<Bytes> cuda_context;
  std::optional<Bytes> communication;
  std::optional<Bytes> workspace;              // cuBLAS's and cuBLASLt's, all handles together
  std::optional<Bytes> convolution_workspace;  // cuDNN's, of one convolution
  std::optional<Bytes> startup;                // everything on a card before the first forward pass
  std::optional<Bytes> shortfall;              // added to the estimate, for what nothing else explains
  std::optional<double> peak_correction;       // factor on the estimated training-time peak, 0.5 .. 4
  // Bytes a second, of jobs that train through host memory: of a copy between host and GPU, and of what the host's update of layers reads
  // and writes.
  std::optional<Bytes> host_bandwidth{};
  std::optional<Bytes> host_update_bandwidth{};
};

struct MemoryProfile {
  std::string name;
  std::string namespace_name;
  std::string family;                 // spec.family
  std::vector<LearnedBounds> bounds;  // status.bounds, spec.bounds override them per field
  std::vector<LearnedBounds> given;   // spec.bounds alone
  // spec.model and spec.training, which have no errors; null: the profile describes no model.
  Json model;
  Json training;
  Json raw;
};

// Errors: kInvalid naming the fields that the schema refuses.
Result<MemoryProfile> decode_memory_profile(const Json& object);

// The bounds that hold for a GPU model: its own entry, else the entry for all, else nothing.
LearnedBounds bounds_for(const MemoryProfile& profile, const std::string& gpu_model);

// The part of these that a user has set.
LearnedBounds given_bounds_for(const MemoryProfile& profile, const std::string& gpu_model);

}  // namespace plimsoll::crds
