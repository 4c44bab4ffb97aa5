#include "remediation/out_of_memory_patterns.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <utility>

#include "remediation/log_lines.h"

namespace plimsoll::remediation {
namespace {

// Messages and names of the frameworks and libraries, in lower case.
constexpr std::array kGpuNeedles = {
    "out of memory. tried to allocate",        // c10/cuda, c10/xpu, and the forks for other accelerators
    "mps backend out of memory",               // aten/src/ATen/mps/MPSAllocator.mm
    "is reserved by pytorch but unallocated",  // the end of PyTorch's message: a termination message is
    "gib reserved in total by pytorch",        // the last 2048 bytes, which may begin within it
    "mib reserved in total by pytorch",
    "memory is large try setting pytorch",
    "memory is >> allocated memory try setting",
    "see documentation for memory management",
    "torch.cuda.outofmemoryerror",
    "torch.outofmemoryerror",
    "c10::outofmemoryerror",
    "no executable batch size found",          // accelerate, after it ran out of memory with each
    "cuda error: out of memory",               // cudaGetErrorString of cudaErrorMemoryAllocation
    "cuda runtime error (2) : out of memory",  // PyTorch before 1.5
    "cudaerrormemoryallocation",
    "cuda_error_out_of_memory",  // the driver's
    "hip error: out of memory",
    "hiperroroutofmemory",
    "hiperrormemoryallocation",
    "hsa_status_error_out_of_resources",
    "malloc failed: out of memory",  // cudaMalloc, cuMemAlloc, hipMalloc: ggml, pycuda, MXNet
    "malloc retry failed: out of memory",
    "_status_alloc_failed",  // cuBLAS, cuDNN, cuSOLVER, cuSPARSE, hipBLAS, MIOpen
    "cusparse_status_insufficient_resources",
    "_error_device_allocation_failed",  // cuDNN 9
    "cufft_alloc_failed",
    "failed to cuda calloc",  // nccl/src/include/alloc.h
    "failed to cuda malloc",
    "resource_exhausted: out of memory",  // XLA
    "resource_exhausted: failed to allocate",
    "resource_exhausted: attempting to",
    "ran out of memory in memory space",
    "error out of memory at line",  // bitsandbytes csrc/ops.cu
    "out_of_memory: rmm failure",   // RAPIDS' pool of device memory
    "out_of_memory: cuda error",
};

constexpr std::array kHostNeedles = {
    "defaultcpuallocator: ",  // c10/core/impl/alloc_cpu.cpp; it speaks only of memory that it did not get
    "_error_host_allocation_failed",
    "std::bad_alloc",
    "is killed by signal: killed",     // a DataLoader's worker
    "is killed by signal: bus error",  // likewise, of /dev/shm
    "workers are out of shared memory",
    "insufficient shared memory (shm)",
    "oom-kill:constraint=",  // the kernel's log
    "memory cgroup out of memory",
    "out of memory: killed process",
    "node running low on memory",  // Ray
    "java.lang.outofmemoryerror",
    "fatal error: runtime: out of memory",  // Go
};

// A line with one of these and a message of exhausted memory is about a GPU.
constexpr std::array kGpuWords = {"cuda", "cumem",  "gpuassert", "rocm", "nccl",
                                  "rccl", "cublas", "cudnn",     "vram"};
constexpr std::array kGpuPhrases = {"hip error",  "hip out",    "on gpu",
                                    "of gpu",     "gpu memory", "gpu out of memory",
                                    "device:gpu", "_bfc) ran",  "device memory"};

bool is_letter(char c) {
  return c >= 'a' && c <= 'z';
}

// Matches the beginning of a word: "cudaMalloc", not "barracuda".
bool has_word(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    if (at == 0 || !is_letter(text[at - 1])) {
      return true;
    }
  }
  return false;
}

template <std::size_t kCount>
std::size_t first_of(std::string_view text, const std::array<const char*, kCount>& needles) {
  std::size_t first = text.npos;
  for (const std::string_view needle : needles) {
    first = std::min(first, text.find(needle));
  }
  return first;
}

bool mentions_gpu(std::string_view line) {
  return std::any_of(kGpuWords.begin(), kGpuWords.end(),
                     [&](std::string_view word) { return has_word(line, word); }) ||
         first_of(line, kGpuPhrases) != line.npos;
}

// ENOMEM, but not for memory that a network card may pin or for the loader's thread-local variables: more
// memory does not help there.
std::size_t find_kernel_error(std::string_view line) {
  return has_any(line, {"static tls", "ibv_", "net/ib", "rdma"}) ? line.npos
                                                                 : line.find("cannot allocate memory");
}

// /dev/shm is memory; its size is a part of the pod's.
std::size_t find_full_shared_memory(std::string_view line) {
  return has_any(line, {"shared memory", "/dev/shm", "</torch_"}) ? line.find("no space left on device")
                                                                  : line.npos;
}

// Python's MemoryError and numpy's, pyarrow's exceptions that derive from it; a Rust library's abort.
std::size_t find_runtime_error(std::string_view line) {
  constexpr std::string_view kError = "memoryerror";
  const std::size_t error = line.find(kError);
  const std::size_t end = error + kError.size();
  if (error != line.npos && !line.substr(0, error).ends_with("outof") &&
      (end >= line.size() || line[end] == ':' || line[end] == '\r')) {
    return error;
  }
  const std::size_t rust = line.find("memory allocation of ");
  return line.find(" bytes failed", rust) != line.npos ? rust : line.npos;
}

// Not Triton's "out of resource: shared memory": no larger card has more on-chip memory.
std::size_t find_inexact_error(std::string_view line) {
  constexpr std::array kExhausted = {"out of memory", "out_of_memory", "oom when allocating tensor"};
  return line.find("out of resource") == line.npos ? first_of(line, kExhausted) : line.npos;
}

// "2.00 GiB", "512.00 MiB", "20.00 KiB", "512 bytes" at the beginning of the text.
std::optional<Bytes> size_at(std::string_view text) {
  double number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || !(number >= 0)) {
    return std::nullopt;
  }
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  static constexpr std::pair<std::string_view, double> kUnits[] = {
      {" GiB", 0x1p30}, {" MiB", 0x1p20}, {" KiB", 0x1p10}, {" TiB", 0x1p40}, {" bytes", 1},
      {"GiB", 0x1p30},  {"MiB", 0x1p20},  {"KiB", 0x1p10},  {" B", 1}};
  constexpr double kMaxSize = 0x1p60;  // an exabyte: PyTorch prints no larger figure
  for (const auto& [unit, bytes] : kUnits) {
    if (text.starts_with(unit)) {
      return number * bytes < kMaxSize ? std::optional(Bytes::ceil(number * bytes)) : std::nullopt;
    }
  }
  return std::nullopt;
}

