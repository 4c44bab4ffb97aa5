// The one file with coroutines: clang 14 cannot parse Boost 1.74's awaitable, so nothing else includes it.
#include "webhook/http_server.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <exception>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>  // before asio/awaitable.hpp, which needs it under C++20

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>

#include "base/log.h"

namespace plimsoll::webhook {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::awaitable;
using asio::ip::tcp;
using boost::system::error_code;
using Milliseconds = std::chrono::milliseconds;
using TlsStream = beast::ssl_stream<beast::tcp_stream>;

// What a read may take in at once; the parser's own limit on the header is below it.
constexpr std::size_t kReadBufferLimit = 64 << 10;
// Discarded from a peer that still sends while its connection is closed, so that the answer is not lost to a
// reset.
constexpr std::size_t kLingerLimit = 32 << 20;
constexpr Milliseconds kFirstAcceptPause{10};
constexpr Milliseconds kLongestAcceptPause{1'000};

HttpResponse plain_text(int status, std::string text) {
  return {status, "text/plain; charset=utf-8", std::move(text)};
}

// The answer to a request that could not be read; status 0: none, the peer is gone.
HttpResponse answer_to(const error_code& problem) {
  if (problem == http::error::end_of_stream || problem == asio::error::eof ||
      problem == asio::error::connection_reset || problem == asio::error::operation_aborted ||
      problem == asio::ssl::error::stream_truncated || problem == beast::error::timeout) {
    return {0, "", ""};
  }
  if (problem == http::error::body_limit) {
    return plain_text(413, "the body is larger than this server takes\n");
  }
  if (problem == http::error::header_limit || problem == http::error::buffer_overflow) {
    return plain_text(431, "the header is larger than this server takes\n");
  }
  if (problem.category() == make_error_code(http::error::bad_method).category()) {
    return plain_text(400, "not a well-formed HTTP/1.1 request: " + problem.message() + "\n");
  }
  return {0, "", ""};
}

// A share of the memory that all bodies may take together.
class BodyCharge {
 public:
  BodyCharge(std::atomic<std::uint64_t>& used, std::size_t limit) : used_(used), limit_(limit) {}
  ~BodyCharge() { used_ -= mine_; }
  BodyCharge(const BodyCharge&) = delete;
  BodyCharge& operator=(const BodyCharge&) = delete;

  bool grow_to(std::size_t bytes) {
    const std::size_t more = bytes - std::min(bytes, mine_);
    if (used_ + more > limit_) {
      return false;
    }
    used_ += more;
    mine_ += more;
    return true;
  }

 private:
  std::atomic<std::uint64_t>& used_;
  const std::size_t limit_;
  std::size_t mine_ = 0;
};

}  // namespace

class HttpServer::Impl {
 public:
  Impl(HttpServerOptions options, HttpHandler handler, std::shared_ptr<const CertificateSource> certificates)
      : options_(std::move(options)), handler_(std::move(handler)), certificates_(std::move(certificates)) {}

  Result<void> start();
  void stop(Milliseconds lame_duck);
  HttpServerStats stats() const;

  std::atomic<std::uint16_t> port_ = 0;
  std::atomic<bool> draining_ = false;

 private:
  // What the server knows of a connection; lives in its coroutine, listed while it does.
  struct Connection {
    explicit Connection(beast::tcp_stream& stream) : socket(&stream) {}
    beast::tcp_stream* socket;
    bool idle = false;  // waits for the first byte of a request
    bool served = false;
    std::chrono::steady_clock::time_point idle_since;
    std::list<Connection*>::iterator place;
  };
  class Listing;
  struct Job;

  awaitable<void> accept_connections();
  awaitable<void> wait_for_slot();
  bool close_longest_idle();
  void shed_one();
  void spawn(tcp::socket socket);
  void launch(awaitable<void> activity);
  awaitable<void> serve_plain(tcp::socket socket);
  awaitable<void> serve_tls(tcp::socket socket, std::shared_ptr<asio::ssl::context> context);
  template <class Stream>
  awaitable<void> exchange(Stream& stream, Connection& me);
  template <class Stream>
  awaitable<bool> answer_one(Stream& stream, beast::flat_buffer& buffer);
  template <class Stream>
  awaitable<bool> send(Stream& stream, const HttpResponse& response, unsigned version, bool head, bool keep);
  awaitable<HttpResponse> run_handler(HttpRequest request);
  awaitable<void> linger(beast::tcp_stream& socket);
  void on_network_thread(const std::function<void()>& task);
  bool all_ended_within(Milliseconds limit);

