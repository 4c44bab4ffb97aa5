// AdmissionHandler: HTTP requests to the two admission webhooks, as HttpServer hands them over.
//
//   AdmissionHandler handler({.cluster = &store, .tables = &tables, .metrics = &metrics});
//   HttpServer server(options, [&](const HttpRequest& request) { return handler.handle(request); }, ...);
//
// POST kMutatePath and kValidatePath with an AdmissionReview; whatever comes there is answered with one. The
// time the API server gives (?timeout=5s) less kAnswerMargin bounds the decision. Thread-safe; what the
// options point to must outlive the handler.
#pragma once

#include <chrono>
#include <string_view>

#include "estimator/cluster_view.h"
#include "estimator/model_source.h"
#include "webhook/http_server.h"
#include "webhook/metrics.h"
#include "webhook/mutate.h"

namespace plimsoll::webhook {

// As kubebuilder names them; the chart's webhook configurations say the same.
inline constexpr const char* kMutatePath = "/mutate-plimsoll-dev-v1alpha1-trainingjob";
inline constexpr const char* kValidatePath = "/validate-plimsoll-dev-v1alpha1-trainingjob";

// For encoding the answer and its way back.
inline constexpr std::chrono::milliseconds kAnswerMargin{200};
// What the API server waits when the configuration says nothing, and at most.
inline constexpr std::chrono::milliseconds kDefaultTimeout{10'000};
inline constexpr std::chrono::milliseconds kLongestTimeout{30'000};

struct AdmissionHandlerOptions {
  const estimator::ClusterViewStore* cluster = nullptr;  // required
  estimator::ModelSource* tables = nullptr;              // null: jobs that name a ConfigMap keep their values
  AdmissionMetrics* metrics = nullptr;                   // null: nothing is counted
};

class AdmissionHandler {
 public:
  explicit AdmissionHandler(AdmissionHandlerOptions options) : options_(options) {}

  HttpResponse handle(const HttpRequest& request) const;

 private:
  HttpResponse answer_mutate(const AdmissionRequest& review, const HttpRequest& request) const;
  HttpResponse answer_validate(const AdmissionRequest& review, const HttpRequest& request) const;
  void count(const char* webhook, bool applied, const std::string& reason, const HttpRequest& request) const;

  AdmissionHandlerOptions options_;
};

// The time for an answer that a query string names ("timeout=5s", Go's notation), within kLongestTimeout, and
// kDefaultTimeout when it names none; less kAnswerMargin, but never less than half of it.
std::chrono::milliseconds time_to_answer(std::string_view query);

}  // namespace plimsoll::webhook
