// HttpConnection: what happens on one connection of an HttpServer, from handshake to close, as a sequence of
// steps none of which waits. HttpServer has the threads that take them.
//
//   for (;;) {
//     switch (connection.advance()) {
//       case Next::kReadable: ...   // call again when its descriptor is readable,
//       case Next::kWritable: ...   // or writable
//       case Next::kHandler:  ...   // a request is complete: handle() it, or answer() without it; then
//       advance() case Next::kOver:     ...   // nothing is left to do: destroy it
//     }
//   }
//
// One thread at a time, except where a method says otherwise; whoever hands a connection from one thread to
// another orders what they do.
#pragma once

#include <atomic>
#include <boost/system/error_code.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "webhook/http_server.h"
#include "webhook/server_socket.h"

namespace plimsoll::webhook {

// What all connections of a server have in common. Outlives them.
struct HttpServerShared {
  HttpServerOptions options;
  HttpHandler handler;
  std::atomic<bool> draining = false;
  std::stop_source stop = std::stop_source();  // of handlers, see HttpRequest::stop
  std::atomic<std::uint64_t> accepted = 0, open = 0, in_flight = 0, requests = 0, rejected_overload = 0,
                             rejected_malformed = 0, rejected_timeout = 0, rejected_tls = 0,
                             rejected_no_descriptor = 0, evicted = 0, body_memory = 0;
};

HttpResponse plain_text(int status, std::string text);

class HttpConnection {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Next { kReadable, kWritable, kHandler, kOver };

  // `context` null: plain HTTP.
  HttpConnection(HttpServerShared& shared, Descriptor descriptor,
                 std::shared_ptr<boost::asio::ssl::context> context);
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  int descriptor() const { return socket_.descriptor(); }

  // Answers at most one request, so that no peer keeps a thread by sending ahead.
  Next advance();
  // After kHandler: asks the handler, or gives `response` in its place.
  void handle();
  void answer(const HttpResponse& response);

  // From any thread, while the connection lives:

  // By when it has to have moved on; max() while that is not the peer's to do.
  Clock::time_point deadline() const { return Clock::time_point(Clock::duration(deadline_.load())); }
  // Ends it if its deadline has passed.
  void time_out_at(Clock::time_point now);
  // How far the peer has come: who has not shown much goes first when connections run out.
  enum class Standing {
    kStranger,  // no TLS yet
    kUnserved,  // TLS is up, or the port is plain; no request of it has been answered well
    kServed,
    kHandled,  // its request is at the handler, or waits for it
    kEvicted,
  };
  Standing standing() const;
  Clock::time_point opened() const { return opened_; }
  bool idle() const { return idle_ == Idle::kYes; }  // waits for the first byte of a request
  Clock::time_point idle_since() const { return Clock::time_point(Clock::duration(idle_since_.load())); }
  // Ends it to make room for another.
  void evict();
  // Ends it if it is idle, but serves a request that has come meanwhile. False when it is not idle.
  bool end_if_idle();
  // Ends it at once, but for a handler, which nothing interrupts.
  void cut();

 private:
  enum class State { kHandshake, kIdle, kReceiving, kHandling, kSending, kLingering, kOver };
  enum class Idle { kNo, kYes, kAskedToEnd };
  enum class Cut { kNo, kStopping, kTimedOut, kEvicted };
  struct Request;

  void enter(State state, std::chrono::milliseconds limit);
  void enter_idle(std::chrono::milliseconds limit);
  void begin_request();
  void start_lingering();
  // One for each state: what to wait for, or nothing when another state was entered.
  std::optional<Next> shake();
  std::optional<Next> wait_for_request();
  std::optional<Next> receive();
  std::optional<Next> send();
  std::optional<Next> linger();

  void take_in(std::string_view bytes);
  std::size_t body_share() const;
  void header_is_complete();
  bool is_head() const;
  void refuse_problem(const boost::system::error_code& problem);
  void respond(const HttpResponse& response, unsigned version, bool head, bool keep);

  HttpServerShared& shared_;
  ServerSocket socket_;
  State state_ = State::kOver;
  bool last_ = false;                 // the request came when the connection was to end
  std::unique_ptr<Request> request_;  // while one is received or handled
  std::string ahead_;                 // what the peer has sent and no parser taken yet
  std::string out_;                   // to be sent, from sent_ on
  std::size_t sent_ = 0;
  State after_sending_ = State::kOver;
  std::size_t discarded_ = 0;

  std::atomic<Clock::rep> deadline_ = 0;
  std::atomic<Clock::rep> idle_since_ = 0;
  std::atomic<Idle> idle_ = Idle::kNo;
  const Clock::time_point opened_ = Clock::now();
  std::atomic<bool> shaken_ = false;
  std::atomic<bool> served_ = false;
  std::atomic<bool> handled_ = false;
  std::atomic<Cut> cut_ = Cut::kNo;
};

}  // namespace plimsoll::webhook
