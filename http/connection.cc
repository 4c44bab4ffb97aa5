#include "http/connection.h"

#include <algorithm>
#include <array>
#include <exception>
#include <utility>  // before asio's headers, which need it under C++20

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "base/log.h"

namespace plimsoll::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

// Bytes that the parser cannot consume yet, such as half a chunk's header; its limit on the header is lower.
constexpr std::size_t kUnparsedLimit = 64 << 10;
// Bytes that are discarded while a connection is closed and its peer still sends: a reset could destroy the
// response.
constexpr std::size_t kLingerLimit = 32 << 20;
// The capacity that an idle connection keeps of its buffers.
constexpr std::size_t kKeptCapacity = 4 << 10;
constexpr auto kNoDeadline = Connection::Clock::duration::max().count();

// The buffer for reading: one for each thread, which reads for one connection at a time.
std::span<char> scratch() {
  static thread_local std::array<char, 16 << 10> bytes;  // a TLS record
  return bytes;
}

void empty(std::string& buffer) {
  buffer.clear();
  if (buffer.capacity() > kKeptCapacity) {
    std::string().swap(buffer);
  }
}

// The response to a request that cannot be parsed.
Response answer_to(const error_code& problem) {
  if (problem == http::error::body_limit) {
    return plain_text(413, "the body is larger than this server accepts\n");
  }
  if (problem == http::error::header_limit || problem == http::error::buffer_overflow) {
    return plain_text(431, "the header is larger than this server accepts\n");
  }
  return plain_text(400, "not a well-formed HTTP/1.1 request: " + problem.message() + "\n");
}

std::string joined_values(const http::fields& header, http::field name) {
  std::string values;
  const auto [begin, end] = header.equal_range(name);
  for (auto field = begin; field != end; ++field) {
    values += (field == begin ? "" : ", ") + std::string(field->value());
  }
  return values;
}

// What the socket must become before an operation can go on; nothing when it has ended.
std::optional<Connection::Next> wait_of(const IoResult& result) {
  switch (result.state) {
    case IoState::kWouldRead: return Connection::Next::kReadable;
    case IoState::kWouldWrite: return Connection::Next::kWritable;
    default: return std::nullopt;
  }
}

// One body's share of the memory for all bodies. Bytes count when they arrive, not when a peer announces
// them.
class BodyMemory {
 public:
  explicit BodyMemory(ServerState& server) : server_(server) {}
  ~BodyMemory() { server_.stats.body_bytes -= mine_; }
  BodyMemory(const BodyMemory&) = delete;
  BodyMemory& operator=(const BodyMemory&) = delete;

  // `limit` of all bodies together.
  bool grow_to(std::size_t bytes, std::size_t limit) {
    const std::size_t more = bytes - std::min(bytes, mine_);
    if (server_.stats.body_bytes.fetch_add(more) + more > limit) {
      server_.stats.body_bytes -= more;
      return false;
    }
    mine_ += more;
    return true;
  }

 private:
  ServerState& server_;
  std::size_t mine_ = 0;
};

}  // namespace

// A request from its first byte to its answer.
struct Connection::Exchange {
  explicit Exchange(ServerState& server) : memory(server) {
    parser.header_limit(static_cast<std::uint32_t>(server.options.header_limit));
    parser.body_limit(server.options.body_limit);
  }
  http::request_parser<http::string_body> parser;
  BodyMemory memory;
  std::size_t header_size = 0;
  Clock::time_point received;
};

Response plain_text(int status, std::string text) {
  return {status, "text/plain; charset=utf-8", std::move(text)};
}

Connection::Connection(ServerState& server, asio::ip::tcp::socket socket,
                       std::shared_ptr<asio::ssl::context> context)
    : server_(server), socket_(std::move(socket), std::move(context)) {
  if (socket_.tls()) {
    enter(State::kHandshake, server_.options.handshake_timeout);
  } else {
    tls_up_ = true;
    enter_idle(server_.options.header_timeout);
  }
}

Connection::~Connection() = default;

void Connection::enter(State state, std::chrono::milliseconds limit) {
  state_ = state;
  deadline_ = (Clock::now() + limit).time_since_epoch().count();
}

void Connection::enter_idle(std::chrono::milliseconds limit) {
  enter(State::kIdle, limit);
  idle_since_ = Clock::now().time_since_epoch().count();
  idle_ = Idle::kYes;
}

void Connection::begin_request() {
  close_after_ = idle_.exchange(Idle::kNo) == Idle::kClosing;
  exchange_ = std::make_unique<Exchange>(server_);
  enter(State::kReceiving, server_.options.header_timeout);
}

Connection::Next Connection::advance() {
  for (;;) {
    std::optional<Next> wait;
    switch (state_) {
      case State::kHandshake: wait = do_handshake(); break;
      case State::kIdle: wait = wait_for_request(); break;
      case State::kReceiving: wait = receive(); break;
      case State::kHandling: return Next::kHandler;
      case State::kSending: wait = send(); break;
      case State::kLingering: wait = linger(); break;
      case State::kOver: return Next::kOver;
    }
    if (wait) {
      return *wait;
    }
  }
}