std::optional<Bytes> size_after(std::string_view text, std::string_view words) {
  const std::size_t at = text.find(words);
  return at == text.npos ? std::nullopt : size_at(text.substr(at + words.size()));
}

// The size before the words: "14.20 GiB already allocated".
std::optional<Bytes> size_before(std::string_view text, std::string_view words) {
  const std::size_t at = text.find(words);
  if (at == text.npos) {
    return std::nullopt;
  }
  text = text.substr(0, at);
  // Number and unit are the last two words.
  const std::size_t unit = text.rfind(' ');
  if (unit == text.npos || unit == 0) {
    return std::nullopt;
  }
  return size_at(text.substr(text.find_last_of(" (;,", unit - 1) + 1));
}

// A long message may have been folded into several lines.
std::string on_one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const bool blank = c == ' ' || c == '\n' || c == '\r' || c == '\t';
    if (!blank) {
      line += c;
    } else if (!line.empty() && line.back() != ' ') {
      line += ' ';
    }
  }
  return line;
}

// The offset at which a second error begins.
std::size_t end_of_first(std::string_view text) {
  constexpr std::string_view kTried = "Tried to allocate";
  const std::size_t tried = text.find(kTried);
  const std::size_t next = tried == text.npos ? text.npos : text.find(kTried, tried + kTried.size());
  return std::min<std::size_t>(next, 2000);
}

}  // namespace

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return lower;
}

std::optional<OutOfMemoryMatch> find_out_of_memory(std::string_view line) {
  const std::string lower = lower_case(line);
  constexpr std::size_t kNowhere = std::string_view::npos;
  if (const std::size_t at = first_of(lower, kGpuNeedles); at != kNowhere) {
    return OutOfMemoryMatch{.of_gpu = true, .exact = true, .at = at};
  }
  const std::size_t of_host = std::min({first_of(lower, kHostNeedles), find_kernel_error(lower),
                                        find_full_shared_memory(lower), find_runtime_error(lower)});
  if (of_host != kNowhere) {
    return OutOfMemoryMatch{.of_gpu = false, .exact = true, .at = of_host};
  }
  const std::size_t at = find_inexact_error(lower);
  if (at == kNowhere) {
    return std::nullopt;
  }
  if (mentions_gpu(lower)) {
    return OutOfMemoryMatch{.of_gpu = true, .exact = false, .at = at};
  }
  // TensorFlow names the device behind the shape.
  return has_any(lower, {"device:cpu"})
             ? std::optional(OutOfMemoryMatch{.of_gpu = false, .exact = true, .at = at})
             : std::nullopt;
}

crds::OutOfMemoryFigures parse_out_of_memory_figures(std::string_view whole) {
  const std::string unfolded = on_one_line(whole.substr(0, end_of_first(whole)));
  const std::string_view text = unfolded;
  crds::OutOfMemoryFigures found;
  const std::optional<Bytes> tried = size_after(text, "Tried to allocate ");
  for (const std::string_view words : {"total capacity of ", "total capacty of "}) {  // sic, until 2.1
    found.capacity = found.capacity ? found.capacity : size_after(text, words);
  }
  found.fragmentation = size_before(text, " is reserved by PyTorch but unallocated");
  std::optional<Bytes> held = size_after(text, "this process has ");
  if (const std::optional<Bytes> allocated = size_before(text, " already allocated")) {
    // Until PyTorch 2.0: "(GPU 0; 15.78 GiB total capacity; 14.20 GiB already allocated; ...)".
    found.capacity = found.capacity ? found.capacity : size_before(text, " total capacity");
    if (const std::optional<Bytes> reserved = size_before(text, " reserved in total by PyTorch")) {
      held = reserved;
      found.fragmentation = std::max(Bytes{}, *reserved - *allocated);
    } else if (const std::optional<Bytes> cached = size_before(text, " cached)")) {  // until 1.3, beside it
      held = *allocated + *cached;
      found.fragmentation = cached;
    }
  }
  const std::optional<Bytes> free = size_after(text, "of which ");
  if (!held && found.capacity && free) {
    held = std::max(Bytes{}, *found.capacity - *free);  // of all that is on the card
  }
  if (tried && held) {
    found.needed = *held + *tried;
  }
  return found;
}

}  // namespace plimsoll::remediation
