#include "tests/controllers/endings.h"

namespace plimsoll::controllers {

std::vector<Ending> endings_of_programs() {
  using enum Verdict;
  return {
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

      // Memory that is no GPU's and no host's.
      {"DatabaseOutOfMemory", kUserError,
       said("Traceback (most recent call last):\n  File \"data.py\", line 7, in rows\n    "
            "cursor.execute(query)\n"
            "psycopg2.errors.OutOfMemory: out of memory\nDETAIL:  Failed on request of size 8192 in memory "
            "context "
            "\"ExecutorState\".\n")},
      {"DatabasesSharedMemory", kUserError,
       said("psycopg2.OperationalError: out of shared memory\nHINT:  You might need to increase "
            "max_locks_per_transaction.")},
      {"Redis", kUserError,
       said("redis.exceptions.ResponseError: OOM command not allowed when used memory > 'maxmemory'.")},
      {"RemoteCall", kUserError,
       said("grpc._channel._InactiveRpcError: <_InactiveRpcError of RPC that terminated with:\n\tstatus = "
            "StatusCode.RESOURCE_EXHAUSTED\n\tdetails = \"Received message larger than max (5242880 vs. "
            "4194304)\"")},
      {"StaticTls", kUserError,
       said("ImportError: /usr/lib/x86_64-linux-gnu/libgomp.so.1: cannot allocate memory in static TLS "
            "block")},
      {"InductorWithoutAConfiguration", kUserError,
       said("torch._inductor.exc.InductorError: RuntimeError: No valid triton configs. OutOfMemoryError: out "
            "of "
            "resource: triton_poi_fused_0 Required: 327680 Hardware limit:232448 Reducing block sizes or "
            "`num_stages` may help.")},
      {"FlashAttentionSharedMemory", kUserError,
       said("triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456, "
            "Hardware limit: "
            "101376. Reducing block sizes or `num_stages` may help.")},
      {"RegisteredTwice", kUserError,
       said("RuntimeError: CUDA error: part or all of the requested memory range is already mapped\n"
            "cudaErrorHostMemoryAlreadyRegistered")},
      {"DiskFull", kUserError,
       said("OSError: [Errno 28] No space left on device: '/ckpt/step-200/model.pt'")},

      // Mentioned, and survived.
      {"HandledOutOfMemoryThenAnException", kUserError,
       said(
           "08:10:00 WARNING skipping a batch: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a "
           "total "
           "capacity of 79.15 GiB of which 1.25 GiB is free.\n08:20:00 step 900\nTraceback (most recent call "
           "last):\n  File \"t.py\", line 1, in <module>\nKeyError: 'label'")},
      {"RemarkThatRetries", kUnknown,
       said("retrying after CUDA out of memory with half the batch\nstep 1 loss 0.7\nstep 2 loss 0.6")},
      {"HintOfALibrary", kUserError,
       said("Tip: if you see CUDA out of memory, lower --batch-size\nTraceback (most recent call last):\n  "
            "File "
            "\"t.py\", line 1, in <module>\nValueError: --epochs must be positive")},
      {"NvmlWarningThenAnException", kUserError,
       said("Failed to initialize NVML: Unknown Error\nTraceback (most recent call last):\n  File \"t.py\", "
            "line 1, in "
            "<module>\nAssertionError")},
      {"LostALoggerThenAnException", kUserError,
       said("wandb: Network error (ConnectionError), entering retry loop: Connection refused\nTraceback "
            "(most recent "
            "call last):\n  File \"t.py\", line 1, in <module>\nAttributeError: 'NoneType' object has no "
            "attribute "
            "'shape'")},
      {"IgnoredByPython", kUnknown,
       said("Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f>\nTraceback "
            "(most recent "
            "call last):\n  File \"dataloader.py\", line 1, in __del__\nAssertionError: can only test a "
            "child process")},

      // Launchers say that, not why.
      {"TorchrunWithoutATraceback", kUnknown,
       said("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n=====\ntrain.py "
            "FAILED\n-----\n"
            "Failures:\n  <NO_OTHER_FAILURES>\n-----\nRoot Cause (first observed failure):\n[0]:\n  time     "
            " : "
            "2026-11-21_08:29:59\n  host      : ads-0-0\n  rank      : 0 (local_rank: 0)\n  exitcode  : 1 "
            "(pid: "
            "1886)\n  error_file: <N/A>\n  traceback : To enable traceback see: "
            "https://pytorch.org/docs/stable/"
            "elastic/errors.html\n=====")},
      {"TorchrunWrongUsage", kUserError,
       said("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \nRoot Cause (first observed "
            "failure):\n[0]:\n  rank      : 0 (local_rank: 0)\n  exitcode  : 2 (pid: 1886)\n  error_file: "
            "<N/A>")},
      {"TorchrunSegfault", kUnknown,
       said("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \nRoot Cause (first observed "
            "failure):\n[0]:\n  exitcode  : -11 (pid: 6174)\n  traceback : Signal 11 (SIGSEGV) received by "
            "PID 6174")},
      {"TorchrunRecordedException", kUserError,
       said("Root Cause (first observed failure):\n[0]:\n  exitcode  : 1 (pid: 12)\n  error_file: "
            "/tmp/e.json\n  "
            "traceback : Traceback (most recent call last):\n    File \"/usr/lib/record.py\", line 346, in "
            "wrapper\n"
            "      return f(*args, **kwargs)\n  ValueError: labels must be in [0, 1]\n=====")},
      {"TorchrunKilledTheOthers", kUserError,
       said("Traceback (most recent call last):\n  File \"t.py\", line 1, in <module>\nKeyError: "
            "'labels'\nFailures:\n"
            "[1]:\n  exitcode  : -9 (pid: 118)\n  traceback : Signal 9 (SIGKILL) received by PID 118\nRoot "
            "Cause "
            "(first observed failure):\n[0]:\n  exitcode  : 1 (pid: 117)")},
      {"TorchrunKilledTheOthersWithoutATraceback", kUnknown,
       said("Failures:\n[1]:\n  exitcode  : -9 (pid: 118)\n  traceback : Signal 9 (SIGKILL) received by PID "
            "118\nRoot "
            "Cause (first observed failure):\n[0]:\n  exitcode  : 1 (pid: 117)\n  error_file: <N/A>")},
      {"SpawnTellsTheCause", kUserError,
       said("torch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 3 terminated with the "
            "following "
            "error:\nTraceback (most recent call last):\n  File \"spawn.py\", line 90, in _wrap\n    fn(i, "
            "*args)\n"
            "TypeError: step() missing 1 required positional argument: 'batch'")},
      {"OneRankOfALauncherWithHostNames", kUserError,
       said("worker-1: Traceback (most recent call last):\nworker-1:   File \"train.py\", line 3, in "
            "<module>\n"
            "worker-1: hydra.errors.MissingConfigException: Cannot find primary config\nworker-0: "
            "torch.distributed."
            "DistBackendError: NCCL error in: x.cpp:1, remote process exited")},
      {"OneRankFirstThenItsPeersInOneLog", kUserError,
       said(std::string("[rank1]: Traceback (most recent call last):\n[rank1]:   File \"t.py\", line 2, in "
                        "f\n[rank1]: "
                        "IndexError: list index out of range\n[rank0]: ") +
            kNccl)},

      // Of many causes.
      {"CublasNotInitialized", kUnknown,
       said("RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`")},
      {"UnspecifiedLaunchFailure", kUnknown, said("RuntimeError: CUDA error: unspecified launch failure")},
      {"NoKernelForThisGpu", kUserError,
       said("RuntimeError: CUDA error: no kernel image is available for execution on the device")},
      {"PythonSyntax", kUserError,
       said("  File \"train.py\", line 3\n    x = \n        ^\nSyntaxError: invalid syntax")},
      {"ExceptionOfAnyName", kUserError,
       said("Traceback (most recent call last):\n  File \"t.py\", line 1, in <module>\n    "
            "next(batches)\nStopIteration")},
      {"ForbiddenImage", kUserError,
       waits("ErrImagePull",
             "failed to authorize: failed to fetch oauth token: unexpected status: 403 Forbidden")},
      {"ImageOfAnotherArchitecture", kUserError,
       waits("ImagePullBackOff", "no match for platform in manifest: not found")},
      {"NoCommand", kUserError,
       waits("CreateContainerError", "failed to generate spec: no command specified")},
      {"NotScheduled",
       kRunning,
       {conditioned(pod("job-0", "Pending"), "PodScheduled", "Unschedulable", "0/3 nodes are available")}},
      {"FailureOfASidecarAlone",
       kUserError,
       {with(ended({.code = 0, .reason = "Completed"}),
             {.code = 1, .message = "ValueError: no endpoint", .container = "metrics"})}},
      {"WorkerThatWentWithoutAWord", kUnknown,
       said("RuntimeError: DataLoader worker (pid(s) 3410) exited unexpectedly")},
      {"RefusedByAStore", kUserError,
       said("botocore.exceptions.ClientError: An error occurred (AccessDenied) when calling the GetObject "
            "operation")},
  };
}

}  // namespace plimsoll::controllers
