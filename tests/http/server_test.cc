#include "http/server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "tests/http/peer.h"
#include "tests/http/test_certificates.h"
#include "tests/testing/eventually.h"
#include "tests/testing/latch.h"
#include "tests/testing/loopback.h"

namespace plimsoll::http {
namespace {

using namespace std::chrono_literals;
using testing::eventually;
using ::testing::Ge;
using testing::loopback_address;
using testing::Peer;
using testing::request_text;
using testing::Response;

http::Response echo(const Request& request) {
  if (request.path == "/throw") {
    throw std::runtime_error("on purpose");
  }
  return {200, "text/plain",
          request.method + " " + request.path + " ? " + request.query + " : " + request.body};
}

// A server and what it was made of; plain HTTP unless a certificate is given.
struct Echo {
  explicit Echo(ServerOptions options = testing::test_options(),
                std::shared_ptr<const CertificateSource> certificates = nullptr)
      : server(
            std::move(options),
            [this](const Request& request) {
              if (request.path == "/slow") {
                slow.wait();
              }
              return echo(request);
            },
            std::move(certificates)) {
    const Result<void> started = server.start();
    EXPECT_TRUE(started.ok()) << started.error().message;
  }
  ~Echo() { slow.open(); }

  std::uint64_t in_flight() const { return server.stats().in_flight; }
  std::uint64_t open_connections() const { return server.stats().open_connections; }

  testing::Latch slow{"the test lets /slow be answered"};
  Server server;
};

std::string get(const std::string& target) {
  return "GET " + target + " HTTP/1.1\r\nHost: x\r\n\r\n";
}

void expect_served(std::uint16_t port) {
  Peer peer(port);
  ASSERT_TRUE(peer.connected());
  ASSERT_TRUE(peer.write(get("/alive")));
  const std::optional<Response> answer = peer.read_response();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->status, 200);
}

TEST(Server, TellsMethodPathQueryAndBodyApart) {
  Echo echo;
  Peer peer(echo.server.port());
  const std::optional<Response> answer = peer.exchange("POST", "/a/b?c=d?e", "text/plain", "body");
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->body, "POST /a/b ? c=d?e : body");
  EXPECT_TRUE(answer->keep_alive);
}

TEST(Server, PassesCredentialsOnAndAsksForThem) {
  Server server(testing::test_options(), [](const Request& request) {
    return http::Response{request.authorization.empty() ? 401 : 200, "text/plain", request.authorization};
  });
  ASSERT_TRUE(server.start().ok());
  const auto answer_to = [&](const std::string& header) {
    Peer peer(server.port());
    EXPECT_TRUE(peer.write("GET / HTTP/1.1\r\nHost: x\r\n" + header + "\r\n"));
    return peer.read_response().value_or(Response{});
  };
  const Response without = answer_to("");
  EXPECT_EQ(without.status, 401);
  EXPECT_EQ(without.authenticate, "Bearer");
  const Response with = answer_to("aUTHORIZATION:  Bearer abc \r\n");
  EXPECT_EQ(with.body, "Bearer abc");
  EXPECT_EQ(with.authenticate, "");
  EXPECT_EQ(answer_to("Authorization: Bearer a\r\nAuthorization: Bearer b\r\n").body, "Bearer a, Bearer b");
}

TEST(Server, AnswersPipelinedRequestsInOrder) {
  Echo echo;
  Peer peer(echo.server.port());
  std::string all;
  for (int i = 0; i < 50; ++i) {
    all += request_text("POST", "/" + std::to_string(i), "text/plain",
                        std::string(static_cast<std::size_t>(i), 'x'));
  }
  ASSERT_TRUE(peer.write(all));
  for (int i = 0; i < 50; ++i) {
    const std::optional<Response> answer = peer.read_response();
    ASSERT_TRUE(answer.has_value()) << i;
    EXPECT_EQ(answer->body,
              "POST /" + std::to_string(i) + " ?  : " + std::string(static_cast<std::size_t>(i), 'x'));
  }
}

