#include "tests/controllers/endings.h"

namespace plimsoll::controllers {

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

std::vector<Json> said(const std::string& message) {
  return {ended({.message = message})};
}

std::vector<Json> exited(int code, const std::string& reason) {
  return {ended({.code = code, .reason = reason})};
}

Json conditioned(Json made, const std::string& type, const std::string& reason, const std::string& message,
                 const std::string& time) {
  Json condition;
  condition["type"] = type;
  condition["status"] = "True";
  condition["reason"] = reason;
  condition["message"] = message;
  condition["lastTransitionTime"] = time;
  made["status"]["conditions"].append(condition);
  return made;
}

std::vector<Json> disrupted(const std::string& reason, const std::string& message) {
  return {conditioned(ended({.code = 143}), "DisruptionTarget", reason, message)};
}

std::vector<Json> because(const std::string& reason, const std::string& message) {
  Json made = pod();
  made["status"]["reason"] = reason;
  made["status"]["message"] = message;
  return {made};
}

std::vector<Json> waits(const std::string& reason, const std::string& message) {
  Json made = pod("job-0", "Pending");
  Json status;
  status["name"] = "trainer";
  status["state"]["waiting"]["reason"] = reason;
  status["state"]["waiting"]["message"] = message;
  made["status"]["containerStatuses"].append(status);
  return {made};
}

std::vector<Json> deleted(int code) {
  Json made = ended({.code = code});
  made["metadata"]["deletionTimestamp"] = kTime;
  return {made};
}

std::vector<Json> crashing(const std::string& message) {
  Json made = pod("job-0", "Running");
  Json status;
  status["name"] = "trainer";
  status["state"]["waiting"]["reason"] = "CrashLoopBackOff";
  status["lastState"]["terminated"]["exitCode"] = 1;
  status["lastState"]["terminated"]["message"] = message;
  made["status"]["containerStatuses"].append(status);
  return {made};
}

}  // namespace plimsoll::controllers
