// RuntimeSettings: what the environment of the training processes says about memory: the allocator's options
// and the libraries' workspaces.
//
//   RuntimeSettings settings = runtime_settings_of(job.raw, warnings);
//
// Plain values; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/json/json.h"
#include "base/result.h"
#include "estimator/allocator/settings.h"

namespace plimsoll::estimator::inline types {

struct RuntimeSettings {
  AllocatorSettings allocator;
  std::optional<Bytes> cublas_workspace;  // of one handle and stream; absent: the library's default
  std::optional<bool> lazy_modules;       // whether CUDA loads kernels when they are first used
};

// CUBLAS_WORKSPACE_CONFIG, ":SIZE:COUNT" once or several times, SIZE in KiB: the sum is allocated, as PyTorch
// does (CublasHandlePool.cpp). Errors: kInvalid.
Result<Bytes> parse_cublas_workspace(std::string_view text);

// From the `env` of the pod template's containers of a TrainingJob (the whole object): PYTORCH_ALLOC_CONF,
// PYTORCH_CUDA_ALLOC_CONF (which the former overrides, as in PyTorch), CUBLAS_WORKSPACE_CONFIG and
// CUDA_MODULE_LOADING. What
// cannot be read (a malformed value, a reference to a Secret) leaves the default and adds a warning.
RuntimeSettings runtime_settings_of(const Json& training_job, std::vector<std::string>& warnings);

}  // namespace plimsoll::estimator::types
