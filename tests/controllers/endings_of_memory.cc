#include "tests/controllers/endings.h"

namespace plimsoll::controllers {

std::vector<Ending> endings_of_memory() {
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
      {"OldCudaRuntimeForPinnedMemory", kHostOutOfMemory,
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

      // PyTorch's allocator, further spellings.
      {"Torch13Cached", kCudaOutOfMemory,
       said(
           "RuntimeError: CUDA out of memory. Tried to allocate 256.00 MiB (GPU 0; 10.91 GiB total capacity; "
           "9.50 GiB already allocated; 3.25 MiB free; 512.00 MiB cached)")},
      {"NameWithoutModule", kCudaOutOfMemory,
       said("OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB. GPU 0 has a total capacity "
            "of "
            "47.53 GiB of which 16.88 MiB is free. Process 3652628 has 47.51 GiB memory in use.")},
      {"MoreThanAnExabyte", kCudaOutOfMemory,
       said("RuntimeError: CUDA out of memory. Tried to allocate more than 1EB memory.")},
      {"Npu", kCudaOutOfMemory,
       said("RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 60.97 GiB total capacity; "
            "58.10 GiB already allocated; 58.10 GiB current active; 1.01 GiB free; 58.90 GiB reserved in "
            "total "
            "by PyTorch)")},
      {"TailThatBeginsWithinTheSentence", kCudaOutOfMemory,
       said(
           "l capacity of 79.15 GiB of which 1.25 GiB is free. Including non-PyTorch memory, this process "
           "has "
           "77.90 GiB memory in use. Of the allocated memory 70.50 GiB is allocated by PyTorch, and 5.25 GiB "
           "is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
           "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.")},
      {"TailThatBeginsNearItsEnd", kCudaOutOfMemory,
       said("ryTorch but unallocated. If reserved but unallocated memory is large try setting "
            "PYTORCH_ALLOC_CONF="
            "expandable_segments:True to avoid fragmentation.  See documentation for Memory Management")},
      {"HeadCutOff", kCudaOutOfMemory, said("torch.cuda.OutOfMemoryError: CUDA out of mem")},
      {"DataParallelReplica", kCudaOutOfMemory,
       said("torch.cuda.OutOfMemoryError: Caught OutOfMemoryError in replica 1 on device 1.\nOriginal "
            "Traceback "
            "(most recent call last):\n  File \"parallel_apply.py\", line 64, in _worker\n    output = "
            "module(*input, **kwargs)")},
      {"LoggedBeforeExitOne", kCudaOutOfMemory,
       said("2026-11-21 08:29:59 | ERROR    | __main__:main:88 - CUDA out of memory. Tried to allocate 2.00 "
            "GiB. "
            "GPU 0 has a total capacity of 79.15 GiB of which 1.25 GiB is free.")},
      {"AccelerateReachedZero", kCudaOutOfMemory,
       said("RuntimeError: No executable batch size found, reached zero.")},
      {"WithTerminalColours", kCudaOutOfMemory,
       said(
           "\x1b[36m(RayTrainWorker pid=812, ip=10.0.3.7)\x1b[0m torch.OutOfMemoryError: CUDA out of memory. "
           "Tried to allocate 2.00 GiB.")},
      {"ThroughAccelerate", kCudaOutOfMemory,
       said(
           std::string(kOutOfMemory) +
           "\nTraceback (most recent call last):\n  File \"/opt/conda/bin/accelerate\", line 8, in "
           "<module>\n    "
           "sys.exit(main())\nsubprocess.CalledProcessError: Command '['/opt/conda/bin/python', 'train.py']' "
           "returned non-zero exit status 1.")},
      {"AnotherExceptionWhileHandlingIt", kCudaOutOfMemory,
       said(std::string(
                "Traceback (most recent call last):\n  File \"t.py\", line 5, in <module>\n    step()\n") +
            kOutOfMemory +
            "\n\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most "
            "recent "
            "call last):\n  File \"t.py\", line 9, in <module>\n    save()\nRuntimeError: could not save the "
            "emergency checkpoint")},
      {"TorchrunRecordsTheTraceback", kCudaOutOfMemory,
       said(
           "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \ntrain.py FAILED\nFailures:\n"
           "[1]:\n  rank      : 0 (local_rank: 0)\n  exitcode  : -15 (pid: 11)\n  traceback : Signal 15 "
           "(SIGTERM) received by PID 11\nRoot Cause (first observed failure):\n[0]:\n  rank      : 1 "
           "(local_rank: 1)\n  exitcode  : 1 (pid: 12)\n  error_file: /tmp/torchelastic_a/none_b/attempt_0/1/"
           "error.json\n  traceback : Traceback (most recent call last):\n    File \"train.py\", line 3, in "
           "main\n"
           "      loss.backward()\n  torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 "
           "GiB.")},

      // What is built on CUDA.
      {"Bitsandbytes", kCudaOutOfMemory,
       said("Error out of memory at line 380 in file /src/csrc/pythonInterface.c")},
      {"Cupy", kCudaOutOfMemory,
       said("cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,589,934,592 bytes (allocated so "
            "far: "
            "34,359,738,368 bytes).")},
      {"Rmm", kCudaOutOfMemory,
       said("MemoryError: std::bad_alloc: out_of_memory: CUDA error at: "
            "/rmm/mr/device/cuda_memory_resource.hpp:"
            "70: cudaErrorMemoryAllocation out of memory")},
      {"RmmInCpp",
       kCudaOutOfMemory,
       {ended({.code = 134,
               .message =
                   "terminate called after throwing an instance of 'thrust::system::detail::bad_alloc'\n"
                   "  what():  std::bad_alloc: cudaErrorMemoryAllocation: out of memory"})}},
      {"TritonDriver", kCudaOutOfMemory, said("RuntimeError: Triton Error [CUDA]: out of memory")},
      {"OnnxRuntime", kCudaOutOfMemory,
       said("onnxruntime.capi.onnxruntime_pybind11_state.RuntimeException: [ONNXRuntimeError] : 6 : CUDA "
            "failure 2: "
            "out of memory ; GPU=0 ; hostname=ads-0-0 ; expr=cudaMalloc((void**)&p, size);")},
      {"Paddle", kCudaOutOfMemory,
       said("ResourceExhaustedError: \n\nOut of memory error on GPU 0. Cannot allocate 1.171875GB memory on "
            "GPU 0, "
            "15.78GB memory has been allocated and available memory is only 600.00MB.")},
      {"Numba", kCudaOutOfMemory,
       said("numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemAlloc results in "
            "CUDA_ERROR_OUT_OF_MEMORY")},
      {"Pycuda", kCudaOutOfMemory, said("pycuda._driver.MemoryError: cuMemAlloc failed: out of memory")},
      {"OldNcclAllocation", kCudaOutOfMemory,
       said("ads-0-0:118:402 [3] include/alloc.h:185 NCCL WARN Failed to CUDA calloc async 4 "
            "bytes\nRuntimeError: "
            "NCCL error in: ProcessGroupNCCL.cpp:1269, unhandled cuda error, NCCL version 2.14.3")},
      {"HipRuntime", kCudaOutOfMemory, said("RuntimeError: HIP error: out of memory")},
      {"RocmAgent",
       kCudaOutOfMemory,
       {ended({.code = 134,
               .message = "Callback: Queue 0x7f aborting with error : HSA_STATUS_ERROR_OUT_OF_RESOURCES: The "
                          "runtime failed to allocate the necessary resources. code: 0x1008"})}},
      {"XlaAllocating", kCudaOutOfMemory,
       said("jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 17179869184 bytes.")},
      {"XlaRequest", kCudaOutOfMemory,
       said("XlaRuntimeError: RESOURCE_EXHAUSTED: Failed to allocate request for 16.00GiB (17179869184B) on "
            "device "
            "ordinal 0: BufferAssignment OOM Debugging.")},
      {"XlaTpu", kCudaOutOfMemory,
       said(
           "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used "
           "18.30G of 15.48G hbm.")},
      {"TensorFlowsAllocatorOfAnotherGpu", kCudaOutOfMemory,
       said("W tensorflow/tsl/framework/bfc_allocator.cc:485] Allocator (GPU_3_bfc) ran out of memory trying "
            "to "
            "allocate 2.00GiB (rounded to 2147483648)requested by op model/dense/MatMul")},
      {"Cublaslt", kCudaOutOfMemory,
       said("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasLtCreate(&handle)`")},

      // Pinned memory is the host's, whatever the driver calls it.
      {"PinMemoryThread", kHostOutOfMemory,
       said("RuntimeError: Caught RuntimeError in pin memory thread for device 0.\nOriginal Traceback (most "
            "recent "
            "call last):\n  File \"pin_memory.py\", line 37, in do_one_step\n    data = pin_memory(data, "
            "device)\n"
            "  File \"pin_memory.py\", line 58, in pin_memory\n    return "
            "data.pin_memory(device)\nRuntimeError: "
            "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported")},

      // The host's memory, in other words.
      {"ShellSaysKilled",
       kHostOutOfMemory,
       {ended({.code = 137,
               .message = "step 12 loss 0.31\n/run.sh: line 3:    17 Killed                  python "
                          "train.py"})}},
      {"OnlyKilled", kHostOutOfMemory, {ended({.code = 137, .message = "step 12\nKilled\n"})}},
      {"DeepSpeedLauncher", kHostOutOfMemory,
       said("[2026-11-21 08:29:58,813] [INFO] [launch.py:319:sigkill_handler] Killing subprocess "
            "812\n[2026-11-21 "
            "08:29:59,001] [ERROR] [launch.py:325:sigkill_handler] ['/usr/bin/python', '-u', 'train.py'] "
            "exits "
            "with return code = -9")},
      {"Spawn", kHostOutOfMemory,
       said("torch.multiprocessing.spawn.ProcessExitedException: process 3 terminated with signal SIGKILL")},
      {"AccelerateChildKilled", kHostOutOfMemory,
       said("subprocess.CalledProcessError: Command '['python', 'train.py']' died with <Signals.SIGKILL: "
            "9>.")},
      {"TorchrunsLog", kHostOutOfMemory,
       said("E1121 08:29:59.100000 12 torch/distributed/elastic/multiprocessing/api.py:869] failed "
            "(exitcode: -9) "
            "local_rank: 3 (pid: 118) of binary: /usr/bin/python3")},
      {"Ray", kHostOutOfMemory,
       said(
           "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\nMemory "
           "on the "
           "node (IP: 10.0.0.7) was 60.76GB / 64.00GB (0.949475), which exceeds the memory usage threshold")},
      {"Arrow", kHostOutOfMemory, said("pyarrow.lib.ArrowMemoryError: malloc of size 68719476736 failed")},
      {"Numpy2", kHostOutOfMemory,
       said("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 931. GiB for an array with shape "
            "(125000000000,) and data type float64")},
      {"MemoryErrorOfOneRank", kHostOutOfMemory,
       said("[rank2]: Traceback (most recent call last):\n[rank2]:   File \"a.py\", line 3, in "
            "<module>\n[rank2]: "
            "MemoryError")},
      {"MmapOfACheckpoint", kHostOutOfMemory,
       said("RuntimeError: unable to mmap 53687091200 bytes from file </ckpt/m.safetensors>: Cannot allocate "
            "memory "
            "(12)")},
      {"ShmFull", kHostOutOfMemory,
       said("RuntimeError: unable to write to file </torch_118_2233_0>: No space left on device (28)")},
      {"RustTokenizer",
       kHostOutOfMemory,
       {ended({.code = 134, .message = "memory allocation of 34359738368 bytes failed"})}},
      {"KernelsLine", kHostOutOfMemory,
       said("[812.1] Out of memory: Killed process 4242 (pt_main_thread) total-vm:512GB on gpu-node-7")},
      {"InitOfTheContainer",
       kHostOutOfMemory,
       {ended({.code = 128,
               .message =
                   "failed to create containerd task: failed to create shim task: OCI runtime create failed: "
                   "runc create failed: unable to start container process: container init was OOM-killed "
                   "(memory limit too low?)",
               .reason = "StartError"})}},
      {"SidecarOOMKilledAndTheTrainerWithoutAWord",
       kHostOutOfMemory,
       {with(ended({.code = 1}), {.code = 137, .reason = "OOMKilled", .container = "cache"})}},

      // Containers beside the trainer do not end training.
      {"SidecarDiedLongBefore",
       kCudaOutOfMemory,
       {with(ended({.message = kOutOfMemory}), {.code = 127,
                                                .message = "sh: exporter: not found",
                                                .time = "2026-11-21T07:00:00Z",
                                                .container = "metrics"})}},
      {"SidecarOOMKilledLongBefore",
       kCudaOutOfMemory,
       {with(ended({.message = kOutOfMemory}),
             {.code = 137, .reason = "OOMKilled", .time = "2026-11-21T07:00:00Z", .container = "metrics"})}},
      {"TailOfTheSentencesLastWords", kCudaOutOfMemory,
       said("or fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF")},
      {"PinnedBuffersOfAnOffload", kHostOutOfMemory,
       said("Traceback (most recent call last):\n  File \"stage3.py\", line 1, in __init__\n    self.flat = "
            "torch.empty(n, device='cpu', pin_memory=True)\nRuntimeError: CUDA error: out of memory")},
      {"BusErrorOfAWorker", kHostOutOfMemory,
       said("ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared "
            "memory "
            "(shm).\nRuntimeError: DataLoader worker (pid(s) 123) exited unexpectedly")},
      {"StructuredLog", kCudaOutOfMemory,
       said(
           "{\"level\":\"error\",\"msg\":\"CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
           "capacity of 79.15 GiB\"}")},
      {"HugeCtr", kCudaOutOfMemory,
       said("[HCTR][08:30:00.000][ERROR][RK0][main]: Runtime error: out of memory cudaMallocAsync( at "
            "allocate "
            "(core23/low_level_primitives.hpp:40)")},
  };
}

}  // namespace plimsoll::controllers
