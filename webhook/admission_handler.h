// AdmissionHandler: handles the HTTP requests to the two admission webhooks, for http::Server.
//
//   AdmissionHandler handler({.cluster = &store, .tables = &tables, .metrics = &metrics});
//   http::Server server(options, [&](const http::Request& request) { return handler.handle(request); }, ...);
//
// POST an AdmissionReview to kMutatePath, to one below it that names the mode of the namespace, to kMutateWorkloadPath,
// kAdviseWorkloadPath or kValidatePath; every response there is an AdmissionReview, too. The decision is limited by the API
// server's timeout (?timeout=5s) less a fifth, by the request's stop token, and by the memory that is reserved for it. Under overload a mutating review leaves the job
// unchanged, with a warning, and a validating one gets 429, so that its failurePolicy decides. Thread-safe;
// the objects that the options point to must outlive the handler.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/budget.h"
#include "base/memory_pool.h"
#include "crds/cluster_policy.h"
#include "estimator/provisioner/cluster_view.h"
#include "estimator/provisioner/model_source.h"
#include "estimator/provisioner/provisioner.h"
#include "http/server.h"
#include "webhook/decision_scheduler.h"
#include "webhook/metrics.h"
#include "webhook/mutate.h"
#include "webhook/progress_watch.h"
#include "workloads/references.h"

namespace plimsoll::webhook {

// Named as kubebuilder does; the chart's webhook configurations have the same paths.
inline constexpr const char* kMutatePath = "/mutate-plimsoll-dev-v1alpha1-trainingjob";
// What may follow kMutatePath, as in ".../off", for namespaces with a label that says so; without, policy.mode is that of jobs that
// name none. In lower case, as paths of webhook configurations must be.
inline constexpr std::array kModesInPaths = {std::pair(crds::ProvisioningMode::kAuto, "auto"),
                                             std::pair(crds::ProvisioningMode::kInitial, "initial"),
                                             std::pair(crds::ProvisioningMode::kOff, "off")};
// Of workloads of other kinds: in namespaces where they are sized, and where they get advice.
inline constexpr const char* kMutateWorkloadPath = "/mutate-workload";
inline constexpr const char* kAdviseWorkloadPath = "/advise-workload";
inline constexpr const char* kValidatePath = "/validate-plimsoll-dev-v1alpha1-trainingjob";

// One part in so many of the timeout is for encoding and sending the response. A long decision has a low priority
// (decision_scheduler.h): on a busy machine its thread waits for a processor before it can answer.
inline constexpr int kAnswerShare = 5;
// The API server's default and longest timeouts.
inline constexpr std::chrono::milliseconds kDefaultTimeout{10'000};
inline constexpr std::chrono::milliseconds kMaxTimeout{30'000};

struct AdmissionHandlerOptions {
  const estimator::ClusterViewStore* cluster = nullptr;  // required
  estimator::ModelSource* tables = nullptr;              // null: jobs that name a ConfigMap keep their values
  workloads::ObjectSource* objects = nullptr;            // null: TrainJobs keep their values
  AdmissionMetrics* metrics = nullptr;                   // null: nothing is counted
  MemoryPool* memory = nullptr;                          // of reviews; null: nothing is reserved
  Bytes decision_memory = estimator::kDecisionMemory;    // of each turn of the scheduler
  // Decisions that read an object of the cluster reserve `import_memory` here, in addition to decision_memory; null: no
  // limit.
  MemoryPool* imports = nullptr;
  Bytes import_memory = {};
  DecisionScheduler* scheduler = nullptr;  // null: no limit of concurrent decisions
  crds::ClusterPolicy policy = {};
};

// The memory that a review of this size takes while it is handled, without its body.
Bytes memory_of_review(std::size_t body_size);

class AdmissionHandler {
 public:
  explicit AdmissionHandler(AdmissionHandlerOptions options) : options_(options) {}

  http::Response handle(const http::Request& request) const;

  // Whether reviews are answered in time, see ProgressWatch::check. Errors: kUnavailable.
  Result<void> progress() const { return progress_.check(std::chrono::steady_clock::now()); }

 private:
  // Sets `uid` as soon as it is known.
  http::Response answer_review(bool mutating, const http::Request& request, Budget::Time deadline,
                               std::string& uid) const;
  http::Response answer_mutate(const AdmissionRequest& review, const http::Request& request,
                               Budget::Time deadline) const;
  http::Response answer_validate(const AdmissionRequest& review, const http::Request& request,
                                 Budget::Time deadline) const;
  Mutation decide(const AdmissionRequest& review, const http::Request& request, Budget::Time deadline) const;
  Result<DecisionScheduler::Turn> enter(const AdmissionRequest& review, const http::Request& request,
                                        Budget::Time deadline) const;
  void count(const char* webhook, bool applied, const std::string& reason,
             const http::Request& request) const;

  AdmissionHandlerOptions options_;
  mutable ProgressWatch progress_;
};

// The time for a response: the timeout of the query string ("timeout=5s", Go's notation), at most
// kMaxTimeout, or kDefaultTimeout without one; less one part in kAnswerShare.
std::chrono::milliseconds time_to_answer(std::string_view query);

}  // namespace plimsoll::webhook
