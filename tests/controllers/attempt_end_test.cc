// A corpus of how attempts end: pod statuses and last words as clusters show them, each with the verdict that
// a person who knows the case would give. The sentences are those of the Kubernetes and framework versions
// that the comments name.
#include "controllers/attempt_end.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controllers/out_of_memory_text.h"

namespace plimsoll::controllers {
namespace {

using ::testing::HasSubstr;

constexpr const char* kTime = "2026-11-21T08:30:00Z";

Json pod(const std::string& name = "job-0", const std::string& phase = "Failed") {
  Json made;
  made["apiVersion"] = "v1";
  made["kind"] = "Pod";
  made["metadata"]["name"] = name;
  made["status"]["phase"] = phase;
  return made;
}

struct End {
  int code = 1;
  std::string message = {};
  std::string reason = "Error";
  std::string time = kTime;
  std::string container = "trainer";
};

Json with(Json made, const End& end, const char* list = "containerStatuses") {
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

Json ended(const End& end, const std::string& name = "job-0") {
  return with(pod(name), end);
}

// A pod whose trainer said this and exited with 1.
std::vector<Json> said(const std::string& message) {
  return {ended({.message = message})};
}

std::vector<Json> exited(int code, const std::string& reason = "Error") {
  return {ended({.code = code, .reason = reason})};
}

Json conditioned(Json made, const std::string& type, const std::string& reason, const std::string& message,
                 const std::string& time = kTime) {
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

// torch 2.1 to 2.9.
constexpr const char* kOutOfMemory =
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
    "79.15 GiB of which 1.25 GiB is free. Including non-PyTorch memory, this process has 77.90 GiB memory in "
    "use. Of the allocated memory 70.50 GiB is allocated by PyTorch, and 5.25 GiB is reserved by PyTorch but "
    "unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.";
constexpr const char* kNccl =
    "torch.distributed.DistBackendError: NCCL error in: "
    "../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1970, "
    "remote process exited or there was a network error, NCCL version 2.21.5\nncclRemoteError: A call failed "
    "possibly due to a network error or a remote process exiting prematurely.";

struct Ending {
  const char* name;
  Verdict verdict;
  std::vector<Json> pods;
};

std::vector<Ending> corpus() {
  using enum Verdict;
  return {
      // PyTorch's allocator, in the spellings of its releases.
      {"Torch2", kCudaOutOfMemory, said(kOutOfMemory)},
      {"Torch2WithRank", kCudaOutOfMemory, said(std::string("[rank3]: ") + kOutOfMemory)},
      {"Torch20Capacty", kCudaOutOfMemory,
       said("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 1 has a total "
            "capacty of 39.39 GiB of which 12.56 MiB is free. Process 2244 has 39.37 GiB memory in use. Of "
            "the "
            "allocated memory 37.10 GiB is allocated by PyTorch, and 1.20 GiB is reserved by PyTorch but "
            "unallocated.")},
      {"Torch113", kCudaOutOfMemory,
       said("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; 15.78 GiB "
            "total capacity; 14.20 GiB already allocated; 312.75 MiB free; 14.38 GiB reserved in total by "
            "PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid "
            "fragmentation.")},
      {"Torch110", kCudaOutOfMemory,
       said("RuntimeError: CUDA out of memory. Tried to allocate 1.95 GiB (GPU 0; 31.75 GiB total capacity; "
            "28.44 GiB already allocated; 1.12 GiB free; 29.50 GiB reserved in total by PyTorch)")},
      {"RaisedAgainWithoutFigures", kCudaOutOfMemory, said("RuntimeError: CUDA out of memory")},
      {"Hip", kCudaOutOfMemory,
       said("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total "
            "capacity "
            "of 191.98 GiB of which 3.10 GiB is free.")},
      {"Xpu", kCudaOutOfMemory,
       said("torch.OutOfMemoryError: XPU out of memory. Tried to allocate 1024.00 MiB. GPU 0 has a total "
            "capacity of 63.98 GiB.")},
      {"TorchrunsSummaryInItsMidst", kCudaOutOfMemory,
       said(std::string("Traceback (most recent call last):\n  File \"train.py\", line 8, in <module>\n") +
            kOutOfMemory +
            "\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError:\ntrain.py FAILED\n")},

      // The libraries below it.
      {"CudaRuntime", kCudaOutOfMemory,
       said("RuntimeError: CUDA error: out of memory\nCUDA kernel errors might "
            "be asynchronously reported at some other API call")},
      {"OldCudaRuntime", kCudaOutOfMemory,
       said("RuntimeError: cuda runtime error (2) : out of memory at "
            "/pytorch/aten/src/THC/THCCachingHost.cpp:278")},
      {"CudaErrorName", kCudaOutOfMemory, said("what():  cudaErrorMemoryAllocation: out of memory")},
      {"Driver", kCudaOutOfMemory, said("cuMemCreate failed: CUDA_ERROR_OUT_OF_MEMORY: out of memory")},
      {"HipErrorName", kCudaOutOfMemory, said("RuntimeError: HIP error: hipErrorOutOfMemory")},
      {"Cublas", kCudaOutOfMemory,
       said("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")},
      {"Cudnn8", kCudaOutOfMemory, said("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED")},
      {"Cudnn9", kCudaOutOfMemory,
       said("RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED")},
      {"Cusolver", kCudaOutOfMemory,
       said("RuntimeError: cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate`")},
      {"Cufft", kCudaOutOfMemory, said("RuntimeError: cuFFT error: CUFFT_ALLOC_FAILED")},
      {"Nccl", kCudaOutOfMemory,
       said(
           "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:207, unhandled cuda error, NCCL "
           "version 2.18.5\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure "
           "'out "
           "of memory'")},
      {"NcclWithNumber", kCudaOutOfMemory,
       said("ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of "
            "memory'")},
      {"CudaMalloc", kCudaOutOfMemory,
       said("ggml_backend_cuda_buffer_type_alloc_buffer: allocating 8192.00 MiB on "
            "device 0: cudaMalloc failed: out of memory")},
      {"Jax", kCudaOutOfMemory,
       said(
           "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate "
           "17179869184 bytes.")},
      {"TensorFlow", kCudaOutOfMemory,
       said("tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with "
            "shape[8192,8192] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator "
            "GPU_0_bfc")},
      {"CrashLoop", kCudaOutOfMemory, crashing(kOutOfMemory)},
      {"ExitedByAbort",
       kCudaOutOfMemory,
       {ended({.code = 134,
               .message = "terminate called after throwing an instance of 'c10::OutOfMemoryError'\n"
                          "  what():  CUDA out of memory. Tried to allocate 1.00 GiB."})}},

      // One rank of several.
      {"AnotherRankRanOutFirst",
       kCudaOutOfMemory,
       {ended({.message = kNccl, .time = "2026-11-21T08:29:58Z"}, "job-0"),
        ended({.message = kOutOfMemory, .time = "2026-11-21T08:30:01Z"}, "job-1"),
        ended({.code = 134, .message = "Watchdog caught collective operation timeout", .time = kTime},
              "job-2")}},
      {"TheOtherIsStillRunning",
       kCudaOutOfMemory,
       {pod("job-0", "Running"), ended({.message = kOutOfMemory})}},
      {"TheRankThatRanOutWasThenEvicted",
       kCudaOutOfMemory,
       {conditioned(ended({.message = kOutOfMemory, .time = "2026-11-21T08:29:00Z"}), "DisruptionTarget",
                    "EvictionByEvictionAPI", "Eviction API: evicting")}},
      {"PreemptedBeforeTheOthersRanOut",
       kPreempted,
       {conditioned(ended({.code = 143}, "job-0"), "DisruptionTarget", "PreemptionByScheduler",
                    "default-scheduler: preempting to accommodate a higher priority pod",
                    "2026-11-21T08:29:00Z"),
        ended({.message = kOutOfMemory}, "job-1")}},
      {"ExceptionOfOneLostPeersOfTheOthers",
       kUserError,
       {ended({.message = kNccl, .time = "2026-11-21T08:29:00Z"}, "job-0"),
        ended({.message = "Traceback (most recent call last):\nValueError: shapes do not match"}, "job-1")}},
      {"SidecarEndedWell",
       kCudaOutOfMemory,
       {with(ended({.message = kOutOfMemory}), {.code = 0, .reason = "Completed", .container = "proxy"})}},

      // The host's memory.
      {"OOMKilled", kHostOutOfMemory, exited(137, "OOMKilled")},
      {"OOMKilledWithZero",
       kHostOutOfMemory,
       {with(ended({.code = 1}), {.code = 137, .reason = "OOMKilled", .container = "loader"})}},
      {"OOMKilledInitContainer",
       kHostOutOfMemory,
       {with(pod(), {.code = 137, .reason = "OOMKilled", .container = "fetch"}, "initContainerStatuses")}},
      {"NodeLowOnMemory", kHostOutOfMemory,
       because("Evicted",
               "The node was low on resource: memory. Threshold quantity: 100Mi, available: 80Mi. "
               "Container trainer was using 480Gi, request is 256Gi, has larger consumption of memory.")},
      {"NodeLowOnMemoryByCondition", kHostOutOfMemory,
       disrupted("TerminationByKubelet",
                 "The node was low on resource: memory. Container trainer was using 480Gi")},
      {"DataLoaderWorkerKilled", kHostOutOfMemory,
       said("RuntimeError: DataLoader worker (pid 4231) is killed by signal: Killed.")},
      {"SharedMemory", kHostOutOfMemory,
       said("RuntimeError: DataLoader worker (pid 99) is killed by signal: Bus error. It is possible that "
            "dataloader's workers are out of shared memory. Please try to raise your shared memory limit.")},
      {"CpuAllocator", kHostOutOfMemory,
       said("RuntimeError: [enforce fail at alloc_cpu.cpp:114] . DefaultCPUAllocator: can't allocate memory: "
            "you "
            "tried to allocate 549755813888 bytes. Error code 12 (Cannot allocate memory)")},
      {"Numpy", kHostOutOfMemory,
       said(
           "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 931. GiB for an array\nMemoryError: "
           "Unable to allocate 931. GiB")},
      {"PythonsOwn", kHostOutOfMemory,
       said("Traceback (most recent call last):\n  File \"a.py\"\nMemoryError")},
      {"Fork", kHostOutOfMemory, said("OSError: [Errno 12] Cannot allocate memory")},
      {"BadAlloc",
       kHostOutOfMemory,
       {ended({.code = 134, .message = "terminate called after throwing an instance of 'std::bad_alloc'"})}},
      {"ChildOfTorchrunKilled", kHostOutOfMemory,
       said("Root Cause (first observed failure):\n[0]:\n  rank      : 3 (local_rank: 3)\n  exitcode  : -9 "
            "(pid: "
            "118)\n  traceback : Signal 9 (SIGKILL) received by PID 118")},
      {"LauncherPassesItOn", kHostOutOfMemory, exited(247)},
      {"CudnnsHostSide", kHostOutOfMemory,
       said("RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED")},
      {"TensorFlowOnTheHost", kHostOutOfMemory,
       said("OOM when allocating tensor with shape[99999,99999] and type float on "
            "/job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu")},

      // Preemption.
      {"Scheduler", kPreempted,
       disrupted("PreemptionByScheduler",
                 "default-scheduler: preempting to accommodate a higher priority pod")},
      {"EvictionApi", kPreempted, disrupted("EvictionByEvictionAPI", "Eviction API: evicting")},
      {"Kueue",
       kPreempted,
       {conditioned(
           ended({.code = 137}), "TerminationTarget", "WorkloadEvictedDueToPreempted",
           "Preempted to accommodate a workload (UID: 5c02) due to prioritization in the ClusterQueue")}},
      {"KubeletForCriticalPod", kPreempted,
       because("Preempting", "Preempted in order to admit critical pod")},
      {"EvictedByAnOperator", kPreempted, because("Evicted", "")},
      {"DescheduledPod", kPreempted, disrupted("EvictionByEvictionAPI", "pod evicted by descheduler")},
      {"PreemptedWhileTalkingToPeers",
       kPreempted,
       {conditioned(ended({.message = kNccl}), "DisruptionTarget", "PreemptionByScheduler", "preempting",
                    "2026-11-21T08:30:02Z")}},
      {"PreemptedBeforeItRan",
       kPreempted,
       {conditioned(pod("job-0", "Pending"), "DisruptionTarget", "PreemptionByScheduler", "preempting")}},

      // The infrastructure.
      {"NodeGone", kInfrastructureFailure, disrupted("DeletionByPodGC", "PodGC: node no longer exists")},
      {"NodeNotReady", kInfrastructureFailure,
       disrupted("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")},
      {"NodeShutdown", kInfrastructureFailure,
       because("Terminated", "Pod was terminated in response to imminent node shutdown.")},
      {"NodeShutdownByCondition", kInfrastructureFailure,
       disrupted("TerminationByKubelet", "Pod was terminated in response to imminent node shutdown.")},
      {"DiskPressure", kInfrastructureFailure,
       because("Evicted", "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi")},
      {"DiskPressureAtAdmission", kInfrastructureFailure,
       because("Evicted", "The node had condition: [DiskPressure]. The node condition forbids it")},
      {"NoDevice", kInfrastructureFailure,
       because("UnexpectedAdmissionError",
               "Allocate failed due to requested number of devices unavailable for "
               "nvidia.com/gpu. Requested: 8, Available: 7, which is unexpected")},
      {"OutOfGpu", kInfrastructureFailure,
       because("OutOfnvidia.com/gpu",
               "Node didn't have enough resource: nvidia.com/gpu, requested: 8, used: 8")},
      {"OutOfMemoryAtAdmission", kInfrastructureFailure,
       because("OutOfmemory", "Node didn't have enough resource: memory, requested: 68719476736")},
      {"NodeAffinity", kInfrastructureFailure,
       because("NodeAffinity",
               "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector")},
      {"NodeLost", kInfrastructureFailure,
       because("NodeLost", "Node gpu-7 which was running pod job-0 is unresponsive")},
      {"PhaseUnknown", kInfrastructureFailure, {pod("job-0", "Unknown")}},
      {"StatusUnknown",
       kInfrastructureFailure,
       {ended({.code = 137,
               .message = "The container could not be located when the pod was terminated",
               .reason = "ContainerStatusUnknown"})}},
      {"NoPods", kInfrastructureFailure, {}},
      {"Ecc", kInfrastructureFailure, said("RuntimeError: CUDA error: uncorrectable ECC error encountered")},
      {"CardLost", kInfrastructureFailure,
       said("Unable to determine the device handle for GPU 0000:B1:00.0: GPU is "
            "lost. Reboot the system to recover this GPU")},
      {"DriverTooOld", kInfrastructureFailure,
       said("RuntimeError: The NVIDIA driver on your system is too old. CUDA driver version is insufficient "
            "for "
            "CUDA runtime version")},
      {"Busy", kInfrastructureFailure,
       said("RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable")},
      {"NcclOnly", kInfrastructureFailure, said(kNccl)},
      {"Watchdog",
       kInfrastructureFailure,
       {ended({.code = 134,
               .message = "[Rank 5] Watchdog caught collective operation timeout: "
                          "WorkNCCL(SeqNum=412, OpType=ALLREDUCE) ran for 600029 milliseconds"})}},
      {"Gloo", kInfrastructureFailure,
       said("RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
            "[10.0.3.7]:41231")},
      {"Rendezvous", kInfrastructureFailure,
       said("torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError")},
      {"Dns", kInfrastructureFailure,
       said(
           "torch.distributed.DistNetworkError: The IPv6 network addresses of (ads-0-0.ads, 29500) cannot be "
           "retrieved (gai error: -2 - Name or service not known).")},
      {"DeletedByHand", kInfrastructureFailure, deleted(143)},
      {"KilledInDeletion", kInfrastructureFailure, deleted(137)},
      {"NvidiaHook",
       kInfrastructureFailure,
       {ended({.code = 128,
               .message = "failed to create shim task: OCI runtime create failed: nvidia-container-cli: "
                          "initialization error: nvml error: driver not loaded",
               .reason = "StartError"})}},
      {"Storage", kInfrastructureFailure,
       said("OSError: [Errno 116] Stale file handle: '/mnt/ckpt/step-200'")},

      // Sharding.
      {"TorchrecPlanner", kShardingFailure,
       said("torchrec.distributed.planner.types.PlannerError: Unable to find a plan for this model are "
            "evaluated. "
            "There are possible options...")},
      {"TorchrecStorage", kShardingFailure,
       said("PlannerErrorType.INSUFFICIENT_STORAGE: Table of size 200 GB cannot be added to any rank")},

      // The user's.
      {"ModuleNotFound", kUserError,
       said("Traceback (most recent call last):\nModuleNotFoundError: No module named 'transformers'")},
      {"AnyException", kUserError, said("Traceback (most recent call last):\n[rank0]: KeyError: 'labels'")},
      {"DeviceAssert", kUserError, said("RuntimeError: CUDA error: device-side assert triggered")},
      {"IllegalAddress", kUserError,
       said("RuntimeError: CUDA error: an illegal memory access was encountered")},
      {"TritonSharedMemory", kUserError,
       said(
           "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 114688, Hardware "
           "limit: 101376.")},
      {"NoSuchFile", kUserError,
       said("FileNotFoundError: [Errno 2] No such file or directory: '/data/train'")},
      {"NotFoundByTheShell", kUserError, exited(127)},
      {"NotExecutable", kUserError, exited(126)},
      {"WrongUsage", kUserError, exited(2)},
      {"NoSuchProgram",
       kUserError,
       {ended({.code = 128,
               .message = "failed to create containerd task: OCI runtime create failed: exec: "
                          "\"torchrunn\": executable file not found in $PATH",
               .reason = "StartError"})}},
      {"WrongImage", kUserError,
       waits("ImagePullBackOff", "Back-off pulling image \"acme/train:v9\": rpc error: manifest unknown")},
      {"InvalidImage", kUserError,
       waits("InvalidImageName", "Failed to apply default image tag \"Acme/Train\"")},
      {"NoConfigMap", kUserError, waits("CreateContainerConfigError", "configmap \"tables\" not found")},
      {"TooMuchOfItsOwnDisk", kUserError,
       because("Evicted", "Pod ephemeral local storage usage exceeds the total limit of containers 10Gi.")},
      {"ItsOwnDeadline", kUserError,
       because("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")},
      {"RemarkOnMemoryThenAnException", kUserError,
       said("WARNING: CUDA out of memory caught, halving the batch\nTraceback:\nIndexError: list index out "
            "of range")},

      // Neither.
      {"AllDone", kSucceeded, {pod("job-0", "Succeeded"), pod("job-1", "Succeeded")}},
      {"DoneInSpiteOfARemark",
       kSucceeded,
       {with(pod("job-0", "Succeeded"), {.code = 0, .message = kOutOfMemory, .reason = "Completed"})}},
      {"OneStillRuns", kRunning, {pod("job-0", "Succeeded"), pod("job-1", "Running")}},
      {"Pending", kRunning, {pod("job-0", "Pending")}},
      {"PullingMayYetWork", kRunning, waits("ErrImagePull", "dial tcp 10.0.0.1:443: i/o timeout")},
      {"Killed", kUnknown, exited(137)},
      {"Terminated", kUnknown, exited(143)},
      {"Segfault", kUnknown, exited(139)},
      {"OneWithoutAWord", kUnknown, exited(1)},
      {"FailedWithoutAStatus", kUnknown, {pod()}},
  };
}

TEST(AttemptEnd, CorpusIsJudgedAsAPersonWould) {
  const std::vector<Ending> endings = corpus();
  EXPECT_GE(endings.size(), 80U);
  for (const Ending& ending : endings) {
    const AttemptEnd end = classify(ending.pods);
    EXPECT_STREQ(name_of(end.verdict), name_of(ending.verdict)) << ending.name << ": " << end.evidence.text;
    // In whatever order the API lists them.
    std::vector<Json> reversed(ending.pods.rbegin(), ending.pods.rend());
    EXPECT_EQ(classify(reversed).verdict, ending.verdict) << ending.name << ", in reverse";
  }
}

TEST(AttemptEnd, ShowsWhatItGoesBy) {
  const AttemptEnd end = classify({ended({.message = kNccl}, "job-0"),
                                   ended({.message = std::string("loading\n") + kOutOfMemory}, "job-1")});
  EXPECT_EQ(end.evidence.pod, "job-1");
  EXPECT_EQ(end.evidence.container, "trainer");
  EXPECT_EQ(end.evidence.field, "status.containerStatuses[trainer].state.terminated.message");
  EXPECT_THAT(end.evidence.text, HasSubstr("CUDA out of memory. Tried to allocate 2.00 GiB."));
  EXPECT_LE(end.evidence.text.size(), 300U);
}

TEST(AttemptEnd, ALogSaysWhatTheStatusDoesNot) {
  const std::vector<Json> pods = {ended({.code = 1}, "job-0"), ended({.code = 1}, "job-1")};
  EXPECT_EQ(classify(pods).verdict, Verdict::kUnknown);
  const AttemptEnd end = classify(pods, {{.pod = "job-1", .container = "", .text = kOutOfMemory}});
  EXPECT_EQ(end.verdict, Verdict::kCudaOutOfMemory);
  EXPECT_EQ(end.evidence.pod, "job-1");
  EXPECT_EQ(end.evidence.field, "log");
  EXPECT_EQ(classify(pods, {{.pod = "job-7", .container = "", .text = kOutOfMemory}}).verdict,
            Verdict::kUnknown);
}

TEST(AttemptEnd, SurvivesStatusesOfNonsense) {
  const std::vector<Json> values = {Json(),     Json(5),     Json("x"), Json(::Json::arrayValue),
                                    Json(true), Json(1e300), Json(-1),  Json(::Json::objectValue)};
  for (const Json& value : values) {
    for (const char* field : {"metadata", "status"}) {
      Json odd = ended({.message = kOutOfMemory});
      odd[field] = value;
      classify({odd, value});
    }
    for (const char* field : {"phase", "reason", "message", "conditions", "containerStatuses"}) {
      Json odd = ended({.message = kOutOfMemory});
      odd["status"][field] = value;
      classify({odd});
    }
    Json odd = ended({.message = kOutOfMemory});
    Json& state = odd["status"]["containerStatuses"][0]["state"];
    state["terminated"]["exitCode"] = value;
    classify({odd});
    state["terminated"] = value;
    classify({odd});
    state = value;
    classify({odd});
  }
}

struct Figures {
  const char* text;
  std::optional<double> needed;  // GiB
  std::optional<double> capacity;
  std::optional<double> fragmentation;
};

TEST(OutOfMemoryText, ReadsTheFiguresOfEachSpelling) {
  const std::vector<Figures> all = {
      {kOutOfMemory, 79.90, 79.15, 5.25},
      {"CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; 15.78 GiB total capacity; 14.20 GiB already "
       "allocated; 312.75 MiB free; 14.38 GiB reserved in total by PyTorch)",
       14.88, 15.78, 0.18},
      // Who holds what is not said of this process: all that is not free.
      {"CUDA out of memory. Tried to allocate 1.00 GiB. GPU 1 has a total capacty of 40.00 GiB of which 0.50 "
       "GiB "
       "is free. Process 22 has 39.00 GiB memory in use. Of the allocated memory 37.10 GiB is allocated by "
       "PyTorch, and 1.25 GiB is reserved by PyTorch but unallocated.",
       40.50, 40.00, 1.25},
      {"CUDA out of memory. Tried to allocate 512 bytes.", {}, {}, {}},
      {"RuntimeError: CUDA error: out of memory", {}, {}, {}},
      {"CUDA out of memory. Tried to allocate nan GiB. GPU 0 has a total capacity of -1 GiB of which",
       {},
       {},
       {}},
      {"CUDA out of memory. Tried to allocate 1e308 GiB. this process has 1e308 GiB memory in use",
       8589934592.0,
       {},
       {}},
  };
  for (const Figures& figures : all) {
    const std::optional<OutOfMemoryText> found = find_out_of_memory(figures.text);
    ASSERT_TRUE(found) << figures.text;
    EXPECT_TRUE(found->of_gpu);
    const auto expect = [&](const std::optional<Bytes>& is, const std::optional<double>& wanted) {
      ASSERT_EQ(is.has_value(), wanted.has_value()) << figures.text;
      if (is) {
        EXPECT_NEAR(static_cast<double>(is->count) / 0x1p30, *wanted, 0.001) << figures.text;
      }
    };
    expect(found->needed, figures.needed);
    expect(found->capacity, figures.capacity);
    expect(found->fragmentation, figures.fragmentation);
  }
}

TEST(OutOfMemoryText, DoesNotMixTwoRanksFigures) {
  const std::string two =
      "CUDA out of memory. Tried to allocate 1.00 GiB.\nCUDA out of memory. Tried to allocate 7.00 GiB. GPU "
      "0 has a "
      "total capacity of 10.00 GiB of which 1.00 GiB is free.";
  EXPECT_FALSE(find_out_of_memory(two)->capacity.has_value());
}

TEST(OutOfMemoryText, LinesAreCutAroundTheirPlace) {
  const std::string text = "first\n" + std::string(1000, 'a') + "HERE" + std::string(1000, 'b') + "\r\nlast";
  const std::string line = line_at(text, text.find("HERE"));
  EXPECT_EQ(line.size(), 300U);
  EXPECT_THAT(line, HasSubstr("HERE"));
  EXPECT_EQ(line_at(text, 2), "first");
  EXPECT_EQ(line_at(text, text.size() - 1), "last");
  EXPECT_EQ(line_at("\nx", 0), "");
}

TEST(OutOfMemoryText, EveryBeginningOfALongTextIsRead) {
  const std::string text = std::string(kOutOfMemory) + "\n" + kNccl;
  for (std::size_t length = 0; length <= text.size(); ++length) {
    find_out_of_memory(std::string_view(text).substr(0, length));
    line_at(std::string_view(text).substr(0, length), length / 2, 40);
  }
}

}  // namespace
}  // namespace plimsoll::controllers
