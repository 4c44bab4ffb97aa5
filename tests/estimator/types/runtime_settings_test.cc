#include "estimator/types/runtime_settings.h"

#include <gtest/gtest.h>

namespace plimsoll::estimator {
namespace {

Json job_with(const std::string& env) {
  const Result<Json> job = parse_json(R"({"spec": {"template": {"spec": {"containers": [{"name": "sidecar"},
      {"name": "trainer", "env": [)" + env +
                                      "]}]}}}}");
  EXPECT_TRUE(job.ok()) << env;
  return job ? *job : Json();
}

TEST(RuntimeSettings, CublasWorkspacesAreSummedUp) {
  EXPECT_EQ(*parse_cublas_workspace(":4096:2:16:8"), 8192_KiB + 128_KiB);
  EXPECT_EQ(*parse_cublas_workspace(":16:8"), 128_KiB);
  EXPECT_EQ(*parse_cublas_workspace(":0:0"), 0_B);
  for (const char* wrong : {"", ":", "4096:2", ":4096", ":4096:", ":4096:2:16", ":-1:2", ":4096:2:", ":1e3:2",
                            ":99999999999999999999:1", ":4096:100000"}) {
    EXPECT_FALSE(parse_cublas_workspace(wrong).ok()) << wrong;
  }
}

TEST(RuntimeSettings, ComeFromThePodTemplate) {
  std::vector<std::string> warnings;
  const RuntimeSettings settings = runtime_settings_of(
      job_with(R"({"name": "PYTORCH_CUDA_ALLOC_CONF", "value": "expandable_segments:True"},
                  {"name": "CUBLAS_WORKSPACE_CONFIG", "value": ":16:8"},
                  {"name": "CUDA_MODULE_LOADING", "value": "EAGER"})"),
      warnings);
  EXPECT_TRUE(settings.allocator.expandable_segments);
  EXPECT_EQ(settings.cublas_workspace, 128_KiB);
  EXPECT_EQ(settings.lazy_modules, false);
  EXPECT_TRUE(warnings.empty());
}

TEST(RuntimeSettings, TheNewerNameOfTheVariableWins) {
  std::vector<std::string> warnings;
  const RuntimeSettings settings = runtime_settings_of(
      job_with(R"({"name": "PYTORCH_CUDA_ALLOC_CONF", "value": "expandable_segments:True"},
                  {"name": "PYTORCH_ALLOC_CONF", "value": "max_split_size_mb:64"})"),
      warnings);
  EXPECT_FALSE(settings.allocator.expandable_segments);
  EXPECT_EQ(settings.allocator.max_split_size, 64_MiB);
}

TEST(RuntimeSettings, WhatCannotBeReadWarnsAndLeavesTheDefault) {
  for (const char* env : {R"({"name": "PYTORCH_CUDA_ALLOC_CONF", "value": "max_split_size_mb:1"})",
                          R"({"name": "PYTORCH_CUDA_ALLOC_CONF", "valueFrom": {"secretKeyRef": {}}})",
                          R"({"name": "CUBLAS_WORKSPACE_CONFIG", "value": "large"})",
                          R"({"name": "CUDA_MODULE_LOADING", "value": "lazy"})"}) {
    std::vector<std::string> warnings;
    const RuntimeSettings settings = runtime_settings_of(job_with(env), warnings);
    EXPECT_EQ(warnings.size(), 1U) << env;
    EXPECT_EQ(settings.allocator.max_split_size, Bytes::max()) << env;
    EXPECT_FALSE(settings.cublas_workspace.has_value()) << env;
    EXPECT_FALSE(settings.lazy_modules.has_value()) << env;
  }
}

TEST(RuntimeSettings, OddTemplatesSetNothing) {
  std::vector<std::string> warnings;
  for (const char* text :
       {"{}", "[]", "null", "3", R"({"spec": {"template": {"spec": {"containers": 3}}}})",
        R"({"spec": {"template": {"spec": {"containers": [3, {"env": {}}, {"env": [1]}]}}}})"}) {
    EXPECT_FALSE(runtime_settings_of(*parse_json(text), warnings).cublas_workspace.has_value()) << text;
  }
  EXPECT_TRUE(warnings.empty());
}

}  // namespace
}  // namespace plimsoll::estimator
