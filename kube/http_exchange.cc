#include "kube/http_exchange.h"

#include <cpprest/http_client.h>
#include <cpprest/producerconsumerstream.h>
#include <openssl/err.h>

#include <condition_variable>
#include <string_view>
#include <thread>

#include "base/mutex.h"
#include "kube/resource.h"
#include "kube/transport.h"

namespace plimsoll::kube {
namespace {

using web::http::http_request;
using web::http::http_response;

// While this many bytes wait for the caller, cpprestsdk does not read more. A watch whose server is faster
// than the caller holds about four times as much.
constexpr std::size_t kBufferLimit = 256 << 10;
// cpprestsdk stores chunk sizes in an int and does not check them; larger ones are errors.
constexpr std::size_t kChunkLimit = 1 << 30;
// The deadlines of the caller end an exchange; cpprestsdk's timer for each read comes long after them.
constexpr std::chrono::minutes kReadTimeout{60};
// How long the destructor of an endpoint waits. A cancelled exchange ends at once.
constexpr std::chrono::milliseconds kDestructionTimeout{2'000};

Result<web::uri> parse_server(const std::string& server) {
  try {
    const web::uri uri(server);
    if (uri.host().starts_with('[')) {
      return Error(ErrorCode::kUnsupported, "an IPv6 address is not supported; use the name of the server",
                   server);
    }
    // cpprestsdk takes a port that is not a number as part of the host.
    const bool has_host = !uri.host().empty() && percent_encode(uri.host()) == uri.host();
    if (!has_host || (uri.scheme() != "https" && uri.scheme() != "http")) {
      return invalid("the server must be a URL such as https://host:port", server);
    }
    return uri;
  } catch (const std::exception&) {
    return invalid("the server must be a URL such as https://host:port", server);
  }
}

}  // namespace

struct HttpEndpoint::Implementation {
  using HttpLibraryClient = web::http::client::http_client;

  web::uri server;
  web::http::client::http_client_config options;
  std::shared_ptr<TlsMaterial> tls;
  // Every exchange that cpprestsdk still works on has a copy, also those that their callers have dropped.
  std::shared_ptr<void> outstanding = std::make_shared<int>();
  std::string host_header;  // set when the certificate is to be checked against another name than the host

  Mutex mutex;
  std::optional<HttpLibraryClient> client PLIMSOLL_GUARDED_BY(mutex);  // copies share one pool of connections

