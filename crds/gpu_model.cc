#include "crds/gpu_model.h"

#include "base/json/edit.h"
#include "base/quantity.h"
#include "crds/object_header.h"
#include "crds/resource_fields.h"

namespace plimsoll::crds {

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
  const JsonPlace shapes = json["nodeShapes"] = Json(::Json::arrayValue);
  for (const GpuNodeShape& shape : status.nodes) {
    const JsonPlace entry = shapes.append(Json(::Json::objectValue));
    entry["gpusPerNode"] = shape.gpus_per_node;
    entry["nodes"] = shape.nodes;
  }
  const JsonPlace labels = json["productLabels"] = Json(::Json::arrayValue);
  for (const std::string& label : status.product_labels) {
    labels.append(label);
  }
  if (status.memory) {
    json["memory"] = format_bytes(*status.memory);
  }
  if (status.host_memory) {
    json["hostMemory"] = format_bytes(*status.host_memory);
  }
  return json;
}

}  // namespace plimsoll::crds