  const HttpServerOptions options_;
  const HttpHandler handler_;
  const std::shared_ptr<const CertificateSource> certificates_;

  asio::io_context network_{1};
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> keep_running_;
  std::optional<asio::thread_pool> workers_;
  std::thread network_thread_;
  bool started_ = false;
  bool stopped_ = false;

  // Touched on the network thread only.
  tcp::acceptor acceptor_{network_};
  asio::steady_timer slot_free_{network_};
  std::list<Connection*> connections_;
  int reserve_descriptor_ = -1;  // given up for a moment when there is no other

  std::mutex ended_mutex_;
  std::condition_variable ended_;
  std::atomic<int> activities_ = 0;  // coroutines: the one that accepts, and one a connection
  std::atomic<std::uint64_t> accepted_ = 0, open_ = 0, in_flight_ = 0, requests_ = 0, rejected_overload_ = 0,
                             rejected_malformed_ = 0, rejected_timeout_ = 0, rejected_tls_ = 0,
                             rejected_no_descriptor_ = 0, body_memory_ = 0;
};

// Lists a connection while its coroutine runs.
class HttpServer::Impl::Listing {
 public:
  Listing(Impl& server, Connection& connection) : server_(server), connection_(connection) {
    connection_.place = server_.connections_.insert(server_.connections_.end(), &connection_);
    server_.open_ = server_.connections_.size();
  }
  ~Listing() {
    server_.connections_.erase(connection_.place);
    server_.open_ = server_.connections_.size();
    server_.slot_free_.cancel();
  }
  Listing(const Listing&) = delete;
  Listing& operator=(const Listing&) = delete;

 private:
  Impl& server_;
  Connection& connection_;
};

// A request on its way through a worker. Shared with it, so that neither outlives what it writes to.
struct HttpServer::Impl::Job {
  Job(asio::io_context& network, HttpRequest what) : request(std::move(what)), done(network) {
    done.expires_at(asio::steady_timer::time_point::max());
  }
  HttpRequest request;
  HttpResponse response;
  asio::steady_timer done;  // cancelled when the response stands
};

Result<void> HttpServer::Impl::start() {
  std::signal(SIGPIPE, SIG_IGN);
  error_code problem;
  const auto address = asio::ip::make_address(options_.bind_address, problem);
  if (problem) {
    return invalid("the address to bind is no IP address", options_.bind_address);
  }
  const tcp::endpoint endpoint(address, options_.port);
  const auto failed = [&](const char* what) {
    return Error(ErrorCode::kUnavailable, std::string(what) + " " + options_.bind_address + ":" +
                                              std::to_string(options_.port) + ": " + problem.message());
  };
  if (acceptor_.open(endpoint.protocol(), problem); problem) {
    return failed("cannot open a socket for");
  }
  acceptor_.set_option(tcp::acceptor::reuse_address(true), problem);
  if (acceptor_.bind(endpoint, problem); problem) {
    return failed("cannot bind");
  }
  if (acceptor_.listen(asio::socket_base::max_listen_connections, problem); problem) {
    return failed("cannot listen on");
  }
  port_ = acceptor_.local_endpoint(problem).port();
  reserve_descriptor_ = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  workers_.emplace(static_cast<std::size_t>(std::max(1, options_.workers)));
  keep_running_.emplace(network_.get_executor());
  launch(accept_connections());
  network_thread_ = std::thread([this] { network_.run(); });
  started_ = true;
  return {};
}

void HttpServer::Impl::stop(Milliseconds lame_duck) {
  if (!started_ || stopped_) {
    return;
  }
  stopped_ = true;
  draining_ = true;
  std::this_thread::sleep_for(lame_duck);

  on_network_thread([this] {
    // Whoever has connected already is served; closing the listener would reset them.
    error_code problem;
    acceptor_.non_blocking(true, problem);
    for (tcp::socket socket(network_); !acceptor_.accept(socket, problem); socket = tcp::socket(network_)) {
      spawn(std::move(socket));
    }
    acceptor_.close(problem);
    slot_free_.cancel();
  });
  if (!all_ended_within(lame_duck.count() > 0 ? options_.idle_grace : Milliseconds(0))) {
    on_network_thread([this] {
      for (Connection* connection : connections_) {
        if (connection->idle) {
          connection->socket->cancel();
        }
      }
    });
  }
  if (!all_ended_within(options_.drain_timeout)) {
    log_warning("Cut connections that did not end while draining", {{"connections", std::to_string(open_)}});
    on_network_thread([this] {
      for (Connection* connection : connections_) {
        connection->socket->close();
      }
    });
  }
  // What is left ends by itself: the sockets are closed, and handlers have deadlines. The workers last, for a
  // request handed to a pool that has ended would never be answered.
  while (!all_ended_within(options_.drain_timeout)) {
    log_warning("Waited for a handler that does not end", {{"connections", std::to_string(open_)}});
  }
  workers_->join();
  keep_running_.reset();
  network_thread_.join();  // when the last coroutine has ended
  ::close(reserve_descriptor_);
}

void HttpServer::Impl::on_network_thread(const std::function<void()>& task) {
  std::mutex mutex;
  std::condition_variable condition;
  bool done = false;
  asio::post(network_, [&] {
    task();
    const std::lock_guard lock(mutex);
    done = true;
    condition.notify_one();
  });
  std::unique_lock lock(mutex);
  condition.wait(lock, [&] { return done; });
}

bool HttpServer::Impl::all_ended_within(Milliseconds limit) {
  std::unique_lock lock(ended_mutex_);
  return ended_.wait_for(lock, limit, [this] { return activities_ == 0; });
}

HttpServerStats HttpServer::Impl::stats() const {
  return {.accepted = accepted_,
          .open_connections = open_,
          .in_flight = in_flight_,
          .body_bytes = body_memory_,
          .requests = requests_,
          .rejected_overload = rejected_overload_,
          .rejected_malformed = rejected_malformed_,
          .rejected_timeout = rejected_timeout_,
          .rejected_tls = rejected_tls_,
          .rejected_no_descriptor = rejected_no_descriptor_};
}

awaitable<void> HttpServer::Impl::accept_connections() {
  Milliseconds pause = kFirstAcceptPause;
  for (;;) {
    co_await wait_for_slot();
    error_code problem;
    tcp::socket socket = co_await acceptor_.async_accept(asio::redirect_error(asio::use_awaitable, problem));
    if (!problem) {
      pause = kFirstAcceptPause;
      spawn(std::move(socket));  // also one that came in as the listener closed
      continue;
    }
    if (!acceptor_.is_open()) {
      co_return;
    }
    if (problem == boost::system::errc::too_many_files_open ||
        problem == boost::system::errc::too_many_files_open_in_system) {
      shed_one();
    }
    // Without a pause a lasting error (no descriptors, no memory) would spin.
    asio::steady_timer timer(network_, pause);
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, problem));
    pause = std::min(pause * 2, kLongestAcceptPause);
  }
}

