#include "kube/http_exchange.h"

#include <cpprest/http_client.h>
#include <openssl/err.h>

#include <condition_variable>
#include <mutex>
#include <string_view>

#include "kube/resource.h"
#include "kube/transport.h"

namespace plimsoll::kube {
namespace {

using web::http::http_request;
using web::http::http_response;

// cpprestsdk reads no further while this much waits for the caller: enough to keep both busy. A watch whose
// server is faster than we are holds about four times as much for as long as it lasts.
constexpr std::size_t kBufferLimit = 256 << 10;
// It keeps chunk sizes in an int and adds no check of its own; larger ones cannot be right.
constexpr std::size_t kChunkLimit = 1 << 30;
// Our own deadlines end an exchange; cpprestsdk's per-read timer is a last resort behind them.
constexpr std::chrono::minutes kLastResort{60};
// A cancelled exchange ends at once; more would only hold up a process that is ending.
constexpr std::chrono::milliseconds kFarewell{2'000};

Result<web::uri> parse_server(const std::string& server) {
  try {
    const web::uri uri(server);
    if (uri.host().starts_with('[')) {
      return Error(ErrorCode::kUnsupported, "an IPv6 address cannot be dialled; give the server a name",
                   server);
    }
    // cpprestsdk takes a port that is no number for a part of the host.
    const bool has_host = !uri.host().empty() && percent_encode(uri.host()) == uri.host();
    if (!has_host || (uri.scheme() != "https" && uri.scheme() != "http")) {
      return invalid("the server must be a URL as https://host:port", server);
    }
    return uri;
  } catch (const std::exception&) {
    return invalid("the server must be a URL as https://host:port", server);
  }
}

// Counts the exchanges that cpprestsdk still holds on to, also those that their callers have dropped.
class Outstanding {
 public:
  void add() {
    const std::lock_guard lock(mutex_);
    ++count_;
  }
  void remove() {
    const std::lock_guard lock(mutex_);
    --count_;
    none_.notify_all();
  }
  void wait(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    none_.wait_for(lock, limit, [this] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable none_;
  int count_ = 0;
};

}  // namespace

struct HttpEndpoint::Implementation {
  using HttpLibraryClient = web::http::client::http_client;

  web::uri server;
  web::http::client::http_client_config options;
  std::shared_ptr<TlsMaterial> tls;
  const std::shared_ptr<Outstanding> outstanding = std::make_shared<Outstanding>();
  std::string host_header;  // set when the certificate is to be checked against another name than the host

  std::mutex mutex;
  std::optional<HttpLibraryClient> client;  // copies share one pool of connections

  HttpLibraryClient current() {
    const std::lock_guard lock(mutex);
    return *client;
  }
};

HttpEndpoint::HttpEndpoint(std::unique_ptr<Implementation> implementation)
    : implementation_(std::move(implementation)) {}

HttpEndpoint::~HttpEndpoint() {
  // What was cancelled ends on cpprestsdk's threads; a process that exits before that would end in the midst
  // of it.
  implementation_->outstanding->wait(kFarewell);
}

void HttpEndpoint::forget_connections() {
  const std::lock_guard lock(implementation_->mutex);
  implementation_->client.emplace(implementation_->server, implementation_->options);
}

Result<std::unique_ptr<HttpEndpoint>> HttpEndpoint::make(const ClientConfig& config,
                                                         std::shared_ptr<TlsMaterial> tls) {
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
  options.set_timeout(kLastResort);
  options.set_validate_certificates(!config.insecure_skip_tls_verify);
  options.set_tlsext_sni_enabled(!is_ip_address(tls->server_name()));
  options.set_ssl_context_callback(
      [tls](boost::asio::ssl::context& context) { tls->configure(context.native_handle()); });
  implementation->client.emplace(implementation->server, options);
  return std::unique_ptr<HttpEndpoint>(new HttpEndpoint(std::move(implementation)));
}

// Shared by the caller's thread and cpprestsdk's, and alive until the last of them has released it.
struct HttpExchange::State {
  explicit State(std::shared_ptr<Outstanding> counter) : outstanding(std::move(counter)) {
    outstanding->add();
  }
  ~State() { outstanding->remove(); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const std::shared_ptr<Outstanding> outstanding;
  std::shared_ptr<TlsMaterial> tls;
  pplx::cancellation_token_source cancellation;
  mutable std::mutex mutex;
  std::condition_variable_any changed;
  bool has_head = false;
  int status = 0;
  std::string retry_after;
  bool ended = false;  // nothing more will come
  std::optional<HttpFailure> failure;
  bool finished = false;   // cpprestsdk is done with the exchange
  bool abandoned = false;  // what still comes is dropped
  std::string buffer;
  // Set while cpprestsdk waits for room in the buffer.
  std::optional<pplx::task_completion_event<std::size_t>> blocked;
  std::size_t blocked_count = 0;

  // Never a failed task: cpprestsdk would close the stream on the spot and wait, on a thread of its pool, for
  // another of them (streambuf_state_manager::create_exception_checked_task); when the process is ending
  // there is none. What is not wanted is dropped, and cancelling ends it.
  pplx::task<std::size_t> receive(const char* bytes, std::size_t count) {
    const std::lock_guard lock(mutex);
    if (abandoned) {
      return pplx::task_from_result(count);
    }
    if (count > kChunkLimit) {
      failure = HttpFailure{HttpFailure::Stage::kReceiving, "a chunk of the answer is larger than 1 GiB"};
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
    const std::lock_guard lock(mutex);
    status = response.status_code();
    const auto header = response.headers().find("Retry-After");
    if (header != response.headers().end()) {
      retry_after = header->second;
    }
    has_head = true;
    changed.notify_all();
  }

  void set_end() {
    const std::lock_guard lock(mutex);
    finish();
  }

  void set_failure(const std::exception_ptr& problem) {
    HttpFailure reason = describe(problem);
    const std::lock_guard lock(mutex);
    if (!failure) {
      failure = std::move(reason);
    }
    finish();
  }

  // cpprestsdk has given its answer. With the mutex held.
  void finish() {
    finished = true;
    ended = true;
    changed.notify_all();
  }

  // cpprestsdk tells the stage in its message only (http_client_asio.cpp, report_error).
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
        result.reason = !refusal.empty()    ? "the server's certificate is refused: " + refusal
                        : reason != nullptr ? std::string("TLS handshake failed: ") + reason
                                            : "TLS handshake failed";
      } else if (what.starts_with("Failed to connect") || what.starts_with("Error resolving") ||
                 what.starts_with("Failed to resolve")) {
        result.stage = HttpFailure::Stage::kConnecting;
        if (exception.error_code().value() != 0 && what.starts_with("Failed to connect")) {
          result.reason = "connection failed: " + describe_errno(exception.error_code().value());
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

  // cpprestsdk renames "connection refused" to "host unreachable".
  static std::string describe_errno(int code) {
    const std::error_code reason(code, std::generic_category());
    return reason == std::errc::host_unreachable ? "refused, or no route to the host" : reason.message();
  }
};

namespace {

// The write end of an answer's body: hands every piece to a function and keeps nothing itself. cpprestsdk's
// own stream buffers either hold the whole body or must be polled.
template <class Receive>
class PushBuffer final : public concurrency::streams::details::streambuf_state_manager<std::uint8_t> {
  using Base = concurrency::streams::details::streambuf_state_manager<std::uint8_t>;

 public:
  explicit PushBuffer(Receive receive) : Base(std::ios_base::out), receive_(std::move(receive)) {}

  bool can_seek() const override { return false; }
  bool has_size() const override { return false; }
  std::size_t buffer_size(std::ios_base::openmode) const override { return 0; }
  void set_buffer_size(std::size_t, std::ios_base::openmode) override {}
  std::size_t in_avail() const override { return 0; }
  pos_type getpos(std::ios_base::openmode) const override { return static_cast<pos_type>(traits::eof()); }
  pos_type seekpos(pos_type, std::ios_base::openmode) override {
    return static_cast<pos_type>(traits::eof());
  }
  pos_type seekoff(off_type, std::ios_base::seekdir, std::ios_base::openmode) override {
    return static_cast<pos_type>(traits::eof());
  }
  bool acquire(std::uint8_t*& pointer, std::size_t& count) override {
    pointer = nullptr;
    count = 0;
    return false;
  }
  void release(std::uint8_t*, std::size_t) override {}

 protected:
  pplx::task<std::size_t> _putn(const std::uint8_t* bytes, std::size_t count) override {
    return receive_(reinterpret_cast<const char*>(bytes), count);
  }
  pplx::task<int_type> _putc(std::uint8_t byte) override {
    return _putn(&byte, 1).then([byte](std::size_t) { return static_cast<int_type>(byte); });
  }
  pplx::task<bool> _sync() override { return pplx::task_from_result(true); }
  // It is never read from.
  pplx::task<int_type> _bumpc() override { return nothing(); }
  int_type _sbumpc() override { return traits::eof(); }
  pplx::task<int_type> _getc() override { return nothing(); }
  int_type _sgetc() override { return traits::eof(); }
  pplx::task<int_type> _nextc() override { return nothing(); }
  pplx::task<int_type> _ungetc() override { return nothing(); }
  pplx::task<std::size_t> _getn(std::uint8_t*, std::size_t) override {
    return pplx::task_from_result<std::size_t>(0);
  }
  std::size_t _scopy(std::uint8_t*, std::size_t) override { return 0; }
  std::uint8_t* _alloc(std::size_t) override { return nullptr; }
  void _commit(std::size_t) override {}

 private:
  static pplx::task<int_type> nothing() { return pplx::task_from_result<int_type>(traits::eof()); }
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
    : state_(std::make_shared<State>(endpoint.implementation().outstanding)) {
  HttpEndpoint::Implementation& implementation = endpoint.implementation();
  state_->tls = implementation.tls;
  const std::shared_ptr<State> state = state_;
  try {
    http_request translated = translate(request, implementation.host_header);
    translated.set_response_stream(
        push_stream([state](const char* bytes, std::size_t count) { return state->receive(bytes, count); }));
    // No continuation below waits: they run on the threads that do the I/O.
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
    const std::lock_guard lock(state_->mutex);
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
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_until(lock, stop, deadline, [&] { return state_->has_head || state_->failure; });
  if (state_->has_head) {
    return std::nullopt;
  }
  if (state_->failure) {
    return state_->failure;
  }
  return stop.stop_requested() ? HttpFailure{HttpFailure::Stage::kStopped, "stopped"}
                               : HttpFailure{HttpFailure::Stage::kDeadline, "no answer in time"};
}

int HttpExchange::status() const {
  const std::lock_guard lock(state_->mutex);
  return state_->status;
}

std::string HttpExchange::retry_after() const {
  const std::lock_guard lock(state_->mutex);
  return state_->retry_after;
}

HttpExchange::Read HttpExchange::read(std::string& bytes, Deadline deadline, const std::stop_token& stop) {
  std::optional<pplx::task_completion_event<std::size_t>> blocked;
  std::size_t count = 0;
  {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait_until(lock, stop, deadline,
                               [&] { return !state_->buffer.empty() || state_->ended; });
    if (stop.stop_requested()) {
      failure_ = {HttpFailure::Stage::kStopped, "stopped"};
      return Read::kFailed;
    }
    if (state_->buffer.empty()) {
      if (state_->failure) {
        failure_ = *state_->failure;
      } else if (!state_->ended) {
        failure_ = {HttpFailure::Stage::kDeadline, "the answer stopped arriving"};
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
