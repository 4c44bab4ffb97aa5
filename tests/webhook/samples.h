// Jobs, reviews and GPUs for the webhook's tests.
#pragma once

#include <memory>
#include <string>

#include "base/json/json.h"
#include "estimator/provisioner/cluster_view.h"

namespace plimsoll::testing {

// A DLRM of 40 tables, 2 TiB of embeddings, that asks for 128 A100-80GB trainers.
Json sample_job(const std::string& name = "ads-ctr");

// An AdmissionReview of it.
Json sample_review(const Json& job, const std::string& operation = "CREATE",
                   const std::string& uid = "1f0c7a52");
Json update_review(const Json& before, const Json& now);

// GPUModel resources as the operator writes them, and the view made of them: 64 nodes of 8 each of A100-40GB,
// A100-80GB, H100-80GB and V100-32GB.
std::vector<Json> sample_gpu_models();
std::shared_ptr<const estimator::ClusterView> sample_view();

// The object after its patch (RFC 6902, add and replace). Fails the test on a patch that does not apply.
Json patched(Json object, const Json& patch);

// The response object of an AdmissionReview in text; fails the test unless it is well-formed as the API
// server demands (apiVersion, kind, uid, patch with patchType only).
Json response_of(const std::string& body, const std::string& uid);

// The patch in a response: an array, empty when there is none.
Json patch_of(const Json& response);

}  // namespace plimsoll::testing
