#include "kube/http_exchange.h"

#include <cpprest/http_client.h>
#include <cpprest/producerconsumerstream.h>
#include <openssl/err.h>

#include <condition_variable>
#include <string_view>
#include <utility>

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

http_request translate(HttpRequest request, const std::string& host_header) {
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
    translated.set_body(std::move(request.body), request.content_type);
  }
  return translated;
}

}  // namespace

// What the exchanges of an endpoint share. Each has a reference, so the last one that ends destroys it when the
// endpoint is no more.
struct HttpEndpoint::Connections {
  std::shared_ptr<std::promise<void>> gone = std::make_shared<std::promise<void>>();
  web::uri server;
  web::http::client::http_client_config options;
  std::shared_ptr<TlsMaterial> tls;
  std::string host_header;  // set when the certificate is to be checked against another name than the host
  std::optional<web::http::client::http_client> client;

  ~Connections() {
    // Later, since it may be an object of cpprestsdk's that is being destroyed and has the last reference.
    run_on_transport([gone = gone] { gone->set_value(); });
  }
  void renew() { client.emplace(server, options); }
};

HttpEndpoint::HttpEndpoint(std::shared_ptr<Connections> connections)
    : connections_(std::move(connections)), gone_(connections_->gone->get_future()) {}

HttpEndpoint::~HttpEndpoint() {
  run_on_transport([connections = std::move(connections_)] {});
  // The process must not exit while the transport thread ends exchanges.
  gone_.wait_for(kDestructionTimeout);
}

void HttpEndpoint::forget_connections() {
  run_on_transport([connections = connections_] { connections->renew(); });
}

Result<std::unique_ptr<HttpEndpoint>> HttpEndpoint::make(const ClientConfig& config,
                                                         const std::shared_ptr<TlsMaterial>& tls) {
  if (Result<void> started = start_transport(); !started) {
    return started.error();
  }
  Result<web::uri> server = parse_server(config.server);
  if (!server) {
    return server.error();
  }
  auto connections = std::make_shared<Connections>();
  connections->server = *server;
  connections->host_header = config.tls_server_name;
  connections->tls = tls;
  web::http::client::http_client_config& options = connections->options;
  options.set_max_redirects(0);
  options.set_timeout(kReadTimeout);
  options.set_validate_certificates(!config.insecure_skip_tls_verify);
  options.set_tlsext_sni_enabled(!is_ip_address(tls->server_name()));
  options.set_ssl_context_callback(
      [tls](boost::asio::ssl::context& context) { tls->configure(context.native_handle()); });
  auto endpoint = std::unique_ptr<HttpEndpoint>(new HttpEndpoint(std::move(connections)));
  endpoint->forget_connections();  // makes the first client
  return endpoint;
}

// What the caller waits for: plain data, destroyed by whichever thread is last.
struct HttpExchange::Response {
  Mutex mutex;
  std::condition_variable_any changed;
  bool has_head PLIMSOLL_GUARDED_BY(mutex) = false;
  int status PLIMSOLL_GUARDED_BY(mutex) = 0;
  std::string retry_after PLIMSOLL_GUARDED_BY(mutex);
  std::string buffer PLIMSOLL_GUARDED_BY(mutex);
  bool held_back PLIMSOLL_GUARDED_BY(mutex) = false;  // the transport waits until the buffer was emptied
  bool ended PLIMSOLL_GUARDED_BY(mutex) = false;      // no more bytes will come
  std::optional<HttpFailure> failure PLIMSOLL_GUARDED_BY(mutex);
  bool finished PLIMSOLL_GUARDED_BY(mutex) = false;   // cpprestsdk is done with the exchange
  bool abandoned PLIMSOLL_GUARDED_BY(mutex) = false;  // what still arrives is dropped
};

// cpprestsdk's side of an exchange. All of it happens on the transport thread: cpprestsdk's continuations have the
// references that keep it, and the caller a weak one to find it.
struct HttpExchange::Transfer : std::enable_shared_from_this<Transfer> {
  const std::shared_ptr<HttpEndpoint::Connections> connections;  // destroyed last
  const std::shared_ptr<Response> response;
  pplx::cancellation_token_source cancellation;
  // Set while cpprestsdk waits until the buffer was emptied.
  std::optional<pplx::task_completion_event<std::size_t>> held_back;
  std::size_t held_back_count = 0;

  Transfer(std::shared_ptr<HttpEndpoint::Connections> of, std::shared_ptr<Response> into)
      : connections(std::move(of)), response(std::move(into)) {}

  void begin(HttpRequest request) {
    {
      const MutexLock lock(response->mutex);
      if (response->abandoned) {
        return;
      }
    }
    const std::shared_ptr<Transfer> self = shared_from_this();
    try {
      http_request translated = translate(std::move(request), connections->host_header);
      translated.set_response_stream(
          push_stream([self](const char* bytes, std::size_t count) { return self->receive(bytes, count); }));
      connections->client->request(translated, cancellation.get_token())
          .then([self](const pplx::task<http_response>& head) {
            try {
              const http_response arrived = head.get();
              self->set_head(arrived);
              arrived.content_ready().then([self](const pplx::task<http_response>& body) {
                try {
                  body.get();
                  self->finish(std::nullopt);
                } catch (...) {
                  self->finish(self->describe(std::current_exception()));
                }
              });
            } catch (...) {
              self->finish(self->describe(std::current_exception()));
            }
          });
    } catch (...) {
      finish(describe(std::current_exception()));
    }
  }