// Returns when another connection may be taken: at the limit the longest idle one makes place.
awaitable<void> HttpServer::Impl::wait_for_slot() {
  while (connections_.size() >= options_.max_connections) {
    error_code cancelled;
    slot_free_.expires_after(close_longest_idle() ? kFirstAcceptPause : kLongestAcceptPause);
    co_await slot_free_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
  }
}

bool HttpServer::Impl::close_longest_idle() {
  Connection* longest = nullptr;
  for (Connection* connection : connections_) {
    if (connection->idle && connection->served &&
        (longest == nullptr || connection->idle_since < longest->idle_since)) {
      longest = connection;
    }
  }
  if (longest == nullptr) {
    return false;
  }
  longest->idle = false;
  longest->socket->cancel();
  return true;
}

// Out of file descriptors: the reserve lets one waiting peer be told (by a close) instead of left hanging.
void HttpServer::Impl::shed_one() {
  ++rejected_no_descriptor_;
  if (reserve_descriptor_ < 0) {
    return;
  }
  ::close(reserve_descriptor_);
  error_code problem;
  acceptor_.non_blocking(true, problem);
  tcp::socket socket(network_);
  acceptor_.accept(socket, problem);
  socket.close(problem);
  reserve_descriptor_ = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
}

void HttpServer::Impl::spawn(tcp::socket socket) {
  ++accepted_;
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  if (certificates_ == nullptr) {
    launch(serve_plain(std::move(socket)));
  } else if (auto context = certificates_->current()) {
    launch(serve_tls(std::move(socket), std::move(context)));
  } else {
    ++rejected_tls_;  // no certificate yet: nothing can be said over TLS
    socket.close(ignored);
  }
}

// Runs a coroutine on the network thread; stop() waits for all of them.
void HttpServer::Impl::launch(awaitable<void> activity) {
  ++activities_;
  asio::co_spawn(network_, std::move(activity), [this](const std::exception_ptr& thrown) {
    if (thrown != nullptr) {
      try {
        std::rethrow_exception(thrown);
      } catch (const std::exception& problem) {
        log_error("A connection ended on an exception", {{"problem", problem.what()}});
      }
    }
    const std::lock_guard lock(ended_mutex_);
    --activities_;
    ended_.notify_all();
  });
}

