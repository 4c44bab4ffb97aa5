#include "tests/webhook/samples.h"

#include <gtest/gtest.h>

#include "base/base64.h"
#include "crds/gpu_model.h"
#include "estimator/catalog/gpu_catalog.h"

namespace plimsoll::testing {
namespace {

constexpr const char* kJob = R"({
  "apiVersion": "plimsoll.dev/v1alpha1",
  "kind": "TrainingJob",
  "metadata": {"name": "ads-ctr", "namespace": "ads", "labels": {"team": "ranking"}},
  "spec": {
    "model": {
      "family": "ads",
      "dlrm": {
        "denseFeatures": 13,
        "bottomMLP": [512, 256, 128],
        "topMLP": [1024, 1024, 512, 256, 1],
        "tables": [
          {"name": "big", "count": 20, "rows": 200000000, "dim": 128, "poolingFactor": 10},
          {"name": "small", "count": 20, "rows": 1000000, "dim": 128, "poolingFactor": "1.5"}
        ]
      }
    },
    "training": {"batchSizePerTrainer": 1024, "precision": "FP32", "optimizer": "SGD"},
    "trainers": {"replicas": 128, "perNode": 8, "gpuModel": "A100-80GB"},
    "template": {"spec": {"containers": [{"name": "trainer", "image": "trainer:1"}]}}
  }
})";

// The pieces of a JSON pointer.
std::vector<std::string> pieces_of(const std::string& pointer) {
  std::vector<std::string> pieces;
  for (std::size_t at = 0; at < pointer.size();) {
    const std::size_t end = std::min(pointer.find('/', at + 1), pointer.size());
    std::string piece;
    for (std::size_t i = at + 1; i < end; ++i) {
      if (pointer[i] == '~' && i + 1 < end) {
        piece += pointer[++i] == '1' ? '/' : '~';
      } else {
        piece += pointer[i];
      }
    }
    pieces.push_back(piece);
    at = end;
  }
  return pieces;
}

void apply_operation(Json& object, const Json& operation) {
  const std::string what = operation["op"].asString();
  const std::string pointer = operation["path"].asString();
  ASSERT_TRUE(what == "add" || what == "replace") << what;
  const std::vector<std::string> pieces = pieces_of(pointer);
  ASSERT_FALSE(pieces.empty());
  Json* parent = &object;
  for (std::size_t i = 0; i + 1 < pieces.size(); ++i) {
    Json* next = parent->isArray() ? &(*parent)[static_cast<Json::ArrayIndex>(std::stoul(pieces[i]))]
                                   : &(*parent)[pieces[i]];
    ASSERT_FALSE(next->isNull()) << pointer << ": its parent does not exist";
    parent = next;
  }
  const std::string& last = pieces.back();
  if (parent->isArray()) {
    if (last == "-") {
      parent->append(operation["value"]);
    } else if (const auto index = static_cast<Json::ArrayIndex>(std::stoul(last)); what == "add") {
      parent->insert(index, operation["value"]);
    } else {
      (*parent)[index] = operation["value"];
    }
    return;
  }
  ASSERT_TRUE(parent->isObject()) << pointer;
  ASSERT_TRUE(what == "add" || parent->isMember(last)) << pointer << ": nothing to replace";
  (*parent)[last] = operation["value"];
}

Json gpu_model(const char* name, const char* label, int memory_mib) {
  Json object;
  object["apiVersion"] = "plimsoll.dev/v1alpha1";
  object["kind"] = "GPUModel";
  object["metadata"]["name"] = name;
  object["metadata"]["resourceVersion"] = "7";
  crds::GpuModelStatus status;
  status.total_gpus = status.free_gpus = 512;
  status.nodes.push_back({.gpus_per_node = 8, .nodes = 64});
  status.product_labels.emplace_back(label);
  status.memory = Bytes::from_mib(memory_mib);
  object["status"] = crds::encode_status(status);
  return object;
}

}  // namespace

Json sample_job(const std::string& name) {
  Json job = *parse_json(kJob);
  job["metadata"]["name"] = name;
  return job;
}

Json sample_review(const Json& job, const std::string& operation, const std::string& uid) {
  Json review;
  review["apiVersion"] = "admission.k8s.io/v1";
  review["kind"] = "AdmissionReview";
  Json& request = review["request"];
  request["uid"] = uid;
  request["kind"]["group"] = "plimsoll.dev";
  request["kind"]["version"] = "v1alpha1";
  request["kind"]["kind"] = "TrainingJob";
  request["resource"]["group"] = "plimsoll.dev";
  request["resource"]["version"] = "v1alpha1";
  request["resource"]["resource"] = "trainingjobs";
  request["namespace"] = "ads";
  request["name"] = text_member(job, {"metadata", "name"});
  request["operation"] = operation;
  request["userInfo"]["username"] = "someone";
  request["object"] = job;
  request["oldObject"] = Json();
  request["dryRun"] = false;
  return review;
}

Json update_review(const Json& before, const Json& now) {
  Json review = sample_review(now, "UPDATE");
  review["request"]["oldObject"] = before;
  return review;
}

std::vector<Json> sample_gpu_models() {
  return {gpu_model("a100-40gb", "NVIDIA-A100-SXM4-40GB", 40960),
          gpu_model("a100-80gb", "NVIDIA-A100-SXM4-80GB", 81920),
          gpu_model("h100-80gb", "NVIDIA-H100-80GB-HBM3", 81559),
          gpu_model("v100-32gb", "Tesla-V100-SXM2-32GB", 32768)};
}

std::shared_ptr<const estimator::ClusterView> sample_view() {
  return estimator::make_cluster_view(estimator::GpuCatalog::built_in(), sample_gpu_models(), {});
}

Json patched(Json object, const Json& patch) {
  for (const Json& operation : patch) {
    apply_operation(object, operation);
  }
  return object;
}

Json response_of(const std::string& body, const std::string& uid) {
  const Result<Json> review = parse_json(body);
  EXPECT_TRUE(review.ok()) << body.substr(0, 300);
  if (!review) {
    return Json();
  }
  EXPECT_EQ(text_member(*review, {"apiVersion"}), "admission.k8s.io/v1");
  EXPECT_EQ(text_member(*review, {"kind"}), "AdmissionReview");
  const Json& response = member(*review, {"response"});
  EXPECT_TRUE(response.isObject());
  EXPECT_EQ(text_member(response, {"uid"}), uid);
  EXPECT_TRUE(member(response, {"allowed"}).isBool());
  EXPECT_EQ(response.isMember("patch"), response.isMember("patchType"));
  if (response.isMember("patch")) {
    EXPECT_EQ(text_member(response, {"patchType"}), "JSONPatch");
  }
  return response;
}

Json patch_of(const Json& response) {
  if (!response.isMember("patch")) {
    return Json(::Json::arrayValue);
  }
  const Result<std::string> text = base64_decode(response["patch"].asString());
  EXPECT_TRUE(text.ok());
  const Result<Json> patch = text ? parse_json(*text) : Result<Json>(Json());
  EXPECT_TRUE(patch.ok() && patch->isArray());
  return patch ? *patch : Json();
}

}  // namespace plimsoll::testing
