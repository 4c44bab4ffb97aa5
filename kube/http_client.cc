#include "kube/http_client.h"

#include <openssl/ssl.h>

#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "base/backoff.h"
#include "base/json/edit.h"
#include "base/log.h"
#include "kube/api_error.h"
#include "kube/credentials.h"
#include "kube/http_exchange.h"
#include "kube/list_page.h"
#include "kube/reloaded_file.h"
#include "kube/sleeper.h"
#include "kube/watch_stream.h"

namespace plimsoll::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t kListLimit = 512U << 20;   // a List of 100,000 pods is near 400 MiB
constexpr std::size_t kObjectLimit = 32U << 20;  // an object is at most 3 MiB; metrics and OpenAPI are larger
constexpr std::size_t kErrorLimit = 1U << 20;
constexpr int kMaxTries = 10;        // of one call, for any deadline; as in client-go
constexpr int kMaxServerErrors = 4;  // 5xx without Retry-After
constexpr int kMaxUnsent = 3;        // the second try has a new connection
constexpr int kMaxCut = 2;
// The client ends a watch this long after the server should have ended it.
constexpr std::chrono::seconds kWatchGrace{60};
constexpr std::chrono::seconds kWatchHeadTimeout{30};

const char* content_type_of(PatchType type) {
  switch (type) {
    case PatchType::kJson: return "application/json-patch+json";
    case PatchType::kMerge: return "application/merge-patch+json";
    case PatchType::kStrategicMerge: return "application/strategic-merge-patch+json";
    case PatchType::kApply: return "application/apply-patch+yaml";  // JSON is YAML
  }
  return "application/json";
}

// "?name=value&..." of the parameters that are not empty.
std::string query_of(std::initializer_list<std::pair<const char*, std::string>> parameters) {
  std::string query;
  for (const auto& [name, value] : parameters) {
    if (!value.empty()) {
      query += query.empty() ? '?' : '&';
      query += name;
      query += '=' + percent_encode(value);
    }
  }
  return query;
}

std::string write_query(const CallOptions& options, bool force = false) {
  return query_of({{"fieldManager", options.field_manager},
                   {"dryRun", options.dry_run ? "All" : ""},
                   {"force", force ? "true" : ""}});
}

Json delete_options(const CallOptions& options) {
  static constexpr const char* kPolicies[] = {"Background", "Foreground", "Orphan"};
  JsonObject body;
  body["apiVersion"] = "v1";
  body["kind"] = "DeleteOptions";
  body["propagationPolicy"] = kPolicies[static_cast<int>(options.propagation)];
  if (!options.uid.empty()) {
    body["preconditions"]["uid"] = options.uid;
  }
  if (!options.resource_version.empty()) {
    body["preconditions"]["resourceVersion"] = options.resource_version;
  }
  if (options.dry_run) {
    body["dryRun"].append("All");
  }
  return body;
}

// When a call must end.
struct Limits {
  steady_clock::time_point deadline;
  std::stop_token stop;

  milliseconds left() const {
    return std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now());
  }
};

// One call: the request, and whether it may be sent twice.
struct Call {
  HttpRequest request;
  bool repeatable = true;
  std::size_t body_limit = kObjectLimit;
};

class HttpClient final : public Client {
 public:
  HttpClient(std::string server, std::unique_ptr<CredentialSource> credentials,
             std::unique_ptr<ReloadedFile> ca, std::shared_ptr<TlsMaterial> tls,
             std::unique_ptr<HttpEndpoint> calls, std::unique_ptr<HttpEndpoint> watches,
             ClientObserver* observer)
      : server_(std::move(server)),
        credentials_(std::move(credentials)),
        ca_(std::move(ca)),
        tls_(std::move(tls)),
        calls_(std::move(calls)),
        watches_(std::move(watches)),
        observer_(observer) {}

  Result<Json> get(const Resource& resource, const std::string& namespace_name, const std::string& name,
                   const CallOptions& options) override {
    if (name.empty()) {
      return invalid("get needs a name; list reads a whole collection");
    }
    return json_call({{"GET", path_of(resource, namespace_name, name), "", "", ""}}, limits_of(options));
  }

