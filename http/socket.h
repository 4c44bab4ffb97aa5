// Socket: one accepted connection, plain or TLS, that never blocks.
//
//   Socket socket(std::move(accepted), context);     // context null: plain
//   IoResult result = socket.handshake();
//   IoResult got = socket.read(buffer);              // kBytes: got.bytes of them
//   if (got.state == IoState::kWouldRead) wait_until_readable();   // then read again
//
// OpenSSL reads and writes the descriptor itself: asio::ssl::stream has 34 KiB of buffers for each
// connection, even for idle ones (docs/adr/0001-http-server.md). One thread at a time; cut() and
// stop_reading() from any thread while the socket lives.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>  // before asio's headers, which need it under C++20

#include <boost/asio/ip/tcp.hpp>

typedef struct ssl_st SSL;

namespace boost::asio::ssl {
class context;
}

namespace plimsoll::http {

enum class IoState {
  kBytes,       // some were read or written, or the handshake is done
  kWouldRead,   // call again when the socket is readable
  kWouldWrite,  // ... or writable
  kEnd,         // the peer sends no more; it may still read
  kPlainHttp,   // of a handshake: the peer speaks HTTP without TLS
  kBroken,      // the connection cannot be used any more
};

struct IoResult {
  IoState state = IoState::kBroken;
  std::size_t bytes = 0;
};

class Socket {
 public:
  // Throws std::bad_alloc when OpenSSL cannot allocate memory.
  Socket(boost::asio::ip::tcp::socket socket, std::shared_ptr<boost::asio::ssl::context> context);
  ~Socket();
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  boost::asio::ip::tcp::socket& stream() { return socket_; }  // to wait for
  bool tls() const { return ssl_ != nullptr; }

  IoResult handshake();  // of a plain socket: done at once
  IoResult read(std::span<char> into);
  IoResult write(std::string_view bytes);
  // True when received bytes are buffered here, although the socket may not be readable.
  bool has_buffered() const;
  // True when no received byte waits to be read.
  bool quiet();

  // Continues in plain text, for the response to kPlainHttp.
  void drop_tls();
  // Tells the peer that no more is sent: close_notify, if TLS is established, and FIN.
  void finish_writing();
  // Reads and discards what the peer still sends, without decrypting it.
  IoResult discard(std::span<char> into);

  // Makes the socket readable for its waiter: it can read what has arrived, then the end of the stream.
  void stop_reading();
  // Ends both directions at once.
  void cut();

 private:
  template <class Call>
  IoResult over_tls(const Call& call);

  boost::asio::ip::tcp::socket socket_;
  const std::shared_ptr<boost::asio::ssl::context> context_;  // ssl_ needs its callbacks
  SSL* ssl_ = nullptr;
  bool established_ = false;
};

}  // namespace plimsoll::http
