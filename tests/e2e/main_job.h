// The stage of the end-to-end tests: an API server of the kind under test, with Plimsoll's CRDs; on request a
// small cluster of GPU nodes, the operator that counts them, and the webhook, configured with the server.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "tests/controlplane/api_server.h"
#include "tests/e2e/plimsoll_process.h"

namespace plimsoll::testing {

ApiServerKind kind_under_test();

class MainJobTest : public ::testing::Test {
 protected:
  void SetUp() override;  // the server and the CRDs
  virtual ApiServerOptions server_options() const { return {}; }

  // Nodes, operator and webhook; returns when jobs can be sized.
  void start_plimsoll();
  void start_operator();
  void start_webhook();
  // Waits until the operator has counted the GPUs of the GPUModel.
  void wait_until_counted(const std::string& model, int gpus) const;

  CommandResult kubectl(std::vector<std::string> arguments, const std::string& input = {}) const;
  // The same, which must succeed.
  CommandResult must(const std::vector<std::string>& arguments, const std::string& input = {}) const;
  // The object as JSON, null when there is none; in namespace "default".
  Json get(const std::string& resource, const std::string& name) const;
  Json job(const std::string& name) const { return get("trainingjobs.plimsoll.dev", name); }

  std::shared_ptr<ApiServer> server_;
  std::shared_ptr<PlimsollProcess> operator_;
  std::shared_ptr<PlimsollProcess> webhook_;
};

// A node of GPUs, ready to take pods.
std::string node_manifest(const std::string& name, const std::string& product, int memory_mib, int gpus = 8);

// A recommender that asks for `replicas` GPUs of model A100-80GB, and needs one. `more` are lines of YAML of
// the same indentation as spec's fields.
std::string small_job(const std::string& name, int replicas = 16, const std::string& more = {});

// The annotations of an object that Plimsoll wrote.
std::string annotation(const Json& object, const std::string& name);
Json decision_of(const Json& object);  // provisioning-decision, parsed; null when there is none
std::int64_t replicas_of(const Json& object);

std::string read_file(const std::string& path);

}  // namespace plimsoll::testing
