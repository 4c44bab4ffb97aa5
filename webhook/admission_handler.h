// AdmissionHandler: HTTP requests to the two admission webhooks, as http::Server hands them over.
//
//   AdmissionHandler handler({.cluster = &store, .tables = &tables, .metrics = &metrics});
//   http::Server server(options, [&](const http::Request& request) { return handler.handle(request); }, ...);
//
// POST kMutatePath and kValidatePath with an AdmissionReview; whatever comes there is answered with one. The
// time the API server gives (?timeout=5s) less kAnswerMargin bounds the decision, as do the request's stop
// token and the memory that is reserved for it. When there is too much to do, a mutating review is answered
// with the job as it is and a warning, and a validating one with 429, so that its failurePolicy decides.
// Thread-safe; what the options point to must outlive the handler.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/budget.h"
#include "base/memory_pool.h"
#include "estimator/provisioner/cluster_view.h"
#include "estimator/provisioner/model_source.h"
#include "estimator/provisioner/provisioner.h"
#include "http/server.h"
#include "webhook/decision_scheduler.h"
#include "webhook/metrics.h"
#include "webhook/mutate.h"
#include "webhook/progress_watch.h"

namespace plimsoll::webhook {

// As kubebuilder names them; the chart's webhook configurations say the same.
inline constexpr const char* kMutatePath = "/mutate-plimsoll-dev-v1alpha1-trainingjob";
inline constexpr const char* kValidatePath = "/validate-plimsoll-dev-v1alpha1-trainingjob";

// For encoding the answer and its way back.
inline constexpr std::chrono::milliseconds kAnswerMargin{200};
// What the API server waits when the configuration says nothing, and at most.
inline constexpr std::chrono::milliseconds kDefaultTimeout{10'000};
inline constexpr std::chrono::milliseconds kMaxTimeout{30'000};

struct AdmissionHandlerOptions {
  const estimator::ClusterViewStore* cluster = nullptr;  // required
  estimator::ModelSource* tables = nullptr;              // null: jobs that name a ConfigMap keep their values
  AdmissionMetrics* metrics = nullptr;                   // null: nothing is counted
  MemoryPool* memory = nullptr;                          // of reviews; null: nothing is reserved
  Bytes decision_memory = estimator::kDecisionMemory;    // of each turn that the scheduler gives
  // Where decisions that read a ConfigMap reserve `import_memory`, on top of decision_memory; null: nowhere.
  MemoryPool* imports = nullptr;
  Bytes import_memory = {};
  DecisionScheduler* scheduler = nullptr;  // null: all compute at once
};

// What a review of so many bytes takes while it is handled, its body apart.
Bytes memory_of_review(std::size_t body_size);

class AdmissionHandler {
 public:
  explicit AdmissionHandler(AdmissionHandlerOptions options) : options_(options) {}

  http::Response handle(const http::Request& request) const;

  // Whether reviews get their answers. Errors: kUnavailable when one is past its deadline and, for as long as
  // it was given, no other was answered either.
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
  Result<std::optional<DecisionScheduler::Turn>> enter(const AdmissionRequest& review,
                                                       const http::Request& request,
                                                       Budget::Time deadline) const;
  void count(const char* webhook, bool applied, const std::string& reason,
             const http::Request& request) const;

  AdmissionHandlerOptions options_;
  mutable ProgressWatch progress_;
};

// The time for an answer that a query string names ("timeout=5s", Go's notation), within kMaxTimeout, and
// kDefaultTimeout when it names none; less kAnswerMargin, but never less than half of it.
std::chrono::milliseconds time_to_answer(std::string_view query);

}  // namespace plimsoll::webhook
