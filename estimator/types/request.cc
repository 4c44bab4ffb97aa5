#include "estimator/types/request.h"

#include "base/json/edit.h"

namespace plimsoll::estimator::inline types {

Bytes Breakdown::total() const {
  return parameters + gradients + optimizer_state + inputs + activations + temporaries + ddp_buckets +
         embeddings + allocator_slack + workspace + communication + cuda_context;
}

Json to_json(const Peak& peak) {
  JsonObject json;
  json["allocatedBytes"] = Json::Int64(peak.allocated.count);
  json["reservedBytes"] = Json::Int64(peak.reserved.count);
  json["upperBoundBytes"] = Json::Int64(peak.upper_bound.count);
  return json;
}

Json to_json(const std::vector<Bytes>& allocated_by_rank) {
  JsonArray json;
  for (const Bytes allocated : allocated_by_rank) {
    json.append(::Json::objectValue)["allocatedBytes"] = Json::Int64(allocated.count);
  }
  return json;
}

Json to_json(const Breakdown& breakdown) {
  JsonObject json;
  json["parametersBytes"] = Json::Int64(breakdown.parameters.count);
  json["gradientsBytes"] = Json::Int64(breakdown.gradients.count);
  json["optimizerStateBytes"] = Json::Int64(breakdown.optimizer_state.count);
  json["inputsBytes"] = Json::Int64(breakdown.inputs.count);
  json["activationsBytes"] = Json::Int64(breakdown.activations.count);
  json["temporariesBytes"] = Json::Int64(breakdown.temporaries.count);
  json["ddpBucketsBytes"] = Json::Int64(breakdown.ddp_buckets.count);
  json["embeddingsBytes"] = Json::Int64(breakdown.embeddings.count);
  json["allocatorSlackBytes"] = Json::Int64(breakdown.allocator_slack.count);
  json["workspaceBytes"] = Json::Int64(breakdown.workspace.count);
  json["communicationBytes"] = Json::Int64(breakdown.communication.count);
  json["cudaContextBytes"] = Json::Int64(breakdown.cuda_context.count);
  return json;
}

Json to_json(const InitialPeak& initial) {
  JsonObject json;
  json["where"] = crds::name_of(initial.where);
  json["upperBoundBytes"] = Json::Int64(initial.upper_bound.count);
  if (initial.on_cpu) {
    json["onCpuUpperBoundBytes"] = Json::Int64(initial.on_cpu->count);
  }
  if (initial.on_gpu) {
    json["onGpuUpperBoundBytes"] = Json::Int64(initial.on_gpu->count);
  }
  return json;
}

Json to_json(const HostMemory& host) {
  JsonObject json;
  json["parameters"] = Json::Int64(host.parameters.count);
  json["gradients"] = Json::Int64(host.gradients.count);
  json["optimizerState"] = Json::Int64(host.optimizer_state.count);
  json["checkpoint"] = Json::Int64(host.checkpoint.count);
  return json;
}

Json to_json(const std::vector<LiveTensor>& tensors) {
  JsonArray json;
  for (const LiveTensor& tensor : tensors) {
    JsonObject each;
    each["name"] = tensor.name;
    each["kind"] = tensor.kind;
    each["bytes"] = Json::Int64(tensor.bytes.count);
    json.append(std::move(each));
  }
  return json;
}

Json to_json(const std::vector<Margin>& margins) {
  JsonArray json;
  for (const Margin& margin : margins) {
    JsonObject each;
    each["name"] = margin.name;
    each["bytes"] = Json::Int64(margin.bytes.count);
    each["source"] = margin.source;
    json.append(std::move(each));
  }
  return json;
}

}  // namespace plimsoll::estimator::types
