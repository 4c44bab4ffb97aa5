#include "tests/remediation/endings.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/yaml.h"
#include "tests/checkout.h"

namespace plimsoll::remediation {

const char* const kOutOfMemory =
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
    "79.15 GiB of which 1.25 GiB is free. Including non-PyTorch memory, this process has 77.90 GiB memory in "
    "use. Of the allocated memory 70.50 GiB is allocated by PyTorch, and 5.25 GiB is reserved by PyTorch but "
    "unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.";
const char* const kNccl =
    "torch.distributed.DistBackendError: NCCL error in: "
    "../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1970, "
    "remote process exited or there was a network error, NCCL version 2.21.5\nncclRemoteError: A call failed "
    "possibly due to a network error or a remote process exiting prematurely.";

Json pod(const std::string& name, const std::string& phase) {
  Json made;
  made["apiVersion"] = "v1";
  made["kind"] = "Pod";
  made["metadata"]["name"] = name;
  made["status"]["phase"] = phase;
  return made;
}

Json with(Json made, const End& end, const char* list) {
  Json status;
  status["name"] = end.container;
  Json& terminated = status["state"]["terminated"];
  terminated["exitCode"] = end.code;
  terminated["reason"] = end.reason;
  terminated["finishedAt"] = end.time;
  if (!end.message.empty()) {
    terminated["message"] = end.message;
  }
  made["status"][list].append(status);
  return made;
}

Json ended(const End& end, const std::string& name) {
  return with(pod(name), end);
}

namespace {

End end_of(const Json& row) {
  return {.code = row.get("code", 1).asInt(),
          .message = row.get("message", "").asString(),
          .reason = row.get("reason", "Error").asString(),
          .time = row.get("time", kTime).asString(),
          .container = row.get("container", "trainer").asString()};
}

Json condition_of(const Json& row) {
  Json condition;
  condition["type"] = row.get("type", "DisruptionTarget");
  condition["status"] = "True";
  condition["reason"] = row["reason"];
  condition["message"] = row["message"];
  condition["lastTransitionTime"] = row.get("time", kTime);
  return condition;
}

Json pod_of(const Json& row) {
  Json made = pod(row.get("name", "job-0").asString(), row.get("phase", "Failed").asString());
  Json& status = made["status"];
  for (const char* field : {"reason", "message"}) {
    if (row.isMember(field)) {
      status[field] = row[field];
    }
  }
  if (row.isMember("deleted")) {
    made["metadata"]["deletionTimestamp"] = kTime;
  }
  if (row.isMember("condition")) {
    status["conditions"].append(condition_of(row["condition"]));
  }
  if (row.isMember("waiting")) {
    Json trainer;
    trainer["name"] = "trainer";
    trainer["state"]["waiting"] = row["waiting"];
    status["containerStatuses"].append(trainer);
  }
  if (row.isMember("crashLooping")) {
    Json trainer;
    trainer["name"] = "trainer";
    trainer["state"]["waiting"]["reason"] = "CrashLoopBackOff";
    trainer["lastState"]["terminated"]["exitCode"] = 1;
    trainer["lastState"]["terminated"]["message"] = row["crashLooping"];
    status["containerStatuses"].append(trainer);
  }
  for (const Json& end : row["ended"]) {
    made = with(made, end_of(end));
  }
  for (const Json& end : row["initEnded"]) {
    made = with(made, end_of(end), "initContainerStatuses");
  }
  return made;
}

}  // namespace

std::vector<Ending> read_endings(const std::string& name) {
  std::ifstream file(PLIMSOLL_SOURCE_DIR "/tests/remediation/" + name);
  std::ostringstream text;
  text << file.rdbuf();
  const Result<std::vector<Json>> documents = parse_yaml_documents(text.str());
  EXPECT_TRUE(documents && documents->size() == 1) << name << " is a list";
  std::vector<Ending> endings;
  for (const Json& row : documents ? documents->front() : Json()) {
    Ending ending{.name = row["name"].asString(), .outcome = row["outcome"].asString(), .pods = {}};
    ending.shared_memory = row.get("sharedMemory", false).asBool();
    if (row.isMember("message")) {
      ending.pods.push_back(ended({.message = row["message"].asString()}));
    }
    for (const Json& each : row["pods"]) {
      ending.pods.push_back(pod_of(each));
    }
    endings.push_back(std::move(ending));
  }
  return endings;
}

}  // namespace plimsoll::remediation
