#include "webhook/admission_handler.h"

#include <algorithm>
#include <boost/algorithm/string/predicate.hpp>
#include <exception>
#include <locale>
#include <utility>

#include "base/duration.h"
#include "base/json/edit.h"
#include "base/log.h"
#include "crds/request_id.h"
#include "estimator/provisioner/json_patch.h"
#include "webhook/mutate_workload.h"
#include "webhook/text.h"
#include "webhook/validate.h"

namespace plimsoll::webhook {
namespace {

constexpr std::size_t kLoggedNameLimit = 253;  // the longest name Kubernetes allows

http::Response refusal(int status, std::string reason, std::string message, const std::string& uid = {}) {
  return {
      status, "application/json",
      encode_error(
          {.http_status = status, .uid = uid, .reason = std::move(reason), .message = std::move(message)})};
}

// "application/json", in any case, with or without parameters.
bool is_json(std::string_view content_type) {
  content_type = content_type.substr(0, content_type.find(';'));
  content_type = content_type.substr(0, content_type.find_last_not_of(' ') + 1);
  return boost::algorithm::iequals(content_type, "application/json", std::locale::classic());
}

// The response to a review that cannot be handled now, so that the configuration's failurePolicy decides.
http::Response refuse_for_now(const Error& why, const std::string& uid) {
  const int status = why.code == ErrorCode::kTooLarge ? 413 : why.code == ErrorCode::kCancelled ? 503 : 429;
  return refusal(status, name_of(why.code), "the review was not handled: " + why.message, uid);
}

bool is_of_workload(const http::Request& request) {
  return request.path == kMutateWorkloadPath || request.path == kAdviseWorkloadPath;
}

// What the path says of the namespace's mode.
std::optional<crds::ProvisioningMode> namespace_mode(const http::Request& request) {
  if (request.path == kMutateWorkloadPath) {
    return crds::ProvisioningMode::kAuto;
  }
  if (request.path == kAdviseWorkloadPath) {
    return crds::ProvisioningMode::kOff;
  }
  for (const auto& [mode, name] : kModesInPaths) {
    if (request.path == std::string(kMutatePath) + "/" + name) {
      return mode;
    }
  }
  return std::nullopt;
}

bool is_of_training_job(const http::Request& request) {
  return request.path == kMutatePath || (!is_of_workload(request) && namespace_mode(request));
}

// Of a workload of another kind its runtime or its family's MemoryProfile may name them.
bool may_read_objects(const AdmissionRequest& review, const http::Request& request) {
  return is_of_workload(request) || !member(review.object, {"spec", "model", "graph"}).is_null() ||
         !member(review.object, {"spec", "model", "dlrm", "tablesFrom"}).is_null() ||
         !member(review.object, {"spec", "model", "embeddings", "tablesFrom"}).is_null();
}

Mutation keep_as_is(const Error& why) {
  Mutation mutation;
  mutation.reason = name_of(why.code);
  mutation.message = why.message;
  mutation.answer.warnings.push_back("the job keeps its trainers: " + why.message);
  return mutation;
}

// Whether the patch writes another decision than the object has.
bool decides_anew(const Json& patch) {
  static const std::string kAnnotations = "/metadata/annotations";
  static const std::string kDecision =
      estimator::json_pointer({"metadata", "annotations", crds::kDecisionAnnotation});
  return std::any_of(patch.begin(), patch.end(), [](const Json& operation) {
    const std::string path = text_member(operation, {"path"});
    return path == kDecision ||
           (path == kAnnotations && !member(operation, {"value", crds::kDecisionAnnotation}).isNull());
  });
}

// The id changes with the decision alone: the same manifest applied again must change nothing. Where the patch has a
// decision, the object has annotations.
void add_request_id(Json& patch, const std::string& id) {
  if (!decides_anew(patch)) {
    return;
  }
  JsonArray operations;
  for (const Json& operation : patch) {
    operations.append(operation);
  }
  operations.append(
      json_object({{"op", "add"},
                   {"path", estimator::json_pointer({"metadata", "annotations", crds::kRequestIdAnnotation})},
                   {"value", id}}));
  patch = std::move(operations).take();
}

// As malloc counts it: 15 bytes for each byte of parsed text, 18 with the tables of a job of 2,190 to 20,000
// tables.
constexpr std::int64_t kMemoryPerByte = 20;
constexpr Bytes kMemoryOfAnyReview = 256_KiB;

}  // namespace

Bytes memory_of_review(std::size_t body_size) {
  return kMemoryOfAnyReview + Bytes{static_cast<std::int64_t>(body_size)} * kMemoryPerByte;
}

std::chrono::milliseconds time_to_answer(std::string_view query) {
  std::chrono::milliseconds timeout = kDefaultTimeout;
  static constexpr std::string_view kName = "timeout=";
  while (!query.empty()) {
    const std::string_view parameter = query.substr(0, query.find('&'));
    if (parameter.substr(0, kName.size()) == kName) {
      const auto requested = parse_duration(std::string(parameter.substr(kName.size())));
      if (requested && requested->count() > 0) {
        timeout = std::min(*requested, kMaxTimeout);
      }
    }
    query.remove_prefix(std::min(query.size(), parameter.size() + 1));
  }
  return timeout - timeout / kAnswerShare;
}

http::Response AdmissionHandler::handle(const http::Request& request) const {
  const bool mutating = is_of_training_job(request) || is_of_workload(request);
  if (!mutating && request.path != kValidatePath) {
    return {404, "text/plain; charset=utf-8", "not found\n"};
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
  const Budget::Time deadline = request.received + time_to_answer(request.query);
  const ProgressWatch::Work work(progress_, request.received, deadline);
  std::string uid;
  try {
    return answer_review(mutating, request, deadline, uid);
  } catch (const std::exception& problem) {  // of a library, or out of memory
    count(webhook, false, "InternalError", request);
    log_error(
        "Admission handler threw",
        {{"webhook", webhook}, {"requestId", one_line(uid, kLoggedNameLimit)}, {"problem", problem.what()}});
    return refusal(500, "InternalError", "the webhook failed on this request; its log says why", uid);
  }
}

http::Response AdmissionHandler::answer_review(bool mutating, const http::Request& request,
                                               Budget::Time deadline, std::string& uid) const {
  const char* webhook = mutating ? "mutate" : "validate";
  MemoryPool::Reservation reserved;
  if (options_.memory != nullptr) {
    Result<MemoryPool::Reservation> memory =
        options_.memory->reserve(memory_of_review(request.body.size()), deadline, request.stop);
    if (!memory) {
      count(webhook, false, name_of(memory.error().code), request);
      return refuse_for_now(memory.error(), {});
    }
    reserved = *std::move(memory);
  }
  const Decoded review = decode_review(request.body);
  uid = review.request.uid;
  if (review.error) {
    count(webhook, false, "BadReview", request);
    log_warning("Failed to read an AdmissionReview", {{"webhook", webhook},
                                                      {"requestId", one_line(uid, kLoggedNameLimit)},
                                                      {"problem", review.error->message}});
    return {review.error->http_status, "application/json", encode_error(*review.error)};
  }
  return mutating ? answer_mutate(review.request, request, deadline)
                  : answer_validate(review.request, request, deadline);
}

Result<DecisionScheduler::Turn> AdmissionHandler::enter(const AdmissionRequest& review,
                                                        const http::Request& request,
                                                        Budget::Time deadline) const {
  if (options_.scheduler == nullptr) {
    return DecisionScheduler::Turn(request.stop);
  }
  return options_.scheduler->enter(review.namespace_name, deadline, request.stop);
}

Mutation AdmissionHandler::decide(const AdmissionRequest& review, const http::Request& request,
                                  Budget::Time deadline) const {
  MemoryPool::Reservation for_import;
  if (options_.imports != nullptr && may_read_objects(review, request)) {
    // Before the turn: during a turn nothing waits for memory.
    Result<MemoryPool::Reservation> memory =
        options_.imports->reserve(options_.import_memory, deadline, request.stop);
    if (!memory) {
      return keep_as_is(memory.error());
    }
    for_import = *std::move(memory);
  }
  const Result<DecisionScheduler::Turn> turn = enter(review, request, deadline);
  if (!turn) {
    return keep_as_is(turn.error());
  }
  Budget budget(
      {.deadline = deadline, .stop = turn->stop(), .memory = options_.decision_memory + for_import.bytes()});
  const std::shared_ptr<const estimator::ClusterView> cluster = options_.cluster->get();
  const MutateInputs inputs{.cluster = cluster.get(),
                            .tables = options_.tables,
                            .budget = &budget,
                            .objects = options_.objects,
                            .policy = options_.policy,
                            .namespace_mode = namespace_mode(request)};
  Mutation mutation = is_of_workload(request) ? mutate_workload(review, inputs) : mutate(review, inputs);
  if (!mutation.applied && turn->stopped_for_others()) {
    return keep_as_is(
        Error(ErrorCode::kTooManyRequests,
              "the decision took too long while other jobs were waiting; submit fewer such jobs at a "
              "time, or a smaller model"));
  }
  return mutation;
}

http::Response AdmissionHandler::answer_mutate(const AdmissionRequest& review, const http::Request& request,
                                               Budget::Time deadline) const {
  Mutation mutation = decide(review, request, deadline);
  add_request_id(mutation.answer.patch, review.uid);
  http::Response response{200, "application/json", encode_answer(review.uid, mutation.answer)};
  count("mutate", mutation.applied, mutation.reason, request);
  if (mutation.gpus_saved > 0 && options_.metrics != nullptr) {
    options_.metrics->record_saved(mutation.gpus_saved);
  }
  if (!mutation.message.empty()) {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - request.received;
    log_info(mutation.applied ? "Provisioned a job" : "Left a job unchanged",
             {{"job", one_line(review.namespace_name + "/" + review.name, 2 * kLoggedNameLimit)},
              {"requestId", one_line(review.uid, kLoggedNameLimit)},
              {"reason", mutation.reason},
              {"message", one_line(mutation.message, kMessageLimit)},
              {"dryRun", review.dry_run},
              {"seconds", took.count()}});
  }
  return response;
}

http::Response AdmissionHandler::answer_validate(const AdmissionRequest& review, const http::Request& request,
                                                 Budget::Time deadline) const {
  const Result<DecisionScheduler::Turn> turn = enter(review, request, deadline);
  if (!turn) {
    count("validate", false, name_of(turn.error().code), request);
    return refuse_for_now(turn.error(), review.uid);
  }
  const Validation validation = validate(review);
  count("validate", false, validation.reason, request);
  return {200, "application/json", encode_answer(review.uid, validation.answer)};
}

void AdmissionHandler::count(const char* webhook, bool applied, const std::string& reason,
                             const http::Request& request) const {
  if (options_.metrics != nullptr) {
    options_.metrics->record(webhook, applied, reason, std::chrono::steady_clock::now() - request.received);
  }
}

}  // namespace plimsoll::webhook
