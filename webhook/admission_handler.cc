#include "webhook/admission_handler.h"

#include <algorithm>
#include <cctype>
#include <exception>
#include <utility>

#include "base/budget.h"
#include "base/log.h"
#include "estimator/provisioner.h"
#include "webhook/duration.h"
#include "webhook/text.h"
#include "webhook/validate.h"

namespace plimsoll::webhook {
namespace {

constexpr std::size_t kLoggedNameLimit = 253;  // the longest name Kubernetes allows

HttpResponse refusal(int status, std::string reason, std::string message, const std::string& uid = {}) {
  return {
      status, "application/json",
      encode_error(
          {.http_status = status, .uid = uid, .reason = std::move(reason), .message = std::move(message)})};
}

// "application/json", in any case, with or without parameters.
bool is_json(std::string_view content_type) {
  content_type = content_type.substr(0, content_type.find(';'));
  while (!content_type.empty() && content_type.back() == ' ') {
    content_type.remove_suffix(1);
  }
  static constexpr std::string_view kJsonType = "application/json";
  return std::equal(content_type.begin(), content_type.end(), kJsonType.begin(), kJsonType.end(),
                    [](unsigned char a, unsigned char b) { return std::tolower(a) == b; });
}

}  // namespace

std::chrono::milliseconds time_to_answer(std::string_view query) {
  std::chrono::milliseconds timeout = kDefaultTimeout;
  static constexpr std::string_view kName = "timeout=";
  while (!query.empty()) {
    const std::string_view parameter = query.substr(0, query.find('&'));
    if (parameter.substr(0, kName.size()) == kName) {
      const auto asked = parse_duration(std::string(parameter.substr(kName.size())));
      if (asked && asked->count() > 0) {
        timeout = std::min(*asked, kLongestTimeout);
      }
    }
    query.remove_prefix(std::min(query.size(), parameter.size() + 1));
  }
  return std::max(timeout - kAnswerMargin, timeout / 2);
}

HttpResponse AdmissionHandler::handle(const HttpRequest& request) const {
  const bool mutating = request.path == kMutatePath;
  if (!mutating && request.path != kValidatePath) {
    return {404, "text/plain; charset=utf-8", "there is nothing at this path\n"};
  }
  const char* webhook = mutating ? "mutate" : "validate";
  const auto refuse = [&](int status, const char* reason, const char* message) {
    count(webhook, false, "BadReview", request);
    return refusal(status, reason, message);
  };
  if (request.method != "POST") {
    return refuse(405, "MethodNotAllowed", "an AdmissionReview must come by POST");
  }
  if (!is_json(request.content_type)) {
    return refuse(415, "UnsupportedMediaType", "the content type must be application/json");
  }
  if (request.body.empty()) {
    return refuse(400, "BadRequest", "the body is empty; it must hold an AdmissionReview");
  }
  std::string uid;
  try {
    const Decoded review = decode_review(request.body);
    uid = review.request.uid;
    if (review.error) {
      count(webhook, false, "BadReview", request);
      log_warning("Could not read an AdmissionReview", {{"webhook", webhook},
                                                        {"uid", one_line(uid, kLoggedNameLimit)},
                                                        {"problem", review.error->message}});
      return {review.error->http_status, "application/json", encode_error(*review.error)};
    }
    return mutating ? answer_mutate(review.request, request) : answer_validate(review.request, request);
  } catch (const std::exception& problem) {  // a library's, out of memory among them
    count(webhook, false, "InternalError", request);
    log_error("An admission ended on an exception", {{"webhook", webhook}, {"problem", problem.what()}});
    return refusal(500, "InternalError", "the webhook failed on this request; its log says why", uid);
  }
}

HttpResponse AdmissionHandler::answer_mutate(const AdmissionRequest& review,
                                             const HttpRequest& request) const {
  const std::shared_ptr<const estimator::ClusterView> cluster = options_.cluster->get();
  Budget budget(
      {.deadline = request.received + time_to_answer(request.query), .memory = estimator::kDecisionMemory});
  const Mutation mutation =
      mutate(review, {.cluster = cluster.get(), .tables = options_.tables, .budget = &budget});
  HttpResponse response{200, "application/json", encode_answer(review.uid, mutation.answer)};
  count("mutate", mutation.applied, mutation.reason, request);
  if (mutation.gpus_saved > 0 && options_.metrics != nullptr) {
    options_.metrics->record_saved(mutation.gpus_saved);
  }
  if (!mutation.message.empty()) {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - request.received;
    log_info(mutation.applied ? "Provisioned a job" : "Left a job as it was",
             {{"job", one_line(review.namespace_name + "/" + review.name, 2 * kLoggedNameLimit)},
              {"reason", mutation.reason},
              {"message", one_line(mutation.message, kMessageLimit)},
              {"dryRun", review.dry_run ? "true" : "false"},
              {"seconds", std::to_string(took.count())}});
  }
  return response;
}

HttpResponse AdmissionHandler::answer_validate(const AdmissionRequest& review,
                                               const HttpRequest& request) const {
  const Validation validation = validate(review);
  count("validate", false, validation.reason, request);
  return {200, "application/json", encode_answer(review.uid, validation.answer)};
}

void AdmissionHandler::count(const char* webhook, bool applied, const std::string& reason,
                             const HttpRequest& request) const {
  if (options_.metrics != nullptr) {
    options_.metrics->record(webhook, applied, reason, std::chrono::steady_clock::now() - request.received);
  }
}

}  // namespace plimsoll::webhook