awaitable<void> HttpServer::Impl::serve_plain(tcp::socket socket) {
  beast::tcp_stream stream(std::move(socket));
  Connection me(stream);
  const Listing listing(*this, me);
  co_await exchange(stream, me);
  co_await linger(stream);
}

awaitable<void> HttpServer::Impl::serve_tls(tcp::socket socket, std::shared_ptr<asio::ssl::context> context) {
  TlsStream stream(beast::tcp_stream(std::move(socket)), *context);
  beast::tcp_stream& lowest = beast::get_lowest_layer(stream);
  Connection me(lowest);
  const Listing listing(*this, me);

  error_code problem;
  lowest.expires_after(options_.handshake_timeout);
  co_await stream.async_handshake(asio::ssl::stream_base::server,
                                  asio::redirect_error(asio::use_awaitable, problem));
  if (problem) {
    ++(problem == beast::error::timeout ? rejected_timeout_ : rejected_tls_);
    if (problem.category() == asio::error::get_ssl_category() &&
        ERR_GET_REASON(static_cast<unsigned long>(problem.value())) == SSL_R_HTTP_REQUEST) {
      const HttpResponse hint =
          plain_text(400, "this port speaks HTTPS, and the request came in plain HTTP\n");
      co_await send(lowest, hint, 11, false, false);
    }
    co_await linger(lowest);
    co_return;
  }
  co_await exchange(stream, me);
  if (lowest.socket().is_open()) {
    // close_notify, so that the peer can tell the end from a cut.
    lowest.expires_after(options_.linger_timeout);
    co_await stream.async_shutdown(asio::redirect_error(asio::use_awaitable, problem));
  }
  co_await linger(lowest);
}

// Sends what is left, then takes in what the peer still sends until it closes, within bounds.
awaitable<void> HttpServer::Impl::linger(beast::tcp_stream& socket) {
  if (!socket.socket().is_open()) {
    co_return;
  }
  error_code problem;
  socket.socket().shutdown(tcp::socket::shutdown_send, problem);
  socket.expires_after(options_.linger_timeout);
  std::string discarded(16 << 10, '\0');
  std::size_t total = 0;
  while (!problem && total < kLingerLimit) {
    total += co_await socket.async_read_some(asio::buffer(discarded),
                                             asio::redirect_error(asio::use_awaitable, problem));
  }
  socket.close();
}

// Request after request on one connection, until either side wants to end it.
template <class Stream>
awaitable<void> HttpServer::Impl::exchange(Stream& stream, Connection& me) {
  beast::flat_buffer buffer(kReadBufferLimit);
  for (bool first = true;; first = false) {
    if (buffer.size() == 0) {
      me.idle = true;
      me.idle_since = std::chrono::steady_clock::now();
      beast::get_lowest_layer(stream).expires_after(first ? options_.header_timeout : options_.idle_timeout);
      error_code problem;
      const std::size_t size = co_await stream.async_read_some(
          buffer.prepare(4096), asio::redirect_error(asio::use_awaitable, problem));
      me.idle = false;
      if (problem) {
        co_return;  // the peer closed, or nothing came: there is nothing to answer
      }
      buffer.commit(size);
    }
    if (!co_await answer_one(stream, buffer)) {
      co_return;
    }
    me.served = true;
  }
}