  Result<Json> list(const Resource& resource, const std::string& namespace_name, const ListOptions& what,
                    const CallOptions& options) override {
    JsonArray items;
    Result<Json> all = list_each(
        resource, namespace_name, what,
        {.begin = [&] { items.clear(); }, .take = [&](const JsonView& item) { items.append(tree_of(item)); }},
        options);
    if (!all) {
      return all;
    }
    JsonEdit whole(*std::move(all));
    whole["items"] = std::move(items);
    return std::move(whole).take();
  }

  Result<Json> list_each(const Resource& resource, const std::string& namespace_name, const ListOptions& what,
                         const ItemReader& reader, const CallOptions& options) override {
    const Limits limits = limits_of(options);
    Result<Json> all = list_pages(resource, namespace_name, what, reader, limits);
    if (!all && all.error().code == ErrorCode::kExpired && what.limit > 0) {
      // The continue token expired between two pages: request the whole list at once.
      ListOptions whole = what;
      whole.limit = 0;
      return list_pages(resource, namespace_name, whole, reader, limits);
    }
    return all;
  }

  Result<Json> create(const Resource& resource, const std::string& namespace_name, const Json& object,
                      const CallOptions& options) override {
    if (text_member(object, {"metadata", "name"}).empty() &&
        !text_member(object, {"metadata", "generateName"}).empty()) {
      return invalid(
          "create needs metadata.name: a repeated request with generateName would make two objects");
    }
    Call call{{"POST", path_of(resource, namespace_name) + write_query(options), "", "application/json",
               write_json(object)}};
    call.repeatable = false;
    return json_call(std::move(call), limits_of(options));
  }

  Result<Json> update(const Resource& resource, const std::string& namespace_name, const Json& object,
                      const std::string& subresource, const CallOptions& options) override {
    const std::string name = text_member(object, {"metadata", "name"});
    if (name.empty()) {
      return invalid("update needs metadata.name");
    }
    return json_call({{"PUT", path_of(resource, namespace_name, name, subresource) + write_query(options), "",
                       "application/json", write_json(object)}},
                     limits_of(options));
  }

  Result<Json> patch(const Resource& resource, const std::string& namespace_name, const std::string& name,
                     PatchType type, const Json& patch, const std::string& subresource,
                     const CallOptions& options) override {
    if (name.empty()) {
      return invalid("patch needs a name");
    }
    const bool apply = type == PatchType::kApply;
    Call call{{"PATCH", path_of(resource, namespace_name, name, subresource) + write_query(options, apply),
               "", content_type_of(type), write_json(patch)}};
    call.repeatable = type != PatchType::kJson;
    return json_call(std::move(call), limits_of(options));
  }

  Result<void> remove(const Resource& resource, const std::string& namespace_name, const std::string& name,
                      const CallOptions& options) override {
    if (name.empty()) {
      return invalid("remove needs a name");
    }
    int tries = 0;
    Result<std::string> answer = perform({{"DELETE", path_of(resource, namespace_name, name), "",
                                           "application/json", write_json(delete_options(options))}},
                                         limits_of(options), &tries);
    if (!answer && !(tries > 1 && answer.error().code == ErrorCode::kNotFound)) {
      return answer.error();
    }
    return {};
  }

  Result<std::string> get_raw(const std::string& path, const CallOptions& options) override {
    if (!path.starts_with('/')) {
      return invalid("a raw path must begin with /", path);
    }
    return perform({{"GET", path, "", "", ""}}, limits_of(options));
  }