std::optional<Connection::Next> Connection::do_handshake() {
  const IoResult result = socket_.handshake();
  if (const std::optional<Next> wait = wait_of(result)) {
    return wait;
  }
  if (result.state == IoState::kBytes) {
    tls_up_ = true;
    enter_idle(server_.options.header_timeout);
    return std::nullopt;
  }
  if (cut_ != Cut::kEvicted) {
    ++(cut_ == Cut::kTimedOut ? server_.stats.rejected_timeout : server_.stats.rejected_tls);
  }
  if (result.state == IoState::kPlainHttp) {
    socket_.drop_tls();
    respond(plain_text(400, "this port speaks HTTPS, and the request came in plain HTTP\n"), 11, false,
            false);
  } else {
    start_lingering();  // the peer must receive the TLS alert
  }
  return std::nullopt;
}

std::optional<Connection::Next> Connection::wait_for_request() {
  if (idle_ == Idle::kClosing && socket_.quiet()) {
    start_lingering();
    return std::nullopt;
  }
  const std::span<char> bytes = scratch();
  const IoResult got = socket_.read(bytes);
  if (const std::optional<Next> wait = wait_of(got)) {
    return wait;
  }
  if (got.state == IoState::kBytes) {
    begin_request();
    parse({bytes.data(), got.bytes});
  } else if (got.state == IoState::kEnd) {
    start_lingering();
  } else {
    state_ = State::kOver;
  }
  return std::nullopt;
}

std::optional<Connection::Next> Connection::receive() {
  if (!unparsed_.empty()) {
    parse({});
  }
  const std::span<char> bytes = scratch();
  while (state_ == State::kReceiving) {
    const IoResult got = socket_.read(bytes);
    if (const std::optional<Next> wait = wait_of(got)) {
      return wait;
    }
    if (got.state == IoState::kBytes) {
      parse({bytes.data(), got.bytes});
      continue;
    }
    if (cut_ == Cut::kTimedOut) {
      ++server_.stats.rejected_timeout;
    }
    if (got.state == IoState::kEnd && cut_ == Cut::kNo) {
      reject(http::error::partial_message);
    } else {
      state_ = State::kOver;
    }
  }
  return std::nullopt;
}

// Parses the bytes that are left over and then `bytes`; keeps what the parser does not consume.
void Connection::parse(std::string_view bytes) {
  const bool kept = !unparsed_.empty();
  if (kept) {
    unparsed_.append(bytes);
  }
  std::string_view input = kept ? std::string_view(unparsed_) : bytes;
  auto& parser = exchange_->parser;
  error_code problem;
  while (state_ == State::kReceiving && !problem && !parser.is_done() && !input.empty()) {
    const bool in_header = !parser.is_header_done();
    const std::size_t used = parser.put(asio::buffer(input), problem);
    input.remove_prefix(used);
    if (in_header) {
      exchange_->header_size += used;
      // Beast applies its own limit to each call, not to a header that arrives in many pieces.
      const std::size_t size = exchange_->header_size + (parser.is_header_done() ? 0 : input.size());
      if (size > server_.options.header_limit && (!problem || problem == http::error::need_more)) {
        problem = http::error::header_limit;
      }
      if (!problem) {
        header_is_complete();
      }
    }
  }
  if (problem == http::error::need_more) {
    problem = input.size() > kUnparsedLimit ? error_code(http::error::buffer_overflow) : error_code();
  }
  if (kept) {
    unparsed_.erase(0, unparsed_.size() - input.size());
  } else {
    unparsed_.assign(input);
  }
  if (problem) {
    reject(problem);
  } else if (parser.is_header_done() &&
             !exchange_->memory.grow_to(parser.get().body().size(), body_share())) {
    ++server_.stats.rejected_overload;
    respond(plain_text(503, "the server is receiving too much data; try again later\n"), 11, is_head(),
            false);
  } else if (parser.is_done()) {
    state_ = State::kHandling;
    handled_ = true;
    deadline_ = kNoDeadline;
  }
}

// Peers that were never served cannot use all of the memory for bodies.
std::size_t Connection::body_share() const {
  const std::size_t limit = server_.options.body_memory_limit;
  return served_ ? limit : limit / 4 * 3;
}

void Connection::header_is_complete() {
  auto& parser = exchange_->parser;
  exchange_->received = Clock::now();
  parser.eager(true);
  enter(State::kReceiving, server_.options.body_timeout);
  if (!parser.is_done() && beast::iequals(parser.get()[http::field::expect], "100-continue")) {
    out_ = "HTTP/1.1 100 Continue\r\n\r\n";
    after_sending_ = State::kReceiving;
    state_ = State::kSending;
  }
}

bool Connection::is_head() const {
  return exchange_->parser.get().method() == http::verb::head;
}

void Connection::reject(const error_code& problem) {
  ++server_.stats.rejected_malformed;
  respond(answer_to(problem), 11, is_head(), false);
}

