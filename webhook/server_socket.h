// ServerSocket: one accepted connection, plain or TLS, that never blocks.
//
//   ServerSocket socket(std::move(descriptor), context);  // context null: plain
//   IoResult shaken = socket.handshake();
//   IoResult got = socket.read(buffer);              // kBytes: got.bytes of them
//   if (got.state == IoState::kWouldRead) return;    // and read again when the descriptor is readable
//
// Owns the descriptor. One thread at a time; cut() and stop_reading() from any while the socket lives.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "webhook/descriptor.h"

typedef struct ssl_st SSL;

namespace boost::asio::ssl {
class context;
}

namespace plimsoll::webhook {

enum class IoState {
  kBytes,       // some were read or written, or the handshake is done
  kWouldRead,   // call again when the descriptor is readable
  kWouldWrite,  // ... or writable
  kEnd,         // the peer will send no more; it may still listen
  kPlainHttp,   // of a handshake: the peer speaks HTTP without TLS
  kBroken,      // nothing can be said any more
};

struct IoResult {
  IoState state = IoState::kBroken;
  std::size_t bytes = 0;
};

class ServerSocket {
 public:
  // `descriptor` must not block. Throws std::bad_alloc when OpenSSL does not get its memory.
  ServerSocket(Descriptor descriptor, std::shared_ptr<boost::asio::ssl::context> context);
  ~ServerSocket();
  ServerSocket(const ServerSocket&) = delete;
  ServerSocket& operator=(const ServerSocket&) = delete;

  int descriptor() const { return descriptor_.get(); }
  bool tls() const { return ssl_ != nullptr; }

  IoResult handshake();  // of a plain socket: done at once
  IoResult read(std::span<char> into);
  IoResult write(std::string_view bytes);
  // What the peer sent is held here though the descriptor may not be readable.
  bool has_read_ahead() const;
  // Nothing has come that is not read yet.
  bool quiet() const;

  // From here on plain text, for the answer to kPlainHttp.
  void forget_tls();
  // Says that no more will be sent: close_notify, if TLS is up, and FIN.
  void finish_writing();
  // Takes in, as bytes without meaning, what the peer still sends.
  IoResult discard(std::span<char> into);

  // Makes the descriptor readable for whoever waits for it: what was sent already can be read, then comes the
  // end.
  void stop_reading();
  // Ends both directions at once.
  void cut();

 private:
  template <class Call>
  IoResult over_tls(const Call& call);

  const Descriptor descriptor_;
  const std::shared_ptr<boost::asio::ssl::context> context_;  // OpenSSL's object would do; asio's owns more
  SSL* ssl_ = nullptr;
  bool shaken_ = false;
};

}  // namespace plimsoll::webhook