  // The caller wants no more of it. The bytes that were held back are dropped.
  void abandon() {
    cancellation.cancel();
    go_on();
  }

  // The buffer was emptied.
  void go_on() {
    if (held_back) {
      const pplx::task_completion_event<std::size_t> waiting = *std::exchange(held_back, std::nullopt);
      waiting.set(held_back_count);
    }
  }

  // Never returns a failed task: cpprestsdk would close the stream at once and wait, on the transport thread, for
  // another task (streambuf_state_manager::create_exception_checked_task), which that thread would have to run.
  // Bytes that nobody wants are dropped, and cancelling ends the exchange.
  pplx::task<std::size_t> receive(const char* bytes, std::size_t count) {
    {
      const MutexLock lock(response->mutex);
      if (response->abandoned) {
        return pplx::task_from_result(count);
      }
      if (count > kChunkLimit) {
        response->failure =
            HttpFailure{HttpFailure::Stage::kReceiving, "a chunk of the response is larger than 1 GiB"};
        response->ended = true;
        response->abandoned = true;
      } else {
        response->buffer.append(bytes, count);
        response->held_back = response->buffer.size() >= kBufferLimit;
        if (response->held_back) {
          held_back.emplace();
          held_back_count = count;
        }
      }
    }
    response->changed.notify_all();
    return held_back ? pplx::create_task(*held_back) : pplx::task_from_result(count);
  }

  void set_head(const http_response& arrived) {
    {
      const MutexLock lock(response->mutex);
      response->status = arrived.status_code();
      const auto header = arrived.headers().find("Retry-After");
      if (header != arrived.headers().end()) {
        response->retry_after = header->second;
      }
      response->has_head = true;
    }
    response->changed.notify_all();
  }

  // cpprestsdk is done.
  void finish(std::optional<HttpFailure> failure) {
    {
      const MutexLock lock(response->mutex);
      if (!response->failure) {
        response->failure = std::move(failure);
      }
      response->finished = true;
      response->ended = true;
    }
    response->changed.notify_all();
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
        const std::string refusal = connections->tls->last_refusal();
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

HttpExchange::HttpExchange(HttpEndpoint& endpoint, const HttpRequest& request)
    : response_(std::make_shared<Response>()) {
  auto transfer = std::make_shared<Transfer>(endpoint.connections_, response_);
  transfer_ = transfer;
  run_on_transport(
      [transfer = std::move(transfer), copy = request]() mutable { transfer->begin(std::move(copy)); });
}

HttpExchange::~HttpExchange() {
  {
    const MutexLock lock(response_->mutex);
    response_->abandoned = true;
    if (response_->finished) {
      return;
    }
  }
  run_on_transport([weak = transfer_] {
    if (const std::shared_ptr<Transfer> transfer = weak.lock()) {
      transfer->abandon();
    }
  });
}

std::optional<HttpFailure> HttpExchange::wait_for_head(Deadline deadline, const std::stop_token& stop) {
  MutexLock lock(response_->mutex);
  response_->changed.wait_until(lock, stop, deadline, [&]() PLIMSOLL_REQUIRES(response_->mutex) {
    return response_->has_head || response_->failure;
  });
  if (response_->has_head) {
    return std::nullopt;
  }
  if (response_->failure) {
    return response_->failure;
  }
  return stop.stop_requested()
             ? HttpFailure{HttpFailure::Stage::kStopped, "stopped"}
             : HttpFailure{HttpFailure::Stage::kDeadline, "no response before the deadline"};
}

int HttpExchange::status() const {
  const MutexLock lock(response_->mutex);
  return response_->status;
}

std::string HttpExchange::retry_after() const {
  const MutexLock lock(response_->mutex);
  return response_->retry_after;
}

HttpExchange::Read HttpExchange::read(std::string& bytes, Deadline deadline, const std::stop_token& stop) {
  bool held_back = false;
  {
    MutexLock lock(response_->mutex);
    response_->changed.wait_until(lock, stop, deadline, [&]() PLIMSOLL_REQUIRES(response_->mutex) {
      return !response_->buffer.empty() || response_->ended;
    });
    if (stop.stop_requested()) {
      failure_ = {HttpFailure::Stage::kStopped, "stopped"};
      return Read::kFailed;
    }
    if (response_->buffer.empty()) {
      if (response_->failure) {
        failure_ = *response_->failure;
      } else if (!response_->ended) {
        failure_ = {HttpFailure::Stage::kDeadline, "the response stopped before its end"};
      }
      return response_->ended && !response_->failure ? Read::kEnd : Read::kFailed;
    }
    if (bytes.empty()) {
      bytes.swap(response_->buffer);
    } else {
      bytes.append(response_->buffer);
    }
    response_->buffer.clear();
    held_back = std::exchange(response_->held_back, false);
  }
  if (held_back) {
    run_on_transport([weak = transfer_] {
      if (const std::shared_ptr<Transfer> transfer = weak.lock()) {
        transfer->go_on();
      }
    });
  }
  return Read::kData;
}

}  // namespace plimsoll::kube
