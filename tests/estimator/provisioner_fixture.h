// Jobs and clusters for the tests of the provisioner.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "crds/training_job.h"
#include "estimator/catalog/gpu_catalog.h"
#include "estimator/catalog/inventory.h"
#include "estimator/provisioner/patch.h"
#include "estimator/provisioner/provisioner.h"
#include "tests/estimator/patch_applier.h"

namespace plimsoll::testing {

inline Json parse(const std::string& text) {
  Result<Json> value = parse_json(text);
  EXPECT_TRUE(value.ok()) << text;
  return value ? *value : Json();
}

// A job of `tables` tables of `rows` x 128 in FP32 (0.5 GiB for a million rows) asking for `requested` trainers.
inline Json job_object(std::int64_t tables, std::int64_t rows, std::int64_t requested = 128) {
  Json object = parse(R"({
    "apiVersion": "plimsoll.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "ads"},
    "spec": {
      "model": {"family": "ads", "dlrm": {"denseFeatures": 13, "bottomMLP": [128], "topMLP": [256, 1],
                                          "interaction": "Cat", "tables": [{"name": "t", "dim": 128}]}},
      "training": {"batchSizePerTrainer": 512},
      "trainers": {"perNode": 8},
      "template": {"spec": {"containers": [{"name": "trainer"}]}}}})");
  Json& table = object["spec"]["model"]["dlrm"]["tables"][0];
  table["count"] = static_cast<::Json::Int64>(tables);
  table["rows"] = static_cast<::Json::Int64>(rows);
  object["spec"]["trainers"]["replicas"] = static_cast<::Json::Int64>(requested);
  return object;
}

inline crds::TrainingJob decode(const Json& object) {
  Result<crds::TrainingJob> job = crds::decode_training_job(object);
  EXPECT_TRUE(job.ok()) << (job ? "" : job.error().message);
  if (!job) {
    return {};
  }
  const std::vector<crds::FieldError> wrong = crds::validate(*job);
  EXPECT_TRUE(wrong.empty()) << crds::to_string(wrong);
  return *std::move(job);
}

inline estimator::AvailableGpu available(const std::string& name, std::int64_t nodes,
                                         std::int64_t gpus_per_node = 8, std::size_t spellings = 1) {
  static const estimator::GpuCatalog catalog = estimator::GpuCatalog::built_in();
  const estimator::GpuModel* model = catalog.find(name);
  EXPECT_NE(model, nullptr) << name;
  estimator::AvailableGpu gpu;
  gpu.model = *model;
  gpu.product_labels.assign(model->product_labels.begin(),
                            model->product_labels.begin() + static_cast<std::ptrdiff_t>(spellings));
  gpu.total_gpus = nodes * gpus_per_node;
  gpu.free_gpus = gpu.total_gpus;
  gpu.gpus_per_node = gpus_per_node;
  gpu.shapes = {{gpus_per_node, nodes}};
  return gpu;
}

using Cluster = std::vector<estimator::AvailableGpu>;

inline Cluster four_models() {
  return {available("A100-40GB", 64), available("A100-80GB", 64), available("H100-80GB", 64),
          available("V100-32GB", 64)};
}

inline estimator::Provision provision(const crds::TrainingJob& job, const Cluster& cluster) {
  return estimator::provision({.job = &job, .gpus = &cluster});
}

inline estimator::Provision provision(const Json& object, const Cluster& cluster) {
  return provision(decode(object), cluster);
}

// The object as the API server stores it after the webhook's answer.
inline Json admitted(const Json& object, const Cluster& cluster) {
  const crds::TrainingJob job = decode(object);
  const Json patch = estimator::patch_for(job, provision(job, cluster));
  std::string why;
  const std::optional<Json> result = apply_patch(object, patch, why);
  EXPECT_TRUE(result) << why << " in " << write_json(patch);
  return result.value_or(Json());
}

inline std::string annotation(const Json& object, const char* name) {
  return text_member(object, {"metadata", "annotations", name});
}

}  // namespace plimsoll::testing
