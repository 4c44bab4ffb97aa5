// Connection: one connection of a Server, from handshake to close, as a sequence of steps that never wait.
// The threads of Server execute them.
//
//   Connection connection(state, std::move(socket), context);
//   switch (connection.advance()) {
//     case Next::kReadable: break;  // call advance() again when its socket is readable,
//     case Next::kWritable: break;  // or writable,
//     case Next::kAgain:    break;  // or after other connections had their turn
//     case Next::kHandler:  break;  // a request is complete: call handle() or answer() first
//     case Next::kOver:     break;  // destroy the connection
//   }
//
// One thread at a time, except where a method says otherwise. The caller synchronizes threads that pass a
// connection on.
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

// Shared by all connections of a server, and outlives them.
struct ServerState {
  ServerOptions options;
  Handler handler;
  std::atomic<bool> draining = false;
  std::stop_source stop = std::stop_source();  // of handlers, see Request::stop
  ServerStats stats{};
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

  // Handles at most one request, so that no peer occupies a thread by sending many.
  Next advance();
  // After kHandler: calls the handler, or sends `response` instead.
  void handle();
  void answer(const Response& response);

  // From any thread, while the connection lives:

  // The peer's deadline; max() while the peer has nothing to do.
  Clock::time_point deadline() const { return Clock::time_point(Clock::duration(deadline_.load())); }
  // Closes it if its deadline has passed.
  void time_out_at(Clock::time_point now);
  // When there are too many connections, those with the least progress are closed first.
  enum class Progress {
    kHandshaking,  // no TLS yet
    kNotServed,    // TLS is established, or the port is plain; no successful response yet
    kServed,
    kHandling,  // its request is at the handler or waits for it
    kEvicted,
  };
  Progress progress() const;
  Clock::time_point opened() const { return opened_; }
  bool idle() const { return idle_ == Idle::kYes; }  // waiting for the first byte of a request
  Clock::time_point idle_since() const { return Clock::time_point(Clock::duration(idle_since_.load())); }
  // Closes it in favour of another.
  void evict();
  // Closes it if it is idle, but serves a request that has just arrived. False when it is not idle.
  bool close_if_idle();
  // Closes it at once; a running handler is not interrupted.
  void cut();

 private:
  enum class State { kHandshake, kIdle, kReceiving, kHandling, kSending, kLingering, kOver };
  enum class Idle { kNo, kYes, kClosing };
  enum class Cut { kNo, kStopping, kTimedOut, kEvicted };
  struct Exchange;

  void enter(State state, std::chrono::milliseconds limit);
  void enter_idle(std::chrono::milliseconds limit);
  void begin_request();
  void start_lingering();
  // One for each state. Returns what to wait for, or nothing when another state was entered.
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
  std::unique_ptr<Exchange> exchange_;  // while a request is received or handled
  std::string unparsed_;                // received, but not consumed by the parser
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