  HttpLibraryClient current() {
    const MutexLock lock(mutex);
    return *client;
  }
};

HttpEndpoint::HttpEndpoint(std::unique_ptr<Implementation> implementation)
    : implementation_(std::move(implementation)) {}

HttpEndpoint::~HttpEndpoint() {
  // Cancelled exchanges end on cpprestsdk's threads, and the process must not exit before that.
  const auto deadline = std::chrono::steady_clock::now() + kDestructionTimeout;
  while (implementation_->outstanding.use_count() > 1 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void HttpEndpoint::forget_connections() {
  const MutexLock lock(implementation_->mutex);
  implementation_->client.emplace(implementation_->server, implementation_->options);
}

Result<std::unique_ptr<HttpEndpoint>> HttpEndpoint::make(const ClientConfig& config,
                                                         const std::shared_ptr<TlsMaterial>& tls) {
  start_transport_pool();
  Result<web::uri> server = parse_server(config.server);
  if (!server) {
    return server.error();
  }
  auto implementation = std::make_unique<Implementation>();
  implementation->server = *server;
  implementation->host_header = config.tls_server_name;
  implementation->tls = tls;
  web::http::client::http_client_config& options = implementation->options;
  options.set_max_redirects(0);
  options.set_timeout(kReadTimeout);
  options.set_validate_certificates(!config.insecure_skip_tls_verify);
  options.set_tlsext_sni_enabled(!is_ip_address(tls->server_name()));
  options.set_ssl_context_callback(
      [tls](boost::asio::ssl::context& context) { tls->configure(context.native_handle()); });
  auto endpoint = std::unique_ptr<HttpEndpoint>(new HttpEndpoint(std::move(implementation)));
  endpoint->forget_connections();  // makes the first client
  return endpoint;
}

// Shared by the thread of the caller and those of cpprestsdk; destroyed by the last of them.
struct HttpExchange::State {
  explicit State(const HttpEndpoint::Implementation& endpoint)
      : outstanding(endpoint.outstanding), tls(endpoint.tls) {}

  const std::shared_ptr<void> outstanding;  // destroyed last
  const std::shared_ptr<TlsMaterial> tls;
  pplx::cancellation_token_source cancellation;
  mutable Mutex mutex;
  std::condition_variable_any changed;
  bool has_head PLIMSOLL_GUARDED_BY(mutex) = false;
  int status PLIMSOLL_GUARDED_BY(mutex) = 0;
  std::string retry_after PLIMSOLL_GUARDED_BY(mutex);
  bool ended PLIMSOLL_GUARDED_BY(mutex) = false;  // no more bytes will come
  std::optional<HttpFailure> failure PLIMSOLL_GUARDED_BY(mutex);
  bool finished PLIMSOLL_GUARDED_BY(mutex) = false;   // cpprestsdk is done with the exchange
  bool abandoned PLIMSOLL_GUARDED_BY(mutex) = false;  // what still arrives is dropped
  std::string buffer PLIMSOLL_GUARDED_BY(mutex);
  // Set while cpprestsdk waits until the buffer is empty.
  std::optional<pplx::task_completion_event<std::size_t>> blocked PLIMSOLL_GUARDED_BY(mutex);
  std::size_t blocked_count PLIMSOLL_GUARDED_BY(mutex) = 0;

  // Never returns a failed task: cpprestsdk would close the stream at once and wait, on a thread of its pool,
  // for another one (streambuf_state_manager::create_exception_checked_task), which may not exist while the
  // process ends. Bytes that nobody wants are dropped, and cancelling ends the exchange.
  pplx::task<std::size_t> receive(const char* bytes, std::size_t count) {
    const MutexLock lock(mutex);
    if (abandoned) {
      return pplx::task_from_result(count);
    }
    if (count > kChunkLimit) {
      failure = HttpFailure{HttpFailure::Stage::kReceiving, "a chunk of the response is larger than 1 GiB"};
      ended = true;
      abandoned = true;
      changed.notify_all();
      return pplx::task_from_result(count);
    }
    buffer.append(bytes, count);
    changed.notify_all();
    if (buffer.size() < kBufferLimit) {
      return pplx::task_from_result(count);
    }
    blocked.emplace();
    blocked_count = count;
    return pplx::create_task(*blocked);
  }

  void set_head(const http_response& response) {
    const MutexLock lock(mutex);
    status = response.status_code();
    const auto header = response.headers().find("Retry-After");
    if (header != response.headers().end()) {
      retry_after = header->second;
    }
    has_head = true;
    changed.notify_all();
  }

  void set_end() {
    const MutexLock lock(mutex);
    finish();
  }

  void set_failure(const std::exception_ptr& problem) {
    HttpFailure reason = describe(problem);
    const MutexLock lock(mutex);
    if (!failure) {
      failure = std::move(reason);
    }
    finish();
  }

  // cpprestsdk is done.
  void finish() PLIMSOLL_REQUIRES(mutex) {
    finished = true;
    ended = true;
    changed.notify_all();
  }

  // The stage is only in the text of cpprestsdk's exception (http_client_asio.cpp, report_error).
  HttpFailure describe(const std::exception_ptr& problem) const {
    HttpFailure result;
    try {
      std::rethrow_exception(problem);
    } catch (const web::http::http_exception& exception) {
      const std::string_view what = exception.what();
      result.reason = what;
      if (what.starts_with("Error in SSL handshake")) {
        result.stage = HttpFailure::Stage::kConnecting;
        const std::string refusal = tls->last_refusal();
        const char* reason =
            ERR_reason_error_string(static_cast<unsigned long>(exception.error_code().value()));
        result.reason = !refusal.empty()    ? "the server's certificate was rejected: " + refusal
                        : reason != nullptr ? std::string("TLS handshake failed: ") + reason
                                            : "TLS handshake failed";
      } else if (what.starts_with("Failed to connect") || what.starts_with("Error resolving") ||
                 what.starts_with("Failed to resolve")) {
        result.stage = HttpFailure::Stage::kConnecting;
        if (exception.error_code().value() != 0 && what.starts_with("Failed to connect")) {
          result.reason = "failed to connect: " + describe_errno(exception.error_code().value());
        }
      } else if (what.starts_with("Failed to write request")) {
        result.stage = HttpFailure::Stage::kSending;
      }
    } catch (const std::exception& exception) {
      result.reason = exception.what();
    } catch (...) {
      result.reason = "unknown failure in the HTTP library";
    }
    return result;
  }

  // cpprestsdk reports "connection refused" as "host unreachable".
  static std::string describe_errno(int code) {
    const std::error_code reason(code, std::generic_category());
    return reason == std::errc::host_unreachable ? "connection refused, or no route to the host"
                                                 : reason.message();
  }
};

namespace {

// The write end of a response's body: passes all bytes to a function and keeps none. cpprestsdk's own stream
// buffers either hold the whole body or must be polled.
template <class Receive>
class PushBuffer final : public concurrency::streams::details::basic_producer_consumer_buffer<std::uint8_t> {
 public:
  explicit PushBuffer(Receive receive) : basic_producer_consumer_buffer(0), receive_(std::move(receive)) {}

 protected:
  pplx::task<std::size_t> _putn(const std::uint8_t* bytes, std::size_t count) override {
    return receive_(reinterpret_cast<const char*>(bytes), count);
  }
  pplx::task<int_type> _putc(std::uint8_t byte) override {
    return _putn(&byte, 1).then([byte](std::size_t) { return static_cast<int_type>(byte); });
  }
  std::uint8_t* _alloc(std::size_t) override { return nullptr; }  // not supported: what is written is pushed

 private:
  Receive receive_;
};

template <class Receive>
concurrency::streams::ostream push_stream(Receive receive) {
  const std::shared_ptr<concurrency::streams::details::basic_streambuf<std::uint8_t>> buffer =
      std::make_shared<PushBuffer<Receive>>(std::move(receive));
  return concurrency::streams::streambuf<std::uint8_t>(buffer).create_ostream();
}

http_request translate(const HttpRequest& request, const std::string& host_header) {
  http_request translated(request.method);
  translated.set_request_uri(web::uri(request.target));
  web::http::http_headers& headers = translated.headers();
  headers.add("Accept", "application/json");
  headers.add("User-Agent", "plimsoll/" PLIMSOLL_VERSION);
  if (!request.token.empty()) {
    headers.add("Authorization", "Bearer " + request.token);
  }
  if (!host_header.empty()) {
    headers.add("Host", host_header);
  }
  if (!request.body.empty()) {
    translated.set_body(request.body, request.content_type);
  }
  return translated;
}

}  // namespace

HttpExchange::HttpExchange(HttpEndpoint& endpoint, const HttpRequest& request)
    : state_(std::make_shared<State>(endpoint.implementation())) {
  HttpEndpoint::Implementation& implementation = endpoint.implementation();
  const std::shared_ptr<State> state = state_;
  try {
    http_request translated = translate(request, implementation.host_header);
    translated.set_response_stream(
        push_stream([state](const char* bytes, std::size_t count) { return state->receive(bytes, count); }));
    // The continuations must not wait: they run on the threads that do the I/O.
    implementation.current()
        .request(translated, state->cancellation.get_token())
        .then([state](const pplx::task<http_response>& head) {
          try {
            const http_response response = head.get();
            state->set_head(response);
            response.content_ready().then([state](const pplx::task<http_response>& body) {
              try {
                body.get();
                state->set_end();
              } catch (...) {
                state->set_failure(std::current_exception());
              }
            });
          } catch (...) {
            state->set_failure(std::current_exception());
          }
        });
  } catch (...) {
    state->set_failure(std::current_exception());
  }
}

HttpExchange::~HttpExchange() {
  std::optional<pplx::task_completion_event<std::size_t>> blocked;
  bool finished = false;
  {
    const MutexLock lock(state_->mutex);
    state_->abandoned = true;
    finished = state_->finished;
    blocked.swap(state_->blocked);
  }
  if (!finished) {
    state_->cancellation.cancel();
  }
  if (blocked) {
    blocked->set(state_->blocked_count);
  }
}

std::optional<HttpFailure> HttpExchange::wait_for_head(Deadline deadline, const std::stop_token& stop) {
  MutexLock lock(state_->mutex);
  state_->changed.wait_until(lock, stop, deadline, [&]() PLIMSOLL_REQUIRES(state_->mutex) {
    return state_->has_head || state_->failure;
  });
  if (state_->has_head) {
    return std::nullopt;
  }
  if (state_->failure) {
    return state_->failure;
  }
  return stop.stop_requested()
             ? HttpFailure{HttpFailure::Stage::kStopped, "stopped"}
             : HttpFailure{HttpFailure::Stage::kDeadline, "no response before the deadline"};
}

int HttpExchange::status() const {
  const MutexLock lock(state_->mutex);
  return state_->status;
}

std::string HttpExchange::retry_after() const {
  const MutexLock lock(state_->mutex);
  return state_->retry_after;
}

HttpExchange::Read HttpExchange::read(std::string& bytes, Deadline deadline, const std::stop_token& stop) {
  std::optional<pplx::task_completion_event<std::size_t>> blocked;
  std::size_t count = 0;
  {
    MutexLock lock(state_->mutex);
    state_->changed.wait_until(lock, stop, deadline, [&]() PLIMSOLL_REQUIRES(state_->mutex) {
      return !state_->buffer.empty() || state_->ended;
    });
    if (stop.stop_requested()) {
      failure_ = {HttpFailure::Stage::kStopped, "stopped"};
      return Read::kFailed;
    }
    if (state_->buffer.empty()) {
      if (state_->failure) {
        failure_ = *state_->failure;
      } else if (!state_->ended) {
        failure_ = {HttpFailure::Stage::kDeadline, "the response stopped before its end"};
      }
      return state_->ended && !state_->failure ? Read::kEnd : Read::kFailed;
    }
    if (bytes.empty()) {
      bytes.swap(state_->buffer);
    } else {
      bytes.append(state_->buffer);
    }
    state_->buffer.clear();
    blocked.swap(state_->blocked);
    count = state_->blocked_count;
  }
  if (blocked) {
    blocked->set(count);
  }
  return Read::kData;
}

}  // namespace plimsoll::kube
