// Peer: a client that does exactly what a test says, well or badly: connects, speaks TLS or not, writes
// bytes, reads one response.
//
//   Peer peer(server.port());
//   ASSERT_TRUE(peer.start_tls());
//   peer.write("GET / HTTP/1.1\r\n\r\n");
//   std::optional<Response> answer = peer.read_response();   // nothing: the server closed without one
//
// Blocking, with a limit of kPatience on everything; one thread.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

typedef struct ssl_ctx_st SSL_CTX;
typedef struct ssl_st SSL;
typedef struct ssl_session_st SSL_SESSION;

namespace plimsoll::testing {

struct Response {
  int status = 0;
  std::string content_type;
  std::string authenticate;  // the header WWW-Authenticate
  std::string body;
  bool keep_alive = false;
};

struct TlsOptions {
  std::string alpn;                // in the wire format, "\x08http/1.1"; empty: none offered
  SSL_SESSION* session = nullptr;  // to resume
  int highest_version = 0;         // of TLS; 0: any
  std::string host{};              // if given, the server's certificate must name it
  std::string authorities{};       // ... and lead to one of these, as PEM
  std::time_t time = 0;            // ... at this time; 0: now
};

class Peer {
 public:
  explicit Peer(std::uint16_t port);
  ~Peer();  // closes as a client that is gone does
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  bool connected() const { return socket_ >= 0; }
  bool start_tls(const TlsOptions& options = {});
  bool resumed() const;
  std::string protocol() const;  // chosen by ALPN
  SSL* tls() { return ssl_; }

  // False when the server has closed.
  bool write(std::string_view bytes);
  std::optional<Response> read_response(bool to_head = false);
  // Waits until the server closes; false when it does not.
  bool closes();
  void half_close();

  // A whole exchange; nothing when the connection died on the way.
  std::optional<Response> exchange(const std::string& method, const std::string& target,
                                   const std::string& content_type, const std::string& body);

 private:
  long read_some(char* into, std::size_t size);

  int socket_ = -1;
  SSL_CTX* context_ = nullptr;
  SSL* ssl_ = nullptr;
  std::string received_;  // beyond the last response
};

// The bytes of a request with a body, keep-alive.
std::string request_text(const std::string& method, const std::string& target,
                         const std::string& content_type, const std::string& body);

}  // namespace plimsoll::testing
