#include "crds/gpu_model.h"

#include "base/json/edit.h"
#include "base/quantity.h"
#include "crds/object_header.h"
#include "crds/resource_fields.h"

namespace plimsoll::crds {
namespace {

Json encoded(const std::vector<std::string>& texts) {
  JsonArray json;
  for (const std::string& text : texts) {
    json.append(text);
  }
  return json;
}

Json encoded(const GpuCapabilities& capabilities) {
  JsonObject json;
  json["computeCapability"] = capabilities.compute_capability;
  json["nativePrecisions"] = encoded(capabilities.native_precisions);
  json["flashAttention"] = encoded(capabilities.flash_attention);
  const std::pair<const char*, const std::string&> versions[] = {{"oldestCUDA", capabilities.oldest_cuda},
                                                                 {"newestCUDA", capabilities.newest_cuda}};
  for (const auto& [name, version] : versions) {
    if (!version.empty()) {
      json[name] = version;
    }
  }
  return json;
}

Json encoded(const std::vector<GpuNodeShape>& shapes) {
  JsonArray json;
  for (const GpuNodeShape& shape : shapes) {
    json.append(json_object({{"gpusPerNode", shape.gpus_per_node}, {"nodes", shape.nodes}}));
  }
  return json;
}

Json encoded(const HostLinks& links) {
  JsonObject json;
  if (links.bandwidth) {
    json["bandwidth"] = format_bytes(*links.bandwidth);
  }
  json["gpusPerRootComplex"] = links.gpus_per_root;
  json["peerToPeer"] = name_of(links.peer_to_peer);
  return json;
}

}  // namespace

Result<GpuModel> decode_gpu_model(const Json& object) {
  FieldErrors errors;
  GpuModel model;
  model.name = decode_header(object, "GPUModel", errors).name;
  decode_part(object, "spec", model.spec, errors);
  decode_part(object, "status", model.status, errors);
  if (model.spec.cost_per_hour && !(*model.spec.cost_per_hour > 0)) {
    const FieldPath spec("spec");
    errors.add(FieldPath(spec, "costPerHour"), "costPerHour must be more than 0");
  }
  if (!errors.empty()) {
    return to_error(errors);
  }
  model.raw = object;
  return model;
}

Json encode_status(const GpuModelStatus& status) {
  JsonObject json;
  json["totalGPUs"] = status.total_gpus;
  json["freeGPUs"] = status.free_gpus;
  json["nodeShapes"] = encoded(status.nodes);
  json["productLabels"] = encoded(status.product_labels);
  if (status.memory) {
    json["memory"] = format_bytes(*status.memory);
  }
  if (status.host_memory) {
    json["hostMemory"] = format_bytes(*status.host_memory);
  }
  if (status.host_links) {
    json["hostLinks"] = encoded(*status.host_links);
  }
  if (status.capabilities) {
    json["capabilities"] = encoded(*status.capabilities);
  }
  if (!status.driver_version.empty()) {
    json["driverVersion"] = status.driver_version;
  }
  if (!status.cpu_architectures.empty()) {
    json["cpuArchitectures"] = encoded(status.cpu_architectures);
  }
  if (!status.free_nodes.empty()) {
    json["freeNodeShapes"] = encoded(status.free_nodes);
  }
  return json;
}

}  // namespace plimsoll::crds
