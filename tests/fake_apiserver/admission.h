// Calls the admission webhooks of the stored configurations: mutating ones first, then validating ones, in
// the order of their configurations' names. CEL match conditions are not evaluated: they count as met.
// Webhooks behind a Service are skipped with a log line, for there is no service network. Thread-safe; calls
// block until the webhooks have answered or timed out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "tests/fake_apiserver/resource_type.h"
#include "tests/fake_apiserver/status.h"
#include "tests/fake_apiserver/store.h"
#include "tests/fake_apiserver/webhook_client.h"

namespace plimsoll::testing::fake {

struct AdmissionRequest {
  TypePtr type;
  std::string operation;  // CREATE, UPDATE, DELETE
  std::string namespace_name;
  std::string name;
  std::string subresource;
  Json object;      // null for DELETE
  Json old_object;  // null for CREATE
  bool dry_run = false;
  std::string field_manager;
};

class AdmissionChain {
 public:
  explicit AdmissionChain(const Store& store) : store_(store) {}

  // The object as the mutating webhooks leave it.
  Outcome<Json> mutate(AdmissionRequest request, std::vector<std::string>& warnings);
  // The status of a refusal; empty when all webhooks allow the request.
  std::optional<Status> validate(const AdmissionRequest& request, std::vector<std::string>& warnings);
  // The match conditions of the stored configurations.
  UnevaluatedRules unevaluated_rules() const;

 private:
  bool applies(const Json& webhook, const AdmissionRequest& request) const;
  // The `response` of the review; null when the call failed and the failure policy is Ignore.
  Outcome<Json> call(const Json& webhook, const AdmissionRequest& request, bool mutating,
                     std::vector<std::string>& warnings);

  const Store& store_;
  WebhookClient client_;
};

// The match conditions of one webhook configuration.
UnevaluatedRules match_conditions(const Json& configuration);

}  // namespace plimsoll::testing::fake