void Connection::handle() {
  ++server_.stats.requests;
  auto& parser = exchange_->parser;
  auto& message = parser.get();
  Request request;
  request.method = std::string(message.method_string());
  const std::string_view target(message.target().data(), message.target().size());
  request.path = std::string(target.substr(0, target.find('?')));
  request.query =
      target.size() > request.path.size() ? std::string(target.substr(request.path.size() + 1)) : "";
  request.content_type = std::string(message[http::field::content_type]);
  request.authorization = joined_values(message, http::field::authorization);
  request.body = std::move(message.body());
  request.received = exchange_->received;
  request.stop = server_.stop.get_token();
  Response response;
  try {
    response = server_.handler(request);
  } catch (const std::exception& problem) {
    log_error("Handler threw", {{"problem", problem.what()}, {"path", request.path}});
    response = plain_text(500, "internal error\n");
  }
  answer(response);
}

void Connection::answer(const Response& response) {
  const auto& message = exchange_->parser.get();
  respond(response, message.version(), is_head(), message.keep_alive());
}

// Builds the response, which ends the request.
void Connection::respond(const Response& response, unsigned version, bool head, bool keep) {
  keep = keep && !close_after_ && !server_.draining;
  const auto reason = http::obsolete_reason(static_cast<http::status>(response.status));
  out_ = version == 10 ? "HTTP/1.0 " : "HTTP/1.1 ";
  out_ += std::to_string(response.status) + ' ';
  out_.append(reason.data(), reason.size());
  out_ += "\r\nContent-Type: " + response.content_type;
  if (response.status == 429 || response.status == 503) {
    out_ += "\r\nRetry-After: 1";
  }
  if (response.status == 401) {
    out_ += "\r\nWWW-Authenticate: Bearer";  // RFC 9110, 15.5.2: which kind of credentials is missing
  }
  if (keep != (version >= 11)) {  // else it is the version's default
    out_ += keep ? "\r\nConnection: keep-alive" : "\r\nConnection: close";
  }
  out_ += "\r\nContent-Length: " + std::to_string(response.body.size()) + "\r\n\r\n";
  if (!head) {
    out_ += response.body;
  }
  exchange_.reset();
  // An error is not a service: a peer that sends only bad requests may be evicted.
  served_ = served_ || response.status < 400;
  handled_ = false;
  after_sending_ = keep ? State::kIdle : State::kLingering;
  enter(State::kSending, server_.options.write_timeout);
}

std::optional<Connection::Next> Connection::send() {
  while (sent_ < out_.size()) {
    const IoResult written = socket_.write(std::string_view(out_).substr(sent_));
    if (written.state != IoState::kBytes) {
      const std::optional<Next> wait = wait_of(written);
      state_ = wait ? state_ : State::kOver;
      return wait;
    }
    sent_ += written.bytes;
  }
  sent_ = 0;
  empty(out_);
  if (after_sending_ == State::kReceiving) {
    state_ = State::kReceiving;  // the deadline stays
    return std::nullopt;
  }
  if (after_sending_ == State::kLingering) {
    start_lingering();
    return std::nullopt;
  }
  // The next request may have arrived: other connections come first.
  if (!unparsed_.empty()) {
    begin_request();
    return Next::kAgain;
  }
  enter_idle(server_.options.idle_timeout);
  empty(unparsed_);
  return socket_.has_buffered() ? Next::kAgain : Next::kReadable;
}

void Connection::start_lingering() {
  idle_ = Idle::kNo;
  socket_.finish_writing();
  enter(State::kLingering, server_.options.linger_timeout);
}

// Discards what the peer still sends until it closes, up to a limit.
std::optional<Connection::Next> Connection::linger() {
  while (discarded_ < kLingerLimit) {
    const IoResult got = socket_.discard(scratch());
    if (got.state == IoState::kWouldRead) {
      return Next::kReadable;
    }
    if (got.state != IoState::kBytes) {
      break;
    }
    discarded_ += got.bytes;
  }
  state_ = State::kOver;
  return std::nullopt;
}

bool Connection::close_if_idle() {
  Idle idle = Idle::kYes;
  if (!idle_.compare_exchange_strong(idle, Idle::kClosing)) {
    return false;
  }
  socket_.stop_reading();
  return true;
}

Connection::Progress Connection::progress() const {
  if (cut_ == Cut::kEvicted) {
    return Progress::kEvicted;
  }
  if (handled_) {
    return Progress::kHandling;
  }
  if (served_) {
    return Progress::kServed;
  }
  return tls_up_ ? Progress::kNotServed : Progress::kHandshaking;
}

void Connection::evict() {
  ++server_.stats.evicted;
  cut_ = Cut::kEvicted;
  socket_.cut();
}

void Connection::cut() {
  Cut not_yet = Cut::kNo;
  cut_.compare_exchange_strong(not_yet, Cut::kStopping);
  socket_.cut();
}

void Connection::time_out_at(Clock::time_point now) {
  Clock::rep deadline = deadline_;
  if (deadline > now.time_since_epoch().count() ||
      !deadline_.compare_exchange_strong(deadline, kNoDeadline) || close_if_idle()) {
    return;
  }
  cut_ = Cut::kTimedOut;
  socket_.cut();
}

}  // namespace plimsoll::http
