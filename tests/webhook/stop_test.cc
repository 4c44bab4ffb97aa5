// Certificates and servers that change while requests come: none is lost.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/webhook/load.h"
#include "tests/webhook/peer.h"
#include "tests/webhook/samples.h"
#include "tests/webhook/test_server.h"

namespace plimsoll::webhook {
namespace {

using namespace std::chrono_literals;
using testing::Load;
using testing::LoadResult;
using testing::Peer;
using testing::TestServer;

std::string review(int number) {
  Json job = testing::sample_job("job-" + std::to_string(number));
  job["spec"]["training"]["batchSizePerTrainer"] = 256 + number % 512;
  return write_json(testing::sample_review(job));
}

void wait_for(const Load& load, std::uint64_t more) {
  const std::uint64_t goal = load.answered() + more;
  const auto limit = std::chrono::steady_clock::now() + 60s;
  while (load.answered() < goal && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(1ms);
  }
}

TEST(UnderLoad, CertificatesAreSwappedWithoutALostRequest) {
  TestServer server;
  Load load({server.port()}, 8, kMutatePath, review);
  for (int swap = 0; swap < 25; ++swap) {
    server.certificate().swap();
    wait_for(load, 10);
  }
  const LoadResult result = load.finish();
  EXPECT_EQ(result.lost, 0U);
  EXPECT_GE(result.answered, 250U);
  EXPECT_EQ(result.closed, 0U);
}

// Two replicas, one of which goes: its clients are told, and find the other.
TEST(UnderLoad, AServerStopsWithoutALostRequest) {
  for (int round = 0; round < 3; ++round) {
    TestServer stays;
    auto goes = std::make_unique<TestServer>();
    Load load({goes->port(), stays.port()}, 16, kMutatePath, review);
    wait_for(load, 50);
    goes->server().stop(500ms);
    EXPECT_EQ(goes->server().stats().open_connections, 0U);
    goes.reset();
    wait_for(load, 50);
    const LoadResult result = load.finish();
    EXPECT_EQ(result.lost, 0U);
    EXPECT_EQ(result.closed, 16U);
  }
}

TEST(Stopping, TakesNewConnectionsWhileTheLameDuckLasts) {
  TestServer server;
  std::thread stopping([&] { server.server().stop(1s); });
  while (!server.server().draining()) {
    std::this_thread::sleep_for(1ms);
  }
  Peer peer(server.port());
  ASSERT_TRUE(peer.start_tls());
  const std::optional<testing::Response> answer =
      peer.exchange("POST", kMutatePath, "application/json", review(1));
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->status, 200);
  EXPECT_FALSE(answer->keep_alive);
  stopping.join();
  EXPECT_FALSE(Peer(server.port()).connected());
}

TEST(Stopping, ClosesIdleConnectionsAndCutsThoseThatHang) {
  HttpServerOptions options = testing::test_options();
  options.idle_grace = 50ms;
  options.drain_timeout = 200ms;
  TestServer server(options);
  Peer idle(server.port());
  ASSERT_TRUE(idle.start_tls());
  ASSERT_TRUE(idle.exchange("POST", kMutatePath, "application/json", review(1)).has_value());
  Peer silent(server.port());
  Peer half(server.port());
  ASSERT_TRUE(half.start_tls());
  half.write("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n12");
  while (server.server().stats().open_connections < 3) {
    std::this_thread::sleep_for(1ms);
  }
  server.server().stop(0ms);
  EXPECT_EQ(server.server().stats().open_connections, 0U);
  EXPECT_TRUE(idle.closed_within(5));
  EXPECT_TRUE(silent.closed_within(5));
  EXPECT_TRUE(half.closed_within(5));
  server.server().stop(0ms);  // again: nothing happens
}

TEST(Stopping, AnswersWhatIsUnderWay) {
  HttpServer server(testing::test_options(), [](const HttpRequest&) {
    std::this_thread::sleep_for(300ms);
    return HttpResponse{200, "text/plain", "done"};
  });
  ASSERT_TRUE(server.start().ok());
  Peer peer(server.port());
  peer.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  while (server.stats().in_flight == 0) {
    std::this_thread::sleep_for(1ms);
  }
  server.stop(0ms);
  const std::optional<testing::Response> answer = peer.read_response();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->body, "done");
}

}  // namespace
}  // namespace plimsoll::webhook