TEST(Server, SpeaksHttp10AndClosesAfterIt) {
  Echo echo;
  Peer peer(echo.server.port());
  ASSERT_TRUE(peer.write("GET /old HTTP/1.0\r\n\r\n"));
  const std::optional<Response> answer = peer.read_response();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->status, 200);
  EXPECT_FALSE(answer->keep_alive);
  EXPECT_TRUE(peer.closes());
}

TEST(Server, TakesChunkedBodiesAndContinuesWhenAsked) {
  Echo echo;
  Peer peer(echo.server.port());
  ASSERT_TRUE(
      peer.write("POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
                 "chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"));
  const std::optional<Response> chunked = peer.read_response();
  ASSERT_TRUE(chunked.has_value());
  EXPECT_EQ(chunked->body, "POST /c ?  : abcde");

  ASSERT_TRUE(peer.write("POST /e HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"));
  const std::optional<Response> go_on = peer.read_response(true);
  ASSERT_TRUE(go_on.has_value());
  EXPECT_EQ(go_on->status, 100);
  ASSERT_TRUE(peer.write("ok"));
  const std::optional<Response> answer = peer.read_response();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->body, "POST /e ?  : ok");
}

TEST(Server, AnswersHeadWithoutABody) {
  Echo echo;
  Peer peer(echo.server.port());
  ASSERT_TRUE(peer.write("HEAD /h HTTP/1.1\r\nHost: x\r\n\r\n" + get("/next")));
  const std::optional<Response> head = peer.read_response(true);
  ASSERT_TRUE(head.has_value());
  EXPECT_EQ(head->status, 200);
  const std::optional<Response> next = peer.read_response();
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->body, "GET /next ?  : ");
}

TEST(Server, AHandlerThatThrowsIsA500) {
  Echo echo;
  Peer peer(echo.server.port());
  ASSERT_TRUE(peer.write(get("/throw")));
  const std::optional<Response> answer = peer.read_response();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->status, 500);
  expect_served(echo.server.port());
}

struct Malformed {
  const char* name;
  std::string bytes;
  int status;
};

// What is no HTTP gets a 400 (or what fits better) and the connection's end; the server lives.
TEST(Server, RefusesWhatIsNoHttp) {
  const std::string post = "POST / HTTP/1.1\r\nHost: x\r\n";
  const std::string chunked = post + "Transfer-Encoding: chunked\r\n\r\n";
  const std::vector<Malformed> all = {
      {"Noise", "\x01\x02\x03\r\n\r\n", 400},
      {"NoVersion", "GET /\r\n\r\n", 400},
      {"FutureVersion", "GET / HTTP/3.0\r\n\r\n", 400},
      {"Http2Preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
      {"SpaceInTheTarget", "GET / / HTTP/1.1\r\n\r\n", 400},
      {"NoColon", post + "Host\r\n\r\n", 400},
      {"SpaceBeforeColon", post + "A : b\r\n\r\n", 400},
      {"ControlInAField", post + std::string("A: b\0c\r\n\r\n", 10), 400},
      {"NegativeLength", post + "Content-Length: -1\r\n\r\n", 400},
      {"LengthIsText", post + "Content-Length: ten\r\n\r\n", 400},
      {"LengthBeyond64Bits", post + "Content-Length: 99999999999999999999999\r\n\r\n", 400},
      {"TwoLengths", post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400},
      {"LengthAndChunked", post + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"LengthTooLarge", post + "Content-Length: 7340033\r\n\r\n", 413},
      {"ChunkOfMinusOne", chunked + "-1\r\n", 400},
      {"ChunkSizeIsText", chunked + "zz\r\n", 400},
      {"ChunkSizeOverflows", chunked + "fffffffffffffffff\r\n", 400},
      {"ChunkSizeOf64Bits", chunked + "ffffffffffffffff\r\n", 413},
      {"ChunkTooLarge", chunked + "700001\r\n", 413},
      {"ChunkWithoutItsEnd", chunked + "2\r\nabcdefgh\r\n0\r\n\r\n", 400},
      {"HeaderTooLarge", post + "A: " + std::string(20 << 10, 'a') + "\r\n\r\n", 431},
      {"TargetTooLong", "GET /" + std::string(20 << 10, 'a') + " HTTP/1.1\r\n\r\n", 431},
      {"ManyFields",
       [&] {
         std::string text = post;
         for (int i = 0; i < 2000; ++i) {
           text += "A" + std::to_string(i) + ": b\r\n";
         }
         return text + "\r\n";
       }(),
       431},
  };
  Echo echo;
  for (const Malformed& bad : all) {
    SCOPED_TRACE(bad.name);
    Peer peer(echo.server.port());
    peer.write(bad.bytes);
    const std::optional<Response> answer = peer.read_response();
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->status, bad.status);
    EXPECT_FALSE(answer->keep_alive);
    EXPECT_TRUE(peer.closes());
  }
  expect_served(echo.server.port());
  EXPECT_EQ(echo.server.stats().rejected_malformed, all.size());
}

