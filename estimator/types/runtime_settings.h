// RuntimeSettings: memory settings in the environment of the training processes: options of the allocator and
// workspaces of libraries.
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
  std::optional<bool> lazy_modules;       // whether CUDA loads kernels at their first use
};

// CUBLAS_WORKSPACE_CONFIG, ":SIZE:COUNT" once or several times, SIZE in KiB. PyTorch allocates the sum
// (CublasHandlePool.cpp). Errors: kInvalid.
Result<Bytes> parse_cublas_workspace(std::string_view text);

// Reads the `env` of the containers in a TrainingJob's pod template: PYTORCH_ALLOC_CONF,
// PYTORCH_CUDA_ALLOC_CONF (ignored if the former is set, as in PyTorch), CUBLAS_WORKSPACE_CONFIG and
// CUDA_MODULE_LOADING. `training_job` is the whole object. A value that cannot be read (malformed, or a
// reference to a Secret) keeps the default and adds a warning.
RuntimeSettings runtime_settings_of(const Json& training_job, std::vector<std::string>& warnings);

}  // namespace plimsoll::estimator::types