  Result<void> watch(const Resource& resource, const std::string& namespace_name, const WatchOptions& options,
                     const std::function<void(const WatchEvent&)>& on_event, std::stop_token stop) override {
    const bool initial = options.send_initial_events;
    HttpRequest request{"GET",
                        path_of(resource, namespace_name) +
                            query_of({{"watch", "true"},
                                      {"allowWatchBookmarks", "true"},
                                      {"timeoutSeconds", std::to_string(options.server_timeout.count())},
                                      {"sendInitialEvents", initial ? "true" : ""},
                                      {"resourceVersionMatch", initial ? "NotOlderThan" : ""},
                                      {"resourceVersion", options.resource_version},
                                      {"labelSelector", options.label_selector},
                                      {"fieldSelector", options.field_selector}}),
                        "", "", ""};
    bool refreshed = false;
    for (int unsent = 0;;) {
      if (Result<void> ready = authenticate(request, kWatchHeadTimeout); !ready) {
        return ready.error();
      }
      HttpExchange exchange(*watches_, request);
      const std::optional<HttpFailure> failure =
          exchange.wait_for_head(steady_clock::now() + kWatchHeadTimeout, stop);
      if (observer_ != nullptr) {
        observer_->requested(request.method, failure ? 0 : exchange.status());
      }
      if (failure) {
        if (failure->stage == HttpFailure::Stage::kSending && ++unsent < kMaxUnsent) {
          watches_->forget_connections();
          continue;
        }
        if (failure->stage == HttpFailure::Stage::kDeadline) {
          watches_->forget_connections();
        }
        return error_of(*failure);
      }
      if (exchange.status() == 200) {
        return follow(exchange, options, on_event, stop);
      }
      const Error refusal = refusal_of(exchange, stop);
      if (exchange.status() != 401 || refreshed || !credentials_->refresh()) {
        return refusal;
      }
      watches_->forget_connections();
      refreshed = true;
    }
  }

 private:
  static Limits limits_of(const CallOptions& options) {
    return {steady_clock::now() + options.timeout, options.stop};
  }

  Error error_of(const HttpFailure& failure) const {
    switch (failure.stage) {
      case HttpFailure::Stage::kStopped: return Error(ErrorCode::kCancelled, "stopped");
      case HttpFailure::Stage::kDeadline:
        return Error(ErrorCode::kTimeout, server_ + " sent no complete response before the deadline");
      case HttpFailure::Stage::kConnecting:
        if (ca_ != nullptr) {
          ca_->expire();  // the server may have the certificate of a new CA
        }
        return Error(ErrorCode::kUnavailable, "cannot reach " + server_ + ": " + failure.reason);
      case HttpFailure::Stage::kSending:
      case HttpFailure::Stage::kReceiving: break;
    }
    return Error(ErrorCode::kUnavailable, "lost the connection to " + server_ + ": " + failure.reason);
  }

  Result<void> authenticate(HttpRequest& request, milliseconds deadline) {
    Result<Credential> credential = credentials_->current(deadline);
    if (!credential) {
      return credential.error();
    }
    request.token = credential->token;
    if (ca_ != nullptr) {
      if (const Result<void> set = tls_->set_trusted(ca_->current()); !set) {
        log_warning("Kept the previous CA", {{"server", server_}, {"reason", to_string(set.error())}});
      }
    }
    const bool has_one = tls_->has_client_certificate();
    Result<void> set =
        tls_->set_client_certificate(credential->client_certificate_pem, credential->client_key_pem);
    if (!set && has_one) {  // the files may be in the middle of a swap
      log_warning("Kept the previous client certificate",
                  {{"server", server_}, {"reason", to_string(set.error())}});
      return {};
    }
    return set;
  }

  // The outcome of one try: the body of a 2xx response, the error of another, or a failure of the transport.
  struct Attempt {
    std::optional<HttpFailure> failure;
    int status = 0;
    bool has_retry_after = false;
    std::string body;
    Error error;
  };

  Attempt attempt(const Call& call, const Limits& limits) {
    Attempt result;
    HttpExchange exchange(*calls_, call.request);
    result.failure = exchange.wait_for_head(limits.deadline, limits.stop);
    if (result.failure) {
      result.error = error_of(*result.failure);
      return result;
    }
    result.status = exchange.status();
    const bool good = result.status >= 200 && result.status < 300;
    const std::size_t limit = good ? call.body_limit : kErrorLimit;
    HttpExchange::Read read = HttpExchange::Read::kData;
    while (read == HttpExchange::Read::kData && result.body.size() <= limit) {
      read = exchange.read(result.body, limits.deadline, limits.stop);
    }
    if (read == HttpExchange::Read::kFailed) {
      result.failure = exchange.failure();
      result.error = error_of(*result.failure);
    } else if (!good) {
      result.error = error_of_response(result.status, result.body, exchange.retry_after());
      result.has_retry_after = result.error.retry_after.count() > 0 || !exchange.retry_after().empty();
    } else if (result.body.size() > limit) {
      result.status = 413;
      result.error =
          Error(ErrorCode::kTooLarge, "the response is larger than " + std::to_string(limit >> 20) + " MiB");
    }
    return result;
  }