TEST(Server, RefusesABodyBeyondItsLimitAfterTakingOneAtIt) {
  ServerOptions options = testing::test_options();
  Echo echo(options);
  Peer good(echo.server.port());
  const std::optional<Response> taken =
      good.exchange("POST", "/", "text/plain", std::string(options.body_limit, 'x'));
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(taken->status, 200);

  Peer bad(echo.server.port());
  bad.write(request_text("POST", "/", "text/plain", std::string(options.body_limit + 1, 'x')));
  const std::optional<Response> refused = bad.read_response();
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->status, 413);
}

TEST(Server, RefusesWhatWouldTakeTooMuchMemoryTogether) {
  ServerOptions options = testing::test_options();
  options.body_memory_limit = 1'400'000;
  Echo echo(options);
  Peer holder(echo.server.port());  // holds most of what peers that were not served may, and never finishes
  ASSERT_TRUE(holder.write("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" +
                           std::string(999'000, 'x')));
  ASSERT_TRUE(eventually(
      "what the holder sent is held", [&] { return echo.server.stats().body_bytes.load(); }, 999'000U));
  {
    Peer known(echo.server.port());
    EXPECT_TRUE(known.exchange("GET", "/", "text/plain", "").has_value());
    const std::optional<Response> answer =
        known.exchange("POST", "/", "text/plain", std::string(100'000, 'x'));
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->status, 200);
  }
  {
    Peer other(echo.server.port());
    other.write(request_text("POST", "/", "text/plain", std::string(100'000, 'x')));
    const std::optional<Response> answer = other.read_response();
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->status, 503);
  }
  ASSERT_TRUE(eventually(
      "what the refused one had sent no longer counts", [&] { return echo.open_connections(); }, 1U));
  ASSERT_TRUE(holder.write(std::string(1'000, 'x')));
  const std::optional<Response> held = holder.read_response();
  ASSERT_TRUE(held.has_value());
  EXPECT_EQ(held->status, 200);
}

TEST(Server, AnswersAtOnceWhenTooManyWait) {
  ServerOptions options = testing::test_options();
  options.workers = 1;
  options.max_in_flight = 2;
  Echo echo(options);
  std::vector<std::unique_ptr<Peer>> waiting;
  for (int i = 0; i < 2; ++i) {
    waiting.push_back(std::make_unique<Peer>(echo.server.port()));
    waiting.back()->write(get("/slow"));
  }
  ASSERT_TRUE(eventually(
      "two are at the handler or wait for it", [&] { return echo.in_flight(); }, 2U));
  Peer late(echo.server.port());
  late.write(get("/late"));
  const std::optional<Response> refused = late.read_response();
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->status, 429);
  EXPECT_TRUE(refused->keep_alive);
  echo.slow.open();
  for (const auto& peer : waiting) {
    const std::optional<Response> answer = peer->read_response();
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->status, 200);
  }
  late.write(get("/again"));
  const std::optional<Response> taken = late.read_response();
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(taken->status, 200);
}

TEST(Server, SlowHandlersDoNotStopOthers) {
  Echo echo;
  Peer slow(echo.server.port());
  slow.write(get("/slow"));
  ASSERT_TRUE(eventually(
      "one is at the handler", [&] { return echo.in_flight(); }, 1U));
  expect_served(echo.server.port());
  echo.slow.open();
  EXPECT_TRUE(slow.read_response().has_value());
}

// With every worker at its handler, and it is one, others are still shaken hands with, read and answered.
TEST(Server, BusyWorkersDoNotStopHandshakesNorRefusals) {
  ServerOptions options = testing::test_options();
  options.workers = 1;
  options.max_in_flight = 1;
  Echo echo(options, std::make_shared<testing::HeldCertificate>());
  Peer slow(echo.server.port());
  ASSERT_TRUE(slow.start_tls());
  slow.write(get("/slow"));
  ASSERT_TRUE(eventually(
      "one is at the handler", [&] { return echo.in_flight(); }, 1U));
  Peer other(echo.server.port());
  ASSERT_TRUE(other.start_tls());
  const std::optional<Response> refused = other.exchange("GET", "/", "text/plain", "");
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->status, 429);
  echo.slow.open();
  const std::optional<Response> answer = slow.read_response();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->status, 200);
}

constexpr std::string_view kHalfATlsHello = "\x16\x03\x01\x02";
constexpr std::string_view kHalfAHeader = "POST / HTTP/1.1\r\nHo";
constexpr std::string_view kHalfABody = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf";

// 200 peers that send nothing, half a TLS hello, half a header or half a body.
TEST(Server, SlowClientsDoNotStopAFastOne) {
  Echo echo(testing::test_options(), std::make_shared<testing::HeldCertificate>());
  std::vector<std::unique_ptr<Peer>> slow;
  for (int i = 0; i < 200; ++i) {
    slow.push_back(std::make_unique<Peer>(echo.server.port()));
    Peer& peer = *slow.back();
    ASSERT_TRUE(peer.connected());
    if (i % 4 == 1) {
      peer.write(kHalfATlsHello);
    } else if (i % 4 >= 2) {
      ASSERT_TRUE(peer.start_tls());
      peer.write(i % 4 == 2 ? kHalfAHeader : kHalfABody);
    }
  }
  ASSERT_TRUE(eventually(
      "all are accepted", [&] { return echo.open_connections(); }, 200U));
  for (int i = 0; i < 20; ++i) {
    Peer fast(echo.server.port());
    ASSERT_TRUE(fast.start_tls());
    const std::optional<Response> answer = fast.exchange("POST", "/fast", "text/plain", "x");
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->status, 200);
  }
  EXPECT_EQ(echo.server.stats().rejected_timeout, 0U);
}

// `timeout`: the one that passes; the others are long.
void expect_disconnected(std::chrono::milliseconds ServerOptions::*timeout,
                         const std::vector<std::string_view>& sent, bool after_tls) {
  ServerOptions options = testing::test_options();
  options.*timeout = 200ms;
  Echo echo(options, std::make_shared<testing::HeldCertificate>());
  std::vector<std::unique_ptr<Peer>> slow;
  for (int i = 0; i < 50; ++i) {
    for (const std::string_view bytes : sent) {
      slow.push_back(std::make_unique<Peer>(echo.server.port()));
      ASSERT_TRUE(!after_tls || slow.back()->start_tls());
      slow.back()->write(bytes);
    }
  }
  for (const auto& peer : slow) {
    EXPECT_TRUE(peer->closes());
  }
  EXPECT_TRUE(eventually(
      "no connection is left", [&] { return echo.open_connections(); }, 0U));
  EXPECT_EQ(echo.server.stats().rejected_timeout, slow.size());
}

TEST(Server, DisconnectsPeersThatDoNotEndTheirHandshake) {
  expect_disconnected(&ServerOptions::handshake_timeout, {"", kHalfATlsHello}, false);
}

TEST(Server, DisconnectsPeersThatDoNotEndTheirBody) {
  expect_disconnected(&ServerOptions::body_timeout, {kHalfABody}, true);
}

TEST(Server, DisconnectsPeersThatDoNotEndTheirHeader) {
  ServerOptions options = testing::test_options();
  options.header_timeout = 200ms;
  Echo echo(options, std::make_shared<testing::HeldCertificate>());
  // A peer whose first byte takes that long is closed as an idle one, and does not count.
  EXPECT_TRUE(eventually(
      "50 halves of a header are late",
      [&] {
        std::vector<std::unique_ptr<Peer>> slow;
        for (int i = 0; i < 50; ++i) {
          slow.push_back(std::make_unique<Peer>(echo.server.port()));
          EXPECT_TRUE(slow.back()->start_tls());
          slow.back()->write(kHalfAHeader);
        }
        for (const auto& peer : slow) {
          EXPECT_TRUE(peer->closes());
        }
        return echo.server.stats().rejected_timeout.load();
      },
      Ge(50U)));
  EXPECT_TRUE(eventually(
      "no connection is left", [&] { return echo.open_connections(); }, 0U));
}

// A peer that drips one byte at a time keeps no deadline from coming.
TEST(Server, DrippingDoesNotExtendADeadline) {
  ServerOptions options = testing::test_options();
  options.header_timeout = 300ms;
  Echo echo(options);
  Peer peer(echo.server.port());
  EXPECT_TRUE(eventually("the server closes", [&] { return !peer.write("A"); }));
}

TEST(Server, ClosesIdleConnections) {
  ServerOptions options = testing::test_options();
  options.idle_timeout = 200ms;
  Echo echo(options);
  Peer peer(echo.server.port());
  peer.write(get("/"));
  EXPECT_TRUE(peer.read_response().has_value());
  EXPECT_TRUE(peer.closes());
}

TEST(Server, AtTheLimitOfConnectionsTheLongestIdleMakesPlace) {
  ServerOptions options = testing::test_options();
  options.max_connections = 3;
  Echo echo(options);
  std::vector<std::unique_ptr<Peer>> idle;
  for (int i = 0; i < 3; ++i) {
    idle.push_back(std::make_unique<Peer>(echo.server.port()));
    idle.back()->write(get("/"));
    ASSERT_TRUE(idle.back()->read_response().has_value());
    // The answer may be read before the connection is idle.
    ASSERT_TRUE(eventually(
        "the connection is idle", [&] { return echo.in_flight(); }, 0U));
  }
  expect_served(echo.server.port());
  EXPECT_TRUE(idle[0]->closes());
  idle[2]->write(get("/still"));
  EXPECT_TRUE(idle[2]->read_response().has_value());
}

TEST(Server, SurvivesRunningOutOfFileDescriptors) {
  Echo echo;
  // The clients' sockets exist before the limit falls; the server's cannot be made after it.
  std::vector<int> sockets;
  for (int i = 0; i < 20; ++i) {
    sockets.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  }
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const int next = ::dup(sockets.back());
  ::close(next);
  rlimit low = before;
  low.rlim_cur = static_cast<rlim_t>(next);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  const sockaddr_in address = loopback_address(echo.server.port());
  for (const int socket : sockets) {
    EXPECT_EQ(::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  EXPECT_TRUE(eventually(
      "a connection is rejected", [&] { return echo.server.stats().rejected_no_descriptor.load(); }, Ge(1U)));
  for (const int socket : sockets) {
    ::close(socket);
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
  expect_served(echo.server.port());
}

TEST(Server, SpeaksTls12And13AndNothingOlder) {
  const auto certificate = std::make_shared<testing::HeldCertificate>();
  Echo echo(testing::test_options(), certificate);
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    Peer peer(echo.server.port());
    EXPECT_TRUE(peer.start_tls({.alpn = "", .session = nullptr, .highest_version = version}));
    EXPECT_TRUE(peer.exchange("GET", "/", "text/plain", "").has_value());
  }
  for (const int version : {TLS1_VERSION, TLS1_1_VERSION}) {
    Peer peer(echo.server.port());
    EXPECT_FALSE(peer.start_tls({.alpn = "", .session = nullptr, .highest_version = version}));
  }
}

TEST(Server, ChoosesHttp11AndRefusesOnlyHttp2) {
  const auto certificate = std::make_shared<testing::HeldCertificate>();
  Echo echo(testing::test_options(), certificate);
  Peer both(echo.server.port());
  ASSERT_TRUE(both.start_tls({.alpn = "\x02h2\x08http/1.1"}));
  EXPECT_EQ(both.protocol(), "http/1.1");
  EXPECT_TRUE(both.exchange("GET", "/", "text/plain", "").has_value());
  Peer only(echo.server.port());
  EXPECT_FALSE(only.start_tls({.alpn = "\x02h2"}));
}

TEST(Server, ResumesSessions) {
  const auto certificate = std::make_shared<testing::HeldCertificate>();
  Echo echo(testing::test_options(), certificate);
  Peer first(echo.server.port());
  ASSERT_TRUE(first.start_tls());
  ASSERT_TRUE(first.exchange("GET", "/", "text/plain", "").has_value());
  EXPECT_FALSE(first.resumed());
  SSL_SESSION* session = SSL_get1_session(first.tls());
  Peer second(echo.server.port());
  ASSERT_TRUE(second.start_tls({.alpn = "", .session = session}));
  EXPECT_TRUE(second.resumed());
  EXPECT_TRUE(second.exchange("GET", "/", "text/plain", "").has_value());
  SSL_SESSION_free(session);
}

TEST(Server, TellsAPlainClientOnTheTlsPort) {
  const auto certificate = std::make_shared<testing::HeldCertificate>();
  Echo echo(testing::test_options(), certificate);
  Peer peer(echo.server.port());
  peer.write(get("/"));
  const std::optional<Response> answer = peer.read_response();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->status, 400);
  EXPECT_NE(answer->body.find("HTTPS"), std::string::npos);
  EXPECT_TRUE(peer.closes());
}

TEST(Server, WithoutACertificateConnectionsCloseUntilThereIsOne) {
  const auto certificate = std::make_shared<testing::HeldCertificate>();
  certificate->clear();
  Echo echo(testing::test_options(), certificate);
  Peer early(echo.server.port());
  EXPECT_FALSE(early.start_tls());
  certificate->swap();
  Peer later(echo.server.port());
  EXPECT_TRUE(later.start_tls());
}

TEST(Server, ATruncatedBodyIsAnsweredWhenThePeerStillListens) {
  Echo echo;
  Peer peer(echo.server.port());
  peer.write("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf");
  peer.half_close();
  const std::optional<Response> answer = peer.read_response();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->status, 400);
}

TEST(Server, RefusesAnAddressThatIsNoneAndAPortThatIsTaken) {
  ServerOptions nowhere = testing::test_options();
  nowhere.bind_address = "webhook.example";
  Server bad(nowhere, echo);
  const Result<void> refused = bad.start();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);

  Echo first;
  ServerOptions taken = testing::test_options();
  taken.port = first.server.port();
  Server second(taken, echo);
  const Result<void> failed = second.start();
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(failed.error().message.find(std::to_string(taken.port)), std::string::npos);
}

}  // namespace
}  // namespace plimsoll::http
