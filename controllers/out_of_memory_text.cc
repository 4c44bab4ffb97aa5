#include "controllers/out_of_memory_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace plimsoll::controllers {
namespace {

// Sentences of the frameworks and libraries. Where a sentence might also be a program's own remark ("CUDA out
// of memory caught, trying less"), it is matched with what only the error has around it.
constexpr std::array kGpuNeedles = {
    "CUDA out of memory. Tried to allocate",  // c10/cuda/CUDACachingAllocator.cpp
    "HIP out of memory. Tried to allocate",   // the same, built for ROCm
    "XPU out of memory. Tried to allocate",   // c10/xpu/XPUCachingAllocator.cpp
    "MPS backend out of memory",              // aten/src/ATen/mps/MPSAllocator.mm
    "Error: CUDA out of memory",              // re-raised without its figures
    "Error: HIP out of memory",
    "CUDA error: out of memory",  // cudaGetErrorString of cudaErrorMemoryAllocation
    "HIP error: out of memory",
    "CUDA runtime error (2) : out of memory",  // older PyTorch
    "cuda runtime error (2) : out of memory",
    "cudaErrorMemoryAllocation",
    "CUDA_ERROR_OUT_OF_MEMORY",  // the driver's
    "hipErrorOutOfMemory",
    "hipErrorMemoryAllocation",
    "cudaMalloc failed: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "HIPBLAS_STATUS_ALLOC_FAILED",
    "CUSOLVER_STATUS_ALLOC_FAILED",
    "CUSPARSE_STATUS_ALLOC_FAILED",
    "CUSPARSE_STATUS_INSUFFICIENT_RESOURCES",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "CUFFT_ALLOC_FAILED",
    "MIOPEN_STATUS_ALLOC_FAILED",
    "Cuda failure 'out of memory'",       // nccl/src/include/checks.h
    "Cuda failure 2 'out of memory'",     // since 2.19
    "HIP failure 'out of memory'",        // rccl
    "RESOURCE_EXHAUSTED: Out of memory",  // XLA
    "RESOURCE_EXHAUSTED: Failed to allocate request for",
    "GPU_0_bfc) ran out of memory",  // TensorFlow
};

constexpr std::array kHostNeedles = {
    "DefaultCPUAllocator: can't allocate memory",  // c10/core/impl/alloc_cpu.cpp
    "DefaultCPUAllocator: not enough memory",
    "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
    "cudaErrorHostMemory",
    "std::bad_alloc",
    "MemoryError: Unable to allocate",  // numpy
    "\nMemoryError",
    "OSError: [Errno 12] Cannot allocate memory",
    "[Errno 12] Cannot allocate memory",
    ") is killed by signal: Killed",  // a DataLoader's worker
    "out of shared memory",           // likewise, of /dev/shm
    "is killed by signal: Bus error",
    "Signal 9 (SIGKILL) received by PID",  // torchrun, whose child alone was killed
    "oom-kill:constraint=",                // the kernel's log
    "Memory cgroup out of memory",
};

struct Found {
  std::size_t at = std::string_view::npos;
  std::string_view needle;
};

template <std::size_t kCount>
Found first_of(std::string_view text, const std::array<const char*, kCount>& needles) {
  Found first;
  for (const std::string_view needle : needles) {
    const std::size_t at = text.find(needle);
    if (at < first.at) {
      first = {at, needle};
    }
  }
  return first;
}

// "2.00 GiB", "512.00 MiB", "20.00 KiB", "512 bytes" at the beginning of the text.
std::optional<Bytes> size_at(std::string_view text) {
  double number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || !(number >= 0)) {
    return std::nullopt;
  }
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  static constexpr std::array<std::pair<std::string_view, double>, 9> kUnits = {{{" GiB", 0x1p30},
                                                                                 {" MiB", 0x1p20},
                                                                                 {" KiB", 0x1p10},
                                                                                 {" TiB", 0x1p40},
                                                                                 {" bytes", 1},
                                                                                 {"GiB", 0x1p30},
                                                                                 {"MiB", 0x1p20},
                                                                                 {"KiB", 0x1p10},
                                                                                 {" B", 1}}};
  for (const auto& [unit, bytes] : kUnits) {
    if (text.starts_with(unit)) {
      return Bytes::ceil(number * bytes);
    }
  }
  return std::nullopt;
}

