// Connection: what happens on one connection of a Server, from handshake to close, as a sequence of steps
// none of which waits. Server has the threads that take them.
//
//   Connection connection(state, std::move(socket), context);
//   switch (connection.advance()) {
//     case Next::kReadable: break;  // call advance() again when its socket is readable,
//     case Next::kWritable: break;  // or writable,
//     case Next::kAgain:    break;  // or after other connections had a turn
//     case Next::kHandler:  break;  // after handle(), or answer() instead of it: a request is complete
//     case Next::kOver:     break;  // never: destroy it
//   }
//
// One thread at a time, except where a method says otherwise. The caller synchronizes threads that hand a
// connection over.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include <boost/system/error_code.hpp>

#include "http/server.h"
#include "http/socket.h"

namespace plimsoll::http {

// What all connections of a server have in common. Outlives them.
struct ServerState {
  ServerOptions options;
  Handler handler;
  std::atomic<bool> draining = false;
  std::stop_source stop = std::stop_source();  // of handlers, see Request::stop
  std::atomic<std::uint64_t> accepted = 0, open = 0, in_flight = 0, requests = 0, rejected_overload = 0,
                             rejected_malformed = 0, rejected_timeout = 0, rejected_tls = 0,
                             rejected_no_descriptor = 0, evicted = 0, body_memory = 0;
};

Response plain_text(int status, std::string text);

class Connection {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Next { kReadable, kWritable, kAgain, kHandler, kOver };

  // `context` null: plain HTTP.
  Connection(ServerState& server, boost::asio::ip::tcp::socket socket,
             std::shared_ptr<boost::asio::ssl::context> context);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  boost::asio::ip::tcp::socket& stream() { return socket_.stream(); }  // to wait for

  // Answers at most one request, so that no peer keeps a thread by sending ahead.
  Next advance();
  // After kHandler: asks the handler, or gives `response` in its place.
  void handle();
  void answer(const Response& response);

  // From any thread, while the connection lives:

  // When the peer must have done its part; max() while it has nothing to do.
  Clock::time_point deadline() const { return Clock::time_point(Clock::duration(deadline_.load())); }
  // Closes it if its deadline has passed.
  void time_out_at(Clock::time_point now);
  // How far the peer has come: when connections run out, those that have come least far are closed first.
  enum class Progress {
    kHandshaking,  // no TLS yet
    kNotServed,    // TLS is up, or the port is plain; no request has been answered without an error
    kServed,
    kHandling,  // its request is at the handler, or waits for it
    kEvicted,
  };
  Progress progress() const;
  Clock::time_point opened() const { return opened_; }
  bool idle() const { return idle_ == Idle::kYes; }  // waits for the first byte of a request
  Clock::time_point idle_since() const { return Clock::time_point(Clock::duration(idle_since_.load())); }
  // Closes it to make room for another.
  void evict();
  // Closes it if it is idle, but serves a request that has come meanwhile. False when it is not idle.
  bool close_if_idle();
  // Closes it at once, but for a handler, which nothing interrupts.
  void cut();

 private:
  enum class State { kHandshake, kIdle, kReceiving, kHandling, kSending, kLingering, kOver };
  enum class Idle { kNo, kYes, kAskedToClose };
  enum class Cut { kNo, kStopping, kTimedOut, kEvicted };
  struct Exchange;

  void enter(State state, std::chrono::milliseconds limit);
  void enter_idle(std::chrono::milliseconds limit);
  void begin_request();
  void start_lingering();
  // One for each state: what to wait for, or nothing when another state was entered.
  std::optional<Next> do_handshake();
  std::optional<Next> wait_for_request();
  std::optional<Next> receive();
  std::optional<Next> send();
  std::optional<Next> linger();

  void parse(std::string_view bytes);
  std::size_t body_share() const;
  void header_is_complete();
  bool is_head() const;
  void reject(const boost::system::error_code& problem);
  void respond(const Response& response, unsigned version, bool head, bool keep);

  ServerState& server_;
  Socket socket_;
  State state_ = State::kOver;
  bool close_after_ = false;            // the request came after close_if_idle()
  std::unique_ptr<Exchange> exchange_;  // while one is received or handled
  std::string unparsed_;                // what the peer has sent and the parser has not taken yet
  std::string out_;                     // to be sent, from sent_ on
  std::size_t sent_ = 0;
  State after_sending_ = State::kOver;
  std::size_t discarded_ = 0;

  std::atomic<Clock::rep> deadline_ = 0;
  std::atomic<Clock::rep> idle_since_ = 0;
  std::atomic<Idle> idle_ = Idle::kNo;
  const Clock::time_point opened_ = Clock::now();
  std::atomic<bool> tls_up_ = false;
  std::atomic<bool> served_ = false;
  std::atomic<bool> handled_ = false;
  std::atomic<Cut> cut_ = Cut::kNo;
};

}  // namespace plimsoll::http
