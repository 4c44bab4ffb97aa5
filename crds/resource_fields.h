// The fields of a GPUModel and of a MemoryProfile, as training_job_fields.h has those of a TrainingJob.
// Inside crds/ only.
#pragma once

#include "crds/field_rules.h"
#include "crds/gpu_model.h"
#include "crds/memory_profile.h"
#include "crds/training_job_fields.h"

namespace plimsoll::crds {

inline constexpr Range kMaxModels = {0, 64};
inline constexpr Range kCounts = {0, std::numeric_limits<std::int64_t>::max()};

template <class Visitor>
void describe(Visitor& visit, Of<GpuAutoscaling> auto& autoscaling) {
  visit.integer("maxNodes", autoscaling.max_nodes, Presence::kRequired, Range{1, 65536});
  visit.integer("gpusPerNode", autoscaling.gpus_per_node, Presence::kRequired, Range{1, 1024});
}

template <class Visitor>
void describe(Visitor& visit, Of<HostLinks> auto& links) {
  visit.optional_bytes("bandwidth", links.bandwidth, kPositiveBytes);
  visit.integer("gpusPerRootComplex", links.gpus_per_root, Presence::kOptional, Range{0, 1024});
  visit.choice("peerToPeer", links.peer_to_peer, Presence::kDefaulted);
}

template <class Visitor>
void describe(Visitor& visit, Of<GpuModelSpec> auto& spec) {
  visit.texts("productLabels", spec.product_labels, kMaxModels, kProductLabel);
  visit.optional_bytes("memory", spec.memory, kPositiveBytes);
  visit.optional_bytes("hbmBandwidth", spec.hbm_bandwidth, kPositiveBytes);
  visit.optional_bytes("intraNodeBandwidth", spec.intra_node_bandwidth, kPositiveBytes);
  visit.optional_bytes("interNodeBandwidth", spec.inter_node_bandwidth, kPositiveBytes);
  visit.optional_bytes("cudaContext", spec.cuda_context, kAnyBytes);
  visit.optional_decimal("costPerHour", spec.cost_per_hour, kCostPerHour);
  visit.text("computeCapability", spec.compute_capability, Presence::kOptional, kComputeCapability);
  visit.optional_object("hostLinks", spec.host_links);
  visit.optional_object("autoscaling", spec.autoscaling);
}

template <class Visitor>
void describe(Visitor& visit, Of<GpuNodeShape> auto& shape) {
  visit.integer("gpusPerNode", shape.gpus_per_node, Presence::kRequired, Range{1, 1024});
  visit.integer("nodes", shape.nodes, Presence::kRequired, kCounts);
}

template <class Visitor>
void describe(Visitor& visit, Of<GpuCapabilities> auto& capabilities) {
  visit.text("computeCapability", capabilities.compute_capability, Presence::kRequired, kComputeCapability);
  visit.texts("nativePrecisions", capabilities.native_precisions, Range{0, 8}, kRequiredFamilyName);
  visit.texts("flashAttention", capabilities.flash_attention, Range{0, 8}, kRequiredFamilyName);
  visit.text("oldestCUDA", capabilities.oldest_cuda, Presence::kOptional, kCudaVersion);
  visit.text("newestCUDA", capabilities.newest_cuda, Presence::kOptional, kCudaVersion);
}

template <class Visitor>
void describe(Visitor& visit, Of<GpuModelStatus> auto& status) {
  visit.integer("totalGPUs", status.total_gpus, Presence::kOptional, kCounts);
  visit.integer("freeGPUs", status.free_gpus, Presence::kOptional, kCounts);
  visit.objects("nodeShapes", status.nodes, Presence::kOptional, kMaxModels);
  visit.texts("productLabels", status.product_labels, kMaxModels, kNodeLabel);
  visit.optional_bytes("memory", status.memory, kPositiveBytes);
  visit.optional_bytes("hostMemory", status.host_memory, kPositiveBytes);
  visit.optional_object("hostLinks", status.host_links);
  visit.optional_object("capabilities", status.capabilities);
  visit.text("driverVersion", status.driver_version, Presence::kOptional, kDriverVersion);
  visit.texts("cpuArchitectures", status.cpu_architectures, Range{0, 8}, kRequiredFamilyName);
  visit.objects("freeNodeShapes", status.free_nodes, Presence::kOptional, kMaxModels);
}

template <class Visitor>
void describe(Visitor& visit, Of<LearnedBounds> auto& bounds) {
  visit.text("gpuModel", bounds.gpu_model, Presence::kDefaulted, kGpuModelName);
  visit.optional_bytes("cudaContext", bounds.cuda_context, kAnyBytes);
  visit.optional_bytes("communication", bounds.communication, kAnyBytes);
  visit.optional_bytes("workspace", bounds.workspace, kAnyBytes);
  visit.optional_bytes("convolutionWorkspace", bounds.convolution_workspace, kAnyBytes);
  visit.optional_bytes("startup", bounds.startup, kAnyBytes);
  visit.optional_bytes("shortfall", bounds.shortfall, kAnyBytes);
  visit.optional_decimal("peakCorrection", bounds.peak_correction, kPeakCorrection);
  visit.optional_bytes("hostBandwidth", bounds.host_bandwidth, kPositiveBytes);
  visit.optional_bytes("hostUpdateBandwidth", bounds.host_update_bandwidth, kPositiveBytes);
}

// A profile's spec and status, before they are merged.
struct ProfileSpec {
  std::string family;
  std::optional<ModelSpec> model;
  std::optional<TrainingSpec> training;
  std::vector<LearnedBounds> bounds;
};
struct ProfileStatus {
  std::vector<LearnedBounds> bounds;
};

template <class Visitor>
void describe(Visitor& visit, Of<ProfileSpec> auto& spec) {
  visit.text("family", spec.family, Presence::kRequired, kRequiredFamilyName);
  visit.optional_object("model", spec.model);
  visit.optional_object("training", spec.training);
  visit.objects("bounds", spec.bounds, Presence::kOptional, kMaxModels);
}

template <class Visitor>
void describe(Visitor& visit, Of<ProfileStatus> auto& status) {
  visit.objects("bounds", status.bounds, Presence::kOptional, kMaxModels);
}

}  // namespace plimsoll::crds
