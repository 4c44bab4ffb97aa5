// Peers that connect and then say nothing, or too little, while others want to be served.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/log.h"
#include "http/server.h"
#include "tests/http/peer.h"
#include "tests/http/test_certificates.h"

namespace plimsoll::http {
namespace {

using namespace std::chrono_literals;
using testing::Peer;
using testing::Response;
using Peers = std::vector<std::unique_ptr<Peer>>;

http::Response answer(const Request& request) {
  return {request.path == "/" ? 200 : 404, "text/plain", request.body};
}

struct TestServer {
  explicit TestServer(ServerOptions options = testing::test_options())
      : server(std::move(options), answer, std::make_shared<testing::HeldCertificate>()) {
    configure_log(LogLevel::kError, LogFormat::kText);
    EXPECT_TRUE(server.start().ok());
  }
  std::uint16_t port() const { return server.port(); }
  Server server;
};

bool is_answered(Peer& peer) {
  const std::optional<Response> answer = peer.exchange("POST", "/", "text/plain", "hello");
  return answer && answer->status == 200;
}

bool a_fresh_client_is_answered(const TestServer& server) {
  Peer peer(server.port());
  return peer.start_tls() && is_answered(peer);
}

// For both ends of each connection.
void allow_open_files(rlim_t count) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = std::max(files.rlim_cur, std::min(files.rlim_max, count));
  ::setrlimit(RLIMIT_NOFILE, &files);
}

struct Attack {
  const char* name;
  std::size_t connections;
  std::size_t limit;  // of the server
  std::function<void(Peer&)> say;
};

class SilentPeers : public ::testing::TestWithParam<Attack> {};

// Once, 2,500 silent connections left 0 of 9 requests answered in 45 s: the API server's connection had been
// idle for longest, and so was the one that was closed.
TEST_P(SilentPeers, DoNotStopOthers) {
  const Attack& attack = GetParam();
  allow_open_files(8'000);
  ServerOptions options = testing::test_options();
  options.max_connections = attack.limit;
  TestServer server(options);
  Peer api_server(server.port());
  ASSERT_TRUE(api_server.start_tls());
  ASSERT_TRUE(is_answered(api_server));
  Peers silent;
  for (std::size_t i = 0; i < attack.connections; ++i) {
    silent.push_back(std::make_unique<Peer>(server.port()));
    ASSERT_TRUE(silent.back()->connected());
    attack.say(*silent.back());
    if (i % (attack.connections / 5) == 0) {
      EXPECT_TRUE(a_fresh_client_is_answered(server)) << i;
    }
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(is_answered(api_server)) << i;
    EXPECT_TRUE(a_fresh_client_is_answered(server)) << i;
  }
  EXPECT_GT(server.server.stats().evicted, 0U);
  EXPECT_LE(server.server.stats().open_connections, attack.limit);
}

INSTANTIATE_TEST_SUITE_P(
    All, SilentPeers,
    ::testing::Values(Attack{"Silent", 2'500, 1'024, [](Peer&) {}},
                      Attack{"HalfATlsHello", 2'500, 1'024,
                             [](Peer& peer) { peer.write("\x16\x03\x01\x02"); }},
                      Attack{"SilentAfterTls", 300, 128, [](Peer& peer) { peer.start_tls(); }},
                      Attack{"HalfAHeader", 300, 128,
                             [](Peer& peer) {
                               peer.start_tls();
                               peer.write("POST / HTTP/1.1\r\nHo");
                             }},
                      Attack{"HalfABody", 300, 128,
                             [](Peer& peer) {
                               peer.start_tls();
                               peer.write("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n123");
                             }},
                      Attack{"Nonsense", 300, 128,
                             [](Peer& peer) {
                               peer.start_tls();
                               peer.exchange("GET", "/nowhere", "text/plain", "");
                             }}),
    [](const auto& given) { return std::string(given.param.name); });

// Clients that were served have half of the connections, whatever others do.
TEST(SilentPeersAndServedOnes, ServedConnectionsStay) {
  ServerOptions options = testing::test_options();
  options.max_connections = 64;
  TestServer server(options);
  Peers served;
  for (int i = 0; i < 30; ++i) {
    served.push_back(std::make_unique<Peer>(server.port()));
    ASSERT_TRUE(served.back()->start_tls());
    ASSERT_TRUE(is_answered(*served.back()));
  }
  Peers silent;
  for (int i = 0; i < 200; ++i) {
    silent.push_back(std::make_unique<Peer>(server.port()));
    if (i % 2 == 0) {
      silent.back()->start_tls();
    }
  }
  for (const auto& peer : served) {
    EXPECT_TRUE(is_answered(*peer));
  }
}

TEST(OpenFiles, FewerOfThemMeanFewerConnections) {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  rlimit low = before;
  low.rlim_cur = 160;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  auto server = std::make_unique<TestServer>();
  ::setrlimit(RLIMIT_NOFILE, &before);
  Peers silent;
  for (int i = 0; i < 100; ++i) {
    silent.push_back(std::make_unique<Peer>(server->port()));
  }
  EXPECT_TRUE(a_fresh_client_is_answered(*server));
  EXPECT_LE(server->server.stats().open_connections, 32U);
  EXPECT_EQ(server->server.stats().rejected_no_descriptor, 0U);
}

// A handler that lowers its thread's priority lowers that of no later one.
TEST(LoweredThreads, AreReplaced) {
  ServerOptions options = testing::test_options();
  options.workers = 1;
  Server server(options, [](const Request& request) {
    const int priority = ::getpriority(PRIO_PROCESS, 0);
    if (request.path == "/lower") {
      ::setpriority(PRIO_PROCESS, 0, priority + 1);
    }
    return http::Response{200, "text/plain", std::to_string(priority)};
  });
  ASSERT_TRUE(server.start().ok());
  const std::string priority = std::to_string(::getpriority(PRIO_PROCESS, 0));
  Peer peer(server.port());
  for (int i = 0; i < 20; ++i) {
    const std::optional<Response> answer =
        peer.exchange("GET", i % 2 == 0 ? "/lower" : "/other", "text/plain", "");
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->body, priority) << i;
  }
  server.stop(0ms);
}

}  // namespace
}  // namespace plimsoll::http
