#include "tests/controllers/endings.h"

namespace plimsoll::controllers {

std::vector<Ending> endings_of_the_cluster() {
  using enum Verdict;
  return {
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

      // Kueue's reasons (kueue.x-k8s.io/v1beta1, WorkloadEvictedBy...).
      {"KueuePodsReadyTimeout",
       kPreempted,
       {conditioned(ended({.code = 143}), "TerminationTarget", "WorkloadEvictedDueToPodsReadyTimeout",
                    "Exceeded the PodsReady timeout ns/ads")}},
      {"KueueQueueStopped",
       kPreempted,
       {conditioned(ended({.code = 143}), "TerminationTarget", "WorkloadEvictedDueToClusterQueueStopped",
                    "The ClusterQueue is stopped")}},
      {"KueueNodeFailures",
       kInfrastructureFailure,
       {conditioned(ended({.code = 143}), "TerminationTarget", "WorkloadEvictedDueToNodeFailures",
                    "Workload was evicted as there was no replacement for a failed node: gpu-7")}},
      {"KueueMaximumTime",
       kUserError,
       {conditioned(ended({.code = 143}), "TerminationTarget",
                    "WorkloadEvictedDueToMaximumExecutionTimeExceeded",
                    "exceeding the maximum execution time")}},

      // The kubelet's and the controllers' further words.
      {"MemoryPressureAtAdmission", kInfrastructureFailure,
       because("Evicted", "Pod was rejected: The node had condition: [MemoryPressure]. ")},
      {"DiskPressureAtAdmissionInRealWords", kInfrastructureFailure,
       because("Evicted", "The node had condition: [DiskPressure]. ")},
      {"DeviceTaint", kInfrastructureFailure,
       disrupted("DeletionByDeviceTaintManager", "Device Taint manager: deleting due to NoExecute taint")},
      {"OutOfMigSlices", kInfrastructureFailure,
       because("OutOfnvidia.com/mig-1g.10gb",
               "Pod was rejected: Node didn't have enough resource: nvidia.com/mig-1g.10gb, requested: 1, "
               "used: 7, "
               "capacity: 7")},
      {"OutOfDisk", kInfrastructureFailure,
       because("OutOfephemeral-storage", "Node didn't have enough resource: ephemeral-storage")},
      {"TaintToleration", kInfrastructureFailure,
       because("TaintToleration",
               "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate")},
      {"RejectedForAReasonOfTomorrow", kInfrastructureFailure,
       because("SomethingNew", "Pod was rejected: the node cannot run it")},
      {"SpotNodeShutDown", kInfrastructureFailure,
       because("NodeShutdown", "Pod was rejected as the node is shutting down.")},
      {"EmptyDirTooLarge", kUserError,
       because("Evicted", "Usage of EmptyDir volume \"cache\" exceeds the limit \"10Gi\". ")},
      {"NodeLowOnDiskAndThisPodTookMost", kInfrastructureFailure,
       because(
           "Evicted",
           "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 9Gi. "
           "Container trainer was using 200Gi, request is 0, has larger consumption of ephemeral-storage. ")},
      {"NodeRebooted", kInfrastructureFailure, {ended({.code = 255, .reason = "Unknown"})}},
      {"DeletedBeforeItRan", kInfrastructureFailure,
       [] {
         Json made = pod();
         made["metadata"]["deletionTimestamp"] = kTime;
         return std::vector<Json>{made};
       }()},
      {"PreemptedInitContainer",
       kPreempted,
       {conditioned(with(pod(), {.code = 143, .container = "fetch"}, "initContainerStatuses"),
                    "DisruptionTarget", "PreemptionByScheduler", "preempting")}},

      // Devices, links and networks.
      {"HardwareErrorOfALink", kInfrastructureFailure,
       said("RuntimeError: CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error")},
      {"NoGpusThere", kInfrastructureFailure, said("RuntimeError: No CUDA GPUs are available")},
      {"InfiniBand", kInfrastructureFailure,
       said("ads-0-0:118:402 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer "
            "10.0.0.7<45678> with status=12 opcode=32767 len=0 vendor err 129 (Recv)\nRuntimeError: NCCL "
            "Error 6: "
            "remote process exited or there was a network error")},
      {"LockedMemoryOfInfiniBand", kInfrastructureFailure,
       said("NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory\ntorch.distributed."
            "DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2006, unhandled system error")},
      {"StoreBasedBarrier", kInfrastructureFailure,
       said("RuntimeError: Timed out initializing process group in store based barrier on rank: 3, for key: "
            "store_based_barrier_key:1 (world_size=16, worker_count=15, timeout=0:30:00)")},
      {"MonitoredBarrier", kInfrastructureFailure,
       said("RuntimeError: Rank 1 successfully reached monitoredBarrier, but received errors while waiting "
            "for "
            "send/recv from rank 0. Please check rank 0 logs for faulty rank.")},
      {"HubUnreachable", kInfrastructureFailure,
       said("requests.exceptions.ConnectionError: HTTPSConnectionPool(host='huggingface.co', port=443): Max "
            "retries "
            "exceeded with url: /api/models (Caused by NewConnectionError('Failed to establish a new "
            "connection: [Errno 101] Network is unreachable'))")},
      {"WatchdogOfNewTorch",
       kInfrastructureFailure,
       {ended(
           {.code = 134,
            .message =
                "[rank5]:[E1121 08:29:58.100 ProcessGroupNCCL.cpp:632] [Rank 5] Watchdog caught collective "
                "operation timeout: WorkNCCL(SeqNum=412, OpType=ALLREDUCE, Timeout(ms)=600000) ran for "
                "600029 milliseconds before timing out.\nterminate called after throwing an instance of "
                "'c10::DistBackendError'\n  what():  [PG ID 0 PG GUID 0 Rank 5] Process group watchdog "
                "thread terminated with exception: [Rank 5] Watchdog caught collective operation "
                "timeout"})}},
      {"WatchdogsAfterAnotherRanksOutOfMemory",
       kCudaOutOfMemory,
       {ended({.code = 134, .message = "Watchdog caught collective operation timeout", .time = kTime},
              "job-0"),
        ended({.message = kOutOfMemory, .time = "2026-11-21T08:20:00Z"}, "job-1"), deleted(143).front()}},
      {"HeartbeatMonitor",
       kInfrastructureFailure,
       {ended({.code = 134,
               .message =
                   "[rank3]:[E1121 ProcessGroupNCCL.cpp:1375] [Rank 3] First PG on this rank detecting the "
                   "DumpSignal from rank 0 heartbeat monitor timeout. Terminating the process after "
                   "attempting to dump debug info, due to ProcessGroupNCCL watchdog hang."})}},
      {"FabricManagerNotUp", kInfrastructureFailure,
       said("RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet "
            "initialized")},
      {"DriverOfAnotherBranch", kInfrastructureFailure,
       said("RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 803: system has unsupported "
            "display driver "
            "/ cuda driver combination")},
  };
}

}  // namespace plimsoll::controllers