std::optional<Bytes> size_after(std::string_view text, std::string_view words) {
  const std::size_t at = text.find(words);
  return at == text.npos ? std::nullopt : size_at(text.substr(at + words.size()));
}

// The size that stands before the words: "14.20 GiB already allocated".
std::optional<Bytes> size_before(std::string_view text, std::string_view words) {
  const std::size_t at = text.find(words);
  if (at == text.npos) {
    return std::nullopt;
  }
  // Number and unit are the last two words before.
  const std::size_t unit = at == 0 ? text.npos : text.rfind(' ', at - 1);
  if (unit == text.npos || unit == 0) {
    return std::nullopt;
  }
  const std::size_t before = text.find_last_of(" (;,", unit - 1);
  const std::size_t begin = before == text.npos ? 0 : before + 1;
  return size_at(text.substr(begin, at - begin));
}

void read_figures(std::string_view text, OutOfMemoryText& found) {
  const std::optional<Bytes> tried = size_after(text, "Tried to allocate ");
  for (const std::string_view words : {"total capacity of ", "total capacty of "}) {  // sic, until 2.1
    found.capacity = found.capacity ? found.capacity : size_after(text, words);
  }
  found.fragmentation = size_before(text, " is reserved by PyTorch but unallocated");
  std::optional<Bytes> held = size_after(text, "this process has ");
  if (const std::optional<Bytes> reserved = size_before(text, " reserved in total by PyTorch")) {
    // Until PyTorch 2.0: "(GPU 0; 15.78 GiB total capacity; 14.20 GiB already allocated; ...)".
    found.capacity = found.capacity ? found.capacity : size_before(text, " total capacity");
    held = reserved;
    if (const std::optional<Bytes> allocated = size_before(text, " already allocated")) {
      found.fragmentation = std::max(Bytes{}, *reserved - *allocated);
    }
  }
  const std::optional<Bytes> free = size_after(text, "of which ");
  if (!held && found.capacity && free) {
    held = *found.capacity - *free;  // of all that is on the card
  }
  if (tried && held) {
    found.needed = *held + *tried;
  }
}

}  // namespace

std::string line_at(std::string_view text, std::size_t position, std::size_t limit) {
  const std::size_t before = position == 0 ? text.npos : text.rfind('\n', position - 1);
  std::string_view line = text.substr(before == text.npos ? 0 : before + 1);
  line = line.substr(0, line.find('\n'));
  const std::size_t offset = position - (before == text.npos ? 0 : before + 1);
  if (line.size() > limit && offset > limit / 2) {
    line.remove_prefix(std::min(offset - limit / 2, line.size() - limit));
    while (!line.empty() && (static_cast<unsigned char>(line.front()) & 0xC0U) == 0x80U) {
      line.remove_prefix(1);
    }
  }
  if (line.size() > limit) {
    std::size_t end = limit;
    while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0U) == 0x80U) {
      --end;
    }
    line = line.substr(0, end);
  }
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) {
    line.remove_suffix(1);
  }
  return std::string(line);
}

std::optional<OutOfMemoryText> find_out_of_memory(std::string_view text) {
  OutOfMemoryText found;
  Found at = first_of(text, kGpuNeedles);
  // TensorFlow names the device behind the shape.
  constexpr std::string_view kTensor = "OOM when allocating tensor with shape";
  if (at.at == text.npos) {
    const std::size_t tensor = text.find(kTensor);
    if (tensor != text.npos) {
      at = {tensor, kTensor};
      found.of_gpu = line_at(text, tensor, 4096).find("device:GPU") != std::string::npos;
    }
  }
  if (at.at == text.npos) {
    found.of_gpu = false;
    at = first_of(text, kHostNeedles);
    if (at.at == text.npos && text.starts_with("MemoryError")) {
      at = {0, "MemoryError"};
    }
  }
  if (at.at == text.npos) {
    return std::nullopt;
  }
  found.line = line_at(text, at.at + (at.needle.front() == '\n' ? 1 : 0));
  if (found.of_gpu) {
    // A message may go over several lines; another rank's must not be read into it.
    const std::string_view rest = text.substr(at.at);
    constexpr std::string_view kTried = "Tried to allocate";
    const std::size_t tried = rest.find(kTried);
    const std::size_t next = tried == rest.npos ? rest.npos : rest.find(kTried, tried + kTried.size());
    read_figures(rest.substr(0, std::min<std::size_t>(next, 2000)), found);
  }
  return found;
}

}  // namespace plimsoll::controllers
