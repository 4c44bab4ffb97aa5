#include "webhook/http_connection.h"

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

namespace plimsoll::webhook {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

// Bytes that the parser can make nothing of yet, such as half a chunk's header; its own limit on the header
// is below it.
constexpr std::size_t kAheadLimit = 64 << 10;
// Discarded from a peer that still sends while its connection is closed, so that the answer is not lost to a
// reset.
constexpr std::size_t kLingerLimit = 32 << 20;
// What an idle connection keeps of its buffers.
constexpr std::size_t kKeptCapacity = 4 << 10;
constexpr auto kNoDeadline = HttpConnection::Clock::duration::max().count();

// Where bytes are read to: a thread reads for one connection at a time, and idle ones need none.
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

// The answer to a request that could not be read; status 0: none.
HttpResponse answer_to(const error_code& problem) {
  if (problem == http::error::body_limit) {
    return plain_text(413, "the body is larger than this server takes\n");
  }
  if (problem == http::error::header_limit || problem == http::error::buffer_overflow) {
    return plain_text(431, "the header is larger than this server takes\n");
  }
  return plain_text(400, "not a well-formed HTTP/1.1 request: " + problem.message() + "\n");
}

// A share of the memory that all bodies may take together, counted as they arrive: what a peer announces
// costs nothing yet.
class BodyCharge {
 public:
  explicit BodyCharge(HttpServerShared& shared) : shared_(shared) {}
  ~BodyCharge() { shared_.body_memory -= mine_; }
  BodyCharge(const BodyCharge&) = delete;
  BodyCharge& operator=(const BodyCharge&) = delete;

  // `limit` of all bodies together.
  bool grow_to(std::size_t bytes, std::size_t limit) {
    const std::size_t more = bytes - std::min(bytes, mine_);
    if (shared_.body_memory.fetch_add(more) + more > limit) {
      shared_.body_memory -= more;
      return false;
    }
    mine_ += more;
    return true;
  }

 private:
  HttpServerShared& shared_;
  std::size_t mine_ = 0;
};

}  // namespace

// A request from its first byte to its answer.
struct HttpConnection::Request {
  explicit Request(HttpServerShared& shared) : charge(shared) {
    parser.header_limit(static_cast<std::uint32_t>(shared.options.header_limit));
    parser.body_limit(shared.options.body_limit);
  }
  http::request_parser<http::string_body> parser;
  BodyCharge charge;
  std::size_t header_size = 0;
  Clock::time_point received;
};

HttpResponse plain_text(int status, std::string text) {
  return {status, "text/plain; charset=utf-8", std::move(text)};
}

HttpConnection::HttpConnection(HttpServerShared& shared, Descriptor descriptor,
                               std::shared_ptr<asio::ssl::context> context)
    : shared_(shared), socket_(std::move(descriptor), std::move(context)) {
  if (socket_.tls()) {
    enter(State::kHandshake, shared_.options.handshake_timeout);
  } else {
    shaken_ = true;
    enter_idle(shared_.options.header_timeout);
  }
}

HttpConnection::~HttpConnection() = default;

void HttpConnection::enter(State state, std::chrono::milliseconds limit) {
  state_ = state;
  deadline_ = (Clock::now() + limit).time_since_epoch().count();
}

void HttpConnection::enter_idle(std::chrono::milliseconds limit) {
  enter(State::kIdle, limit);
  idle_since_ = Clock::now().time_since_epoch().count();
  idle_ = Idle::kYes;
}

void HttpConnection::begin_request() {
  last_ = idle_.exchange(Idle::kNo) == Idle::kAskedToEnd;
  request_ = std::make_unique<Request>(shared_);
  enter(State::kReceiving, shared_.options.header_timeout);
}

