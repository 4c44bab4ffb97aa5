// The admission webhooks that the stored configurations ask for: mutating ones first, then validating ones,
// by the order of their configurations' names. CEL matchConditions are not evaluated: they count as met.
// Configurations that name a Service are skipped (there is no service network), which is logged. Thread-safe;
// calls block until the webhooks have answered or their timeouts have passed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
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
  // Why it is refused, if it is.
  std::optional<Status> validate(const AdmissionRequest& request, std::vector<std::string>& warnings);

 private:
  bool applies(const Json& webhook, const AdmissionRequest& request) const;
  // The `response` of the review; null when the webhook could not be asked and its policy is Ignore.
  Outcome<Json> call(const Json& webhook, const AdmissionRequest& request, bool mutating,
                     std::vector<std::string>& warnings);

  const Store& store_;
  WebhookClient client_;
};

}  // namespace plimsoll::testing::fake