  // The failures of one call so far.
  struct Tries {
    Backoff backoff{{milliseconds(100), milliseconds(5'000), 0.5}, std::random_device{}()};
    int unsent = 0;
    int cut = 0;
    int server_errors = 0;
    bool refreshed = false;
  };

  // Nothing: no further try.
  std::optional<milliseconds> delay_before_next(const Call& call, const Attempt& last, Tries& tries) {
    if (last.failure) {
      switch (last.failure->stage) {
        case HttpFailure::Stage::kSending:
          calls_->forget_connections();
          return ++tries.unsent < kMaxUnsent ? std::optional(milliseconds(0)) : std::nullopt;
        case HttpFailure::Stage::kReceiving:
          return call.repeatable && ++tries.cut < kMaxCut ? std::optional(tries.backoff.next())
                                                          : std::nullopt;
        case HttpFailure::Stage::kDeadline:
          calls_->forget_connections();  // the peer may have gone without closing the connection
          return std::nullopt;
        default: return std::nullopt;
      }
    }
    if (last.status == 401 && !tries.refreshed) {
      tries.refreshed = true;
      calls_->forget_connections();  // they use the client certificate that was rejected
      return credentials_->refresh() ? std::optional(milliseconds(0)) : std::nullopt;
    }
    if (last.status == 429 || (last.status >= 500 && last.has_retry_after)) {
      return std::max(tries.backoff.next(), last.error.retry_after);
    }
    if (last.status >= 500 && call.repeatable && ++tries.server_errors < kMaxServerErrors) {
      return tries.backoff.next();
    }
    return std::nullopt;
  }

  Result<std::string> perform(Call call, const Limits& limits, int* tries_made = nullptr) {
    Tries tries;
    for (int count = 1;; ++count) {
      if (tries_made != nullptr) {
        *tries_made = count;
      }
      if (Result<void> ready = authenticate(call.request, limits.left()); !ready) {
        return ready.error();
      }
      const steady_clock::time_point began = steady_clock::now();
      Attempt last = attempt(call, limits);
      if (observer_ != nullptr) {
        observer_->requested(call.request.method, last.failure ? 0 : last.status);
        observer_->took(call.request.method, steady_clock::now() - began);
      }
      if (!last.failure && last.status >= 200 && last.status < 300) {
        return std::move(last.body);
      }
      const std::optional<milliseconds> delay = delay_before_next(call, last, tries);
      if (!delay || count == kMaxTries || *delay >= limits.left()) {
        return last.error;
      }
      if (!system_sleeper().sleep_for(*delay, limits.stop)) {
        return Error(ErrorCode::kCancelled, "stopped");
      }
    }
  }

  Result<Json> json_call(Call call, const Limits& limits) {
    Result<std::string> body = perform(std::move(call), limits);
    if (!body) {
      return body.error();
    }
    Result<Json> parsed = parse_json(*body);
    return parsed && parsed->isObject() ? std::move(parsed) : not_an_object(*body);
  }

  Error not_an_object(const std::string& body) const {
    return Error(ErrorCode::kInternal,
                 server_ + " sent a response that is not a JSON object; is it an API server?",
                 body.substr(0, 40));
  }

  Result<Json> list_pages(const Resource& resource, const std::string& namespace_name,
                          const ListOptions& what, const ItemReader& reader, const Limits& limits) {
    Json all;
    std::string next;
    reader.begin();
    do {
      // The server rejects a version together with a continue token, which contains one.
      Call call{{"GET",
                 path_of(resource, namespace_name) +
                     query_of({{"labelSelector", what.label_selector},
                               {"fieldSelector", what.field_selector},
                               {"limit", what.limit > 0 ? std::to_string(what.limit) : ""},
                               {"resourceVersion", next.empty() ? what.resource_version : ""},
                               {"continue", next}}),
                 "", "", ""}};
      call.body_limit = kListLimit;
      const Result<std::string> body = perform(std::move(call), limits);
      if (!body) {
        return body.error();
      }
      Result<Json> page = read_list_page(*body, reader);
      if (!page) {
        return not_an_object(*body);
      }
      next = text_member(*page, {"metadata", "continue"});
      if (all.isNull()) {
        all = std::move(*page);
      } else {
        JsonEdit merged(std::move(all));
        merged["metadata"] = member(*page, {"metadata"});
        Result<Json> whole = std::move(merged).take();
        if (!whole) {
          return whole;
        }
        all = *std::move(whole);
      }
    } while (!next.empty());
    JsonEdit whole(std::move(all));
    whole["metadata"].remove("continue");
    whole["metadata"].remove("remainingItemCount");
    return std::move(whole).take();
  }

  static Error refusal_of(HttpExchange& exchange, const std::stop_token& stop) {
    const auto deadline = steady_clock::now() + kWatchHeadTimeout;
    std::string body;
    while (body.size() < kErrorLimit && exchange.read(body, deadline, stop) == HttpExchange::Read::kData) {
    }
    return error_of_response(exchange.status(), body, exchange.retry_after());
  }

  // Reads events until the stream ends, one of them is an error, or nothing arrives for too long.
  Result<void> follow(HttpExchange& exchange, const WatchOptions& options,
                      const std::function<void(const WatchEvent&)>& on_event, const std::stop_token& stop) {
    const steady_clock::time_point last_end = steady_clock::now() + options.server_timeout + kWatchGrace;
    // A stop also takes effect between two events of one piece.
    bool stopped = false;
    const WatchStream::OnEvent unless_stopped = [&](const WatchEvent& event) {
      stopped = stopped || stop.stop_requested();
      if (!stopped) {
        on_event(event);
      }
    };
    WatchStream stream(unless_stopped);
    std::string piece;
    while (true) {
      const auto idle_end = std::min(steady_clock::now() + options.idle_timeout, last_end);
      piece.clear();
      const HttpExchange::Read read = exchange.read(piece, idle_end, stop);
      if (read == HttpExchange::Read::kFailed) {
        const bool at_end =
            exchange.failure().stage == HttpFailure::Stage::kDeadline && steady_clock::now() >= last_end;
        return at_end ? Result<void>() : error_of(exchange.failure());
      }
      const bool ended = read == HttpExchange::Read::kEnd;
      Result<void> handled = ended ? stream.finish() : stream.append(piece);
      if (stopped) {
        return Error(ErrorCode::kCancelled, "stopped");
      }
      if (!handled || ended) {
        return handled;
      }
    }
  }

  const std::string server_;
  const std::unique_ptr<CredentialSource> credentials_;
  const std::unique_ptr<ReloadedFile> ca_;  // null: the CA is inline, or there is none
  const std::shared_ptr<TlsMaterial> tls_;
  // Watches keep their connections for minutes; those of calls are kept apart, short-lived and recent.
  const std::unique_ptr<HttpEndpoint> calls_;
  const std::unique_ptr<HttpEndpoint> watches_;
  ClientObserver* const observer_;  // null: none
};

}  // namespace

Result<std::unique_ptr<Client>> connect(const ClientConfig& config, ClientObserver* observer) {
  // Before the transport thread starts, whose state OpenSSL keeps: what is initialized first is there longer when the process ends.
  OPENSSL_init_ssl(0, nullptr);
  const std::string source = config.source.empty() ? "client configuration" : config.source;
  Result<std::shared_ptr<TlsMaterial>> tls = TlsMaterial::make(config);
  if (!tls) {
    return tls.error().within(source);
  }
  Result<std::unique_ptr<HttpEndpoint>> calls = HttpEndpoint::make(config, *tls);
  if (!calls) {
    return calls.error().within(source);
  }
  Result<std::unique_ptr<HttpEndpoint>> watches = HttpEndpoint::make(config, *tls);
  if (!watches) {
    return watches.error().within(source);
  }
  std::unique_ptr<ReloadedFile> ca =
      config.ca_file.empty() ? nullptr : std::make_unique<ReloadedFile>(config.ca_file, config.ca_pem);
  return std::unique_ptr<Client>(std::make_unique<HttpClient>(config.server, make_credential_source(config),
                                                              std::move(ca), *tls, std::move(*calls),
                                                              std::move(*watches), observer));
}

}  // namespace plimsoll::kube