HttpConnection::Next HttpConnection::advance() {
  for (;;) {
    std::optional<Next> wait;
    switch (state_) {
      case State::kHandshake: wait = shake(); break;
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

std::optional<HttpConnection::Next> HttpConnection::shake() {
  const IoResult shaken = socket_.handshake();
  switch (shaken.state) {
    case IoState::kBytes:
      shaken_ = true;
      enter_idle(shared_.options.header_timeout);
      return std::nullopt;
    case IoState::kWouldRead: return Next::kReadable;
    case IoState::kWouldWrite: return Next::kWritable;
    default: break;
  }
  if (cut_ != Cut::kEvicted) {
    ++(cut_ == Cut::kTimedOut ? shared_.rejected_timeout : shared_.rejected_tls);
  }
  if (shaken.state == IoState::kPlainHttp) {
    socket_.forget_tls();
    respond(plain_text(400, "this port speaks HTTPS, and the request came in plain HTTP\n"), 11, false,
            false);
  } else {
    start_lingering();  // the alert that says what is wrong is on its way
  }
  return std::nullopt;
}

std::optional<HttpConnection::Next> HttpConnection::wait_for_request() {
  if (idle_ == Idle::kAskedToEnd && socket_.quiet()) {
    start_lingering();
    return std::nullopt;
  }
  const std::span<char> bytes = scratch();
  const IoResult got = socket_.read(bytes);
  switch (got.state) {
    case IoState::kBytes:
      begin_request();
      take_in({bytes.data(), got.bytes});
      return std::nullopt;
    case IoState::kWouldRead: return Next::kReadable;
    case IoState::kWouldWrite: return Next::kWritable;
    case IoState::kEnd: start_lingering(); return std::nullopt;
    default: state_ = State::kOver; return std::nullopt;
  }
}

std::optional<HttpConnection::Next> HttpConnection::receive() {
  if (!ahead_.empty()) {
    take_in({});
  }
  const std::span<char> bytes = scratch();
  while (state_ == State::kReceiving) {
    const IoResult got = socket_.read(bytes);
    switch (got.state) {
      case IoState::kBytes: take_in({bytes.data(), got.bytes}); continue;
      case IoState::kWouldRead: return Next::kReadable;
      case IoState::kWouldWrite: return Next::kWritable;
      default: break;
    }
    if (cut_ == Cut::kTimedOut) {
      ++shared_.rejected_timeout;
    }
    if (got.state == IoState::kEnd && cut_ == Cut::kNo) {
      refuse_problem(http::error::partial_message);
    } else {
      state_ = State::kOver;
    }
  }
  return std::nullopt;
}

// Gives the parser what is ahead and then `bytes`; keeps what it does not take.
void HttpConnection::take_in(std::string_view bytes) {
  const bool kept = !ahead_.empty();
  if (kept) {
    ahead_.append(bytes);
  }
  std::string_view input = kept ? std::string_view(ahead_) : bytes;
  auto& parser = request_->parser;
  error_code problem;
  while (state_ == State::kReceiving && !problem && !parser.is_done() && !input.empty()) {
    const bool in_header = !parser.is_header_done();
    const std::size_t used = parser.put(asio::buffer(input), problem);
    input.remove_prefix(used);
    if (in_header) {
      request_->header_size += used;
      // Beast's own limit holds for one call, not for fields that come in many.
      const std::size_t size = request_->header_size + (parser.is_header_done() ? 0 : input.size());
      if (size > shared_.options.header_limit && (!problem || problem == http::error::need_more)) {
        problem = http::error::header_limit;
      }
      if (!problem) {
        header_is_complete();
      }
    }
  }
  if (problem == http::error::need_more) {
    problem = input.size() > kAheadLimit ? error_code(http::error::buffer_overflow) : error_code();
  }
  if (kept) {
    ahead_.erase(0, ahead_.size() - input.size());
  } else {
    ahead_.assign(input);
  }
  if (problem) {
    refuse_problem(problem);
  } else if (parser.is_header_done() && !request_->charge.grow_to(parser.get().body().size(), body_share())) {
    ++shared_.rejected_overload;
    respond(plain_text(503, "too much is being received at once; try again later\n"), 11, is_head(), false);
  } else if (parser.is_done()) {
    state_ = State::kHandling;
    handled_ = true;
    deadline_ = kNoDeadline;
  }
}

// Peers that were never served never get all of the memory for bodies.
std::size_t HttpConnection::body_share() const {
  const std::size_t limit = shared_.options.body_memory_limit;
  return served_ ? limit : limit / 4 * 3;
}

void HttpConnection::header_is_complete() {
  auto& parser = request_->parser;
  request_->received = Clock::now();
  parser.eager(true);
  enter(State::kReceiving, shared_.options.body_timeout);
  if (!parser.is_done() && beast::iequals(parser.get()[http::field::expect], "100-continue")) {
    out_ = "HTTP/1.1 100 Continue\r\n\r\n";
    after_sending_ = State::kReceiving;
    state_ = State::kSending;
  }
}

bool HttpConnection::is_head() const {
  return request_->parser.get().method() == http::verb::head;
}

void HttpConnection::refuse_problem(const error_code& problem) {
  ++shared_.rejected_malformed;
  respond(answer_to(problem), 11, is_head(), false);
}

void HttpConnection::handle() {
  ++shared_.requests;
  auto& parser = request_->parser;
  auto& message = parser.get();
  HttpRequest request;
  request.method = std::string(message.method_string());
  const std::string_view target(message.target().data(), message.target().size());
  request.path = std::string(target.substr(0, target.find('?')));
  request.query =
      target.size() > request.path.size() ? std::string(target.substr(request.path.size() + 1)) : "";
  request.content_type = std::string(message[http::field::content_type]);
  request.body = std::move(message.body());
  request.received = request_->received;
  request.stop = shared_.stop.get_token();
  HttpResponse response;
  try {
    response = shared_.handler(request);
  } catch (const std::exception& problem) {
    log_error("A handler ended on an exception", {{"problem", problem.what()}, {"path", request.path}});
    response = plain_text(500, "internal error\n");
  }
  answer(response);
}

void HttpConnection::answer(const HttpResponse& response) {
  const auto& message = request_->parser.get();
  respond(response, message.version(), is_head(), message.keep_alive());
}

// Puts the answer together; it ends the request.
void HttpConnection::respond(const HttpResponse& response, unsigned version, bool head, bool keep) {
  keep = keep && !last_ && !shared_.draining;
  const auto reason = http::obsolete_reason(static_cast<http::status>(response.status));
  out_ = version == 10 ? "HTTP/1.0 " : "HTTP/1.1 ";
  out_ += std::to_string(response.status) + ' ';
  out_.append(reason.data(), reason.size());
  out_ += "\r\nContent-Type: " + response.content_type;
  if (response.status == 429 || response.status == 503) {
    out_ += "\r\nRetry-After: 1";
  }
  if (keep != (version >= 11)) {  // else it goes without saying
    out_ += keep ? "\r\nConnection: keep-alive" : "\r\nConnection: close";
  }
  out_ += "\r\nContent-Length: " + std::to_string(response.body.size()) + "\r\n\r\n";
  if (!head) {
    out_ += response.body;
  }
  request_.reset();
  // An error is no service: whoever sends nonsense has no claim to stay.
  served_ = served_ || response.status < 400;
  handled_ = false;
  after_sending_ = keep ? State::kIdle : State::kLingering;
  enter(State::kSending, shared_.options.write_timeout);
}

std::optional<HttpConnection::Next> HttpConnection::send() {
  while (sent_ < out_.size()) {
    const IoResult written = socket_.write(std::string_view(out_).substr(sent_));
    switch (written.state) {
      case IoState::kBytes: sent_ += written.bytes; break;
      case IoState::kWouldRead: return Next::kReadable;
      case IoState::kWouldWrite: return Next::kWritable;
      default: state_ = State::kOver; return std::nullopt;
    }
  }
  sent_ = 0;
  empty(out_);
  if (after_sending_ == State::kReceiving) {
    state_ = State::kReceiving;  // by the deadline it had
    return std::nullopt;
  }
  if (after_sending_ == State::kLingering) {
    start_lingering();
    return std::nullopt;
  }
  // The next request may be here already. Others come first: a socket that can be written to is ready at
  // once, but behind those that were ready before it.
  if (!ahead_.empty()) {
    begin_request();
    return Next::kWritable;
  }
  enter_idle(shared_.options.idle_timeout);
  empty(ahead_);
  return socket_.has_read_ahead() ? Next::kWritable : Next::kReadable;
}

void HttpConnection::start_lingering() {
  idle_ = Idle::kNo;
  socket_.finish_writing();
  enter(State::kLingering, shared_.options.linger_timeout);
}

// Takes in what the peer still sends until it closes, within bounds.
std::optional<HttpConnection::Next> HttpConnection::linger() {
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

bool HttpConnection::end_if_idle() {
  Idle idle = Idle::kYes;
  if (!idle_.compare_exchange_strong(idle, Idle::kAskedToEnd)) {
    return false;
  }
  socket_.stop_reading();
  return true;
}

HttpConnection::Standing HttpConnection::standing() const {
  if (cut_ == Cut::kEvicted) {
    return Standing::kEvicted;
  }
  if (handled_) {
    return Standing::kHandled;
  }
  if (served_) {
    return Standing::kServed;
  }
  return shaken_ ? Standing::kUnserved : Standing::kStranger;
}

void HttpConnection::evict() {
  ++shared_.evicted;
  cut_ = Cut::kEvicted;
  socket_.cut();
}

void HttpConnection::cut() {
  Cut not_yet = Cut::kNo;
  cut_.compare_exchange_strong(not_yet, Cut::kStopping);
  socket_.cut();
}

void HttpConnection::time_out_at(Clock::time_point now) {
  Clock::rep deadline = deadline_;
  if (deadline > now.time_since_epoch().count() ||
      !deadline_.compare_exchange_strong(deadline, kNoDeadline) || end_if_idle()) {
    return;
  }
  cut_ = Cut::kTimedOut;
  socket_.cut();
}

}  // namespace plimsoll::webhook