// Reads one request whose first bytes are in the buffer and answers it; false when the connection ends with
// it.
template <class Stream>
awaitable<bool> HttpServer::Impl::answer_one(Stream& stream, beast::flat_buffer& buffer) {
  beast::tcp_stream& lowest = beast::get_lowest_layer(stream);
  http::request_parser<http::string_body> parser;
  parser.header_limit(static_cast<std::uint32_t>(options_.header_limit));
  parser.body_limit(options_.body_limit);

  error_code problem;
  lowest.expires_after(options_.header_timeout);
  // Beast's own limit holds for what one read brings, not for fields that come in many.
  std::size_t header_size = 0;
  while (!problem && !parser.is_header_done()) {
    header_size += co_await http::async_read_some(stream, buffer, parser,
                                                  asio::redirect_error(asio::use_awaitable, problem));
    if (!problem && header_size + (parser.is_header_done() ? 0 : buffer.size()) > options_.header_limit) {
      problem = http::error::header_limit;
    }
  }
  const auto received = std::chrono::steady_clock::now();
  const auto& message = parser.get();
  const bool head = message.method() == http::verb::head;

  BodyCharge charge(body_memory_, options_.body_memory_limit);
  HttpResponse refusal;
  refusal.status = 0;
  if (!problem) {
    parser.eager(true);
    lowest.expires_after(options_.body_timeout);
    if (beast::iequals(message[http::field::expect], "100-continue")) {
      static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
      co_await asio::async_write(stream, asio::buffer(kContinue),
                                 asio::redirect_error(asio::use_awaitable, problem));
    }
  }
  while (!problem && !parser.is_done()) {
    co_await http::async_read_some(stream, buffer, parser,
                                   asio::redirect_error(asio::use_awaitable, problem));
    if (!charge.grow_to(message.body().size())) {
      ++rejected_overload_;
      refusal = plain_text(503, "too much is being received at once; try again later\n");
      break;
    }
  }
  if (problem) {
    refusal = answer_to(problem);
    if (problem == beast::error::timeout) {
      ++rejected_timeout_;  // Beast has closed the socket
    } else if (refusal.status != 0) {
      ++rejected_malformed_;
    }
    if (refusal.status == 0) {
      co_return false;
    }
  }
  if (refusal.status != 0) {
    co_await send(stream, refusal, 11, head, false);
    co_return false;
  }

  const bool keep = message.keep_alive();
  const unsigned version = message.version();
  if (in_flight_ >= options_.max_in_flight) {
    ++rejected_overload_;
    const HttpResponse busy = plain_text(429, "too many requests are waiting; try again later\n");
    co_return co_await send(stream, busy, version, head, keep);
  }
  auto request = parser.release();
  HttpRequest ours;
  ours.method = std::string(request.method_string());
  const std::string_view target(request.target().data(), request.target().size());
  ours.path = std::string(target.substr(0, target.find('?')));
  ours.query = target.size() > ours.path.size() ? std::string(target.substr(ours.path.size() + 1)) : "";
  ours.content_type = std::string(request[http::field::content_type]);
  ours.body = std::move(request.body());
  ours.received = received;
  const HttpResponse response = co_await run_handler(std::move(ours));
  co_return co_await send(stream, response, version, head, keep);
}

awaitable<HttpResponse> HttpServer::Impl::run_handler(HttpRequest request) {
  ++requests_;
  ++in_flight_;
  auto job = std::make_shared<Job>(network_, std::move(request));
  asio::post(*workers_, [this, job] {
    try {
      job->response = handler_(job->request);
    } catch (const std::exception& problem) {
      log_error("A handler ended on an exception",
                {{"problem", problem.what()}, {"path", job->request.path}});
      job->response = plain_text(500, "internal error\n");
    }
    asio::post(network_, [job] { job->done.cancel(); });
  });
  // The worker's last post runs on this thread, hence after this wait has begun.
  error_code cancelled;
  co_await job->done.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
  --in_flight_;
  co_return std::move(job->response);
}

// True when the connection may carry another request.
template <class Stream>
awaitable<bool> HttpServer::Impl::send(Stream& stream, const HttpResponse& response, unsigned version,
                                       bool head, bool keep) {
  http::response<http::string_body> message(static_cast<http::status>(response.status), version);
  message.set(http::field::content_type, response.content_type);
  if (response.status == 429 || response.status == 503) {
    message.set(http::field::retry_after, "1");
  }
  message.keep_alive(keep && !draining_);
  message.content_length(response.body.size());
  if (!head) {
    message.body() = response.body;
  }
  error_code problem;
  beast::get_lowest_layer(stream).expires_after(options_.write_timeout);
  http::response_serializer<http::string_body> serializer(message);
  if (head) {
    co_await http::async_write_header(stream, serializer, asio::redirect_error(asio::use_awaitable, problem));
  } else {
    co_await http::async_write(stream, serializer, asio::redirect_error(asio::use_awaitable, problem));
  }
  co_return !problem && message.keep_alive();
}

HttpServer::HttpServer(HttpServerOptions options, HttpHandler handler,
                       std::shared_ptr<const CertificateSource> certificates)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(handler), std::move(certificates))) {}

HttpServer::~HttpServer() {
  impl_->stop(Milliseconds(0));
}

Result<void> HttpServer::start() {
  return impl_->start();
}

std::uint16_t HttpServer::port() const {
  return impl_->port_;
}

bool HttpServer::draining() const {
  return impl_->draining_;
}

void HttpServer::stop(std::chrono::milliseconds lame_duck) {
  impl_->stop(lame_duck);
}

HttpServerStats HttpServer::stats() const {
  return impl_->stats();
}

}  // namespace plimsoll::webhook
