// Certificates and servers that change while requests come: none is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/log.h"
#include "http/server.h"
#include "tests/http/load.h"
#include "tests/http/peer.h"
#include "tests/http/test_certificates.h"
#include "tests/testing/eventually.h"
#include "tests/testing/patience.h"

namespace plimsoll::http {
namespace {

using namespace std::chrono_literals;
using testing::eventually;
using ::testing::Ge;
using testing::Load;
using testing::LoadResult;
using testing::Peer;

constexpr const char* kPath = "/work";
// In which a client is told, or connects. It passes by in full, so it is as long as a busy machine needs, and no longer.
constexpr std::chrono::seconds kLameDuck{2 * testing::kSlowdown};

std::string body(int number) {
  return std::string(static_cast<std::size_t>(1'000 + number % 512), 'x');
}

// Takes its time as an admission does.
http::Response work(const Request& request) {
  std::this_thread::sleep_for(2ms);
  return {200, "text/plain", request.body};
}

struct TestServer {
  explicit TestServer(ServerOptions options = testing::test_options())
      : server(std::move(options), work, certificate) {
    configure_log(LogLevel::kError, LogFormat::kText);
    EXPECT_TRUE(server.start().ok());
  }
  std::uint16_t port() const { return server.port(); }
  std::shared_ptr<testing::HeldCertificate> certificate = std::make_shared<testing::HeldCertificate>();
  Server server;
};

::testing::AssertionResult answers(const Load& load, std::uint64_t more) {
  return eventually(
      "requests are answered", [&] { return load.answered(); }, Ge(load.answered() + more));
}

TEST(UnderLoad, CertificatesAreSwappedWithoutALostRequest) {
  TestServer server;
  Load load({server.port()}, 8, kPath, body);
  for (int swap = 0; swap < 25; ++swap) {
    server.certificate->swap();
    ASSERT_TRUE(answers(load, 10));
  }
  const LoadResult result = load.finish();
  EXPECT_EQ(result.lost, 0U);
  EXPECT_GE(result.answered, 250U);
  EXPECT_EQ(result.closed, 0U);
}

// Two replicas, one of which goes: its clients are told, and find the other.
TEST(UnderLoad, AServerStopsWithoutALostRequest) {
  ServerOptions options = testing::test_options();
  options.idle_grace = options.drain_timeout = testing::kPatience;
  for (int round = 0; round < 3; ++round) {
    TestServer stays;
    auto goes = std::make_unique<TestServer>(options);
    Load load({goes->port(), stays.port()}, 16, kPath, body);
    ASSERT_TRUE(answers(load, 50));
    goes->server.stop(kLameDuck);
    EXPECT_EQ(goes->server.stats().open_connections, 0U);
    goes.reset();
    ASSERT_TRUE(answers(load, 50));
    const LoadResult result = load.finish();
    EXPECT_EQ(result.lost, 0U);
    EXPECT_EQ(result.closed, 16U);
  }
}

TEST(Stopping, TakesNewConnectionsWhileTheLameDuckLasts) {
  ServerOptions options = testing::test_options();
  options.idle_grace = options.drain_timeout = testing::kPatience;
  std::optional<testing::Response> answer;
  // A busy machine may need longer than one lame duck lasts.
  for (std::chrono::seconds lame_duck = 1s; !answer && lame_duck < testing::kPatience; lame_duck *= 2) {
    TestServer server(options);
    std::jthread stopping([&] { server.server.stop(lame_duck); });
    EXPECT_TRUE(eventually("the server drains", [&] { return server.server.draining(); }));
    Peer peer(server.port());
    if (peer.start_tls()) {
      answer = peer.exchange("POST", kPath, "text/plain", body(1));
    }
    stopping.join();
    EXPECT_FALSE(Peer(server.port()).connected());
  }
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->status, 200);
  EXPECT_FALSE(answer->keep_alive);
}

TEST(Stopping, ClosesIdleConnectionsAndCutsThoseThatHang) {
  ServerOptions options = testing::test_options();
  options.idle_grace = 50ms;
  options.drain_timeout = 200ms;
  TestServer server(options);
  Peer idle(server.port());
  ASSERT_TRUE(idle.start_tls());
  ASSERT_TRUE(idle.exchange("POST", kPath, "text/plain", body(1)).has_value());
  Peer silent(server.port());
  Peer half(server.port());
  ASSERT_TRUE(half.start_tls());
  half.write("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n12");
  ASSERT_TRUE(eventually(
      "all are accepted", [&] { return server.server.stats().open_connections.load(); }, 3U));
  server.server.stop(0ms);
  EXPECT_EQ(server.server.stats().open_connections, 0U);
  EXPECT_TRUE(idle.closes());
  EXPECT_TRUE(silent.closes());
  EXPECT_TRUE(half.closes());
  server.server.stop(0ms);  // again: nothing happens
}

TEST(Stopping, AnswersWhatIsUnderWay) {
  ServerOptions options = testing::test_options();
  options.drain_timeout = testing::kPatience;
  Server server(options, [](const Request& request) {
    EXPECT_TRUE(
        eventually("the server asks for its last answers", [&] { return request.stop.stop_requested(); }));
    return http::Response{200, "text/plain", "done"};
  });
  ASSERT_TRUE(server.start().ok());
  Peer peer(server.port());
  peer.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(eventually(
      "the request is at the handler", [&] { return server.stats().in_flight.load(); }, 1U));
  server.stop(0ms);
  const std::optional<testing::Response> answer = peer.read_response();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->body, "done");
}

}  // namespace
}  // namespace plimsoll::http
