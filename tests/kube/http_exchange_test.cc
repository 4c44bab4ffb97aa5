// One request at a time; what the client makes of them is in http_client_test.cc.
#include "kube/http_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "tests/kube/scripted_server.h"

namespace plimsoll::kube {
namespace {

using plimsoll::testing::ScriptedServer;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Peer = ScriptedServer::Peer;
using Stage = HttpFailure::Stage;
using Read = HttpExchange::Read;

HttpExchange::Deadline soon_enough() {
  return steady_clock::now() + std::chrono::seconds(60);
}

Result<std::unique_ptr<HttpEndpoint>> make(const std::string& url) {
  ClientConfig config;
  config.server = "http://127.0.0.1";
  const std::shared_ptr<TlsMaterial> tls = *TlsMaterial::make(config);
  config.server = url;
  return HttpEndpoint::make(config, tls);
}

std::unique_ptr<HttpEndpoint> endpoint_of(const ScriptedServer& server) {
  Result<std::unique_ptr<HttpEndpoint>> endpoint = make(server.url());
  EXPECT_TRUE(endpoint) << to_string(endpoint.error());
  return std::move(*endpoint);
}

HttpRequest get(const std::string& target = "/readyz") {
  return {.method = "GET", .target = target, .token = {}, .content_type = {}, .body = {}};
}

// All that comes, up to its end.
Read read_all(HttpExchange& exchange, std::string& bytes) {
  Read last = Read::kData;
  while (last == Read::kData) {
    last = exchange.read(bytes, soon_enough());
  }
  return last;
}

TEST(HttpEndpoint, RefusesWhatItCannotDial) {
  for (const char* url :
       {"", "10.0.0.1:6443", "ftp://host", "https://", "https://host:port", "https://a b"}) {
    const Result<std::unique_ptr<HttpEndpoint>> endpoint = make(url);
    ASSERT_FALSE(endpoint) << url;
    EXPECT_EQ(endpoint.error().code, ErrorCode::kInvalid) << url;
  }
  EXPECT_EQ(make("https://[::1]:6443").error().code, ErrorCode::kUnsupported);
}

// A connection is kept once cpprestsdk has put it back, which may be a moment after the end of the body.
TEST(HttpEndpoint, KeepsAConnectionUntilItForgetsIt) {
  std::atomic<int> before = 0;
  ScriptedServer server([&](Peer& peer) {
    before = peer.exchange();
    peer.respond(200, "ok");
  });
  const auto endpoint = endpoint_of(server);
  const auto requests_before_on_its_connection = [&] {
    HttpExchange exchange(*endpoint, get());
    EXPECT_FALSE(exchange.wait_for_head(soon_enough()));
    std::string bytes;
    EXPECT_EQ(read_all(exchange, bytes), Read::kEnd);
    return before.load();
  };
  bool kept = false;
  for (int i = 0; i < 1'000 && !kept; ++i) {
    kept = requests_before_on_its_connection() > 0;
  }
  EXPECT_TRUE(kept);
  endpoint->forget_connections();
  EXPECT_EQ(requests_before_on_its_connection(), 0);
}

TEST(HttpExchange, SendsTheRequestAsGiven) {
  std::string seen;
  ScriptedServer server([&](Peer& peer) {
    seen = peer.target() + " " + peer.header("Authorization") + " " + peer.header("Content-Type") + " " +
           peer.request().body();
    peer.respond(200, "");
  });
  const auto endpoint = endpoint_of(server);
  HttpExchange post(*endpoint, {.method = "POST",
                                .target = "/a%2Fb?x=%20y",
                                .token = "t",
                                .content_type = "application/merge-patch+json",
                                .body = "{}"});
  ASSERT_FALSE(post.wait_for_head(soon_enough()));
  EXPECT_EQ(seen, "/a%2Fb?x=%20y Bearer t application/merge-patch+json {}");
  std::string bytes;
  ASSERT_EQ(read_all(post, bytes), Read::kEnd);
  HttpExchange plain(*endpoint, get());
  ASSERT_FALSE(plain.wait_for_head(soon_enough()));
  EXPECT_EQ(seen, "/readyz   ") << "no token, no Authorization";
}

TEST(HttpExchange, BringsStatusRetryAfterAndBody) {
  ScriptedServer server([](Peer& peer) { peer.respond(429, "too many", "Retry-After: 7\r\n"); });
  const auto endpoint = endpoint_of(server);
  HttpExchange exchange(*endpoint, get());
  ASSERT_FALSE(exchange.wait_for_head(soon_enough()));
  EXPECT_EQ(exchange.status(), 429);
  EXPECT_EQ(exchange.retry_after(), "7");
  std::string bytes = "before: ";
  EXPECT_EQ(read_all(exchange, bytes), Read::kEnd);
  EXPECT_EQ(bytes, "before: too many") << "appended";
}

TEST(HttpExchange, FollowsNoRedirect) {
  ScriptedServer server(
      [](Peer& peer) { peer.respond(302, "", "Location: http://127.0.0.1:1/elsewhere\r\n"); });
  const auto endpoint = endpoint_of(server);
  HttpExchange exchange(*endpoint, get());
  ASSERT_FALSE(exchange.wait_for_head(soon_enough()));
  EXPECT_EQ(exchange.status(), 302);
  EXPECT_EQ(server.requests().size(), 1U);
}

TEST(HttpExchange, NobodyListeningFailsWhileConnecting) {
  auto server = std::make_unique<ScriptedServer>([](Peer&) {});
  const auto endpoint = endpoint_of(*server);
  server.reset();
  HttpExchange exchange(*endpoint, get());
  const std::optional<HttpFailure> failure = exchange.wait_for_head(soon_enough());
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->stage, Stage::kConnecting);
  EXPECT_FALSE(failure->reason.empty());
}

TEST(HttpExchange, ACutIsAFailureAfterTheBytesThatCameBeforeIt) {
  ScriptedServer server([](Peer& peer) {
    peer.begin_chunked();
    peer.chunk("half");
    peer.close();
  });
  const auto endpoint = endpoint_of(server);
  HttpExchange exchange(*endpoint, get());
  ASSERT_FALSE(exchange.wait_for_head(soon_enough()));
  std::string bytes;
  EXPECT_EQ(read_all(exchange, bytes), Read::kFailed);
  EXPECT_EQ(bytes, "half");
  EXPECT_EQ(exchange.failure().stage, Stage::kReceiving);
}

TEST(HttpExchange, WaitsNoLongerThanItsDeadlineOrAStop) {
  ScriptedServer server([](Peer& peer) {
    if (peer.target() == "/silent-body") {
      peer.begin_chunked();
    }
    peer.wait_for_close(milliseconds(60'000));
  });
  const auto endpoint = endpoint_of(server);
  std::stop_source stop;
  stop.request_stop();
  HttpExchange silent(*endpoint, get("/silent"));
  EXPECT_EQ(silent.wait_for_head(steady_clock::now())->stage, Stage::kDeadline);
  EXPECT_EQ(silent.wait_for_head(soon_enough(), stop.get_token())->stage, Stage::kStopped);

  HttpExchange body(*endpoint, get("/silent-body"));
  ASSERT_FALSE(body.wait_for_head(soon_enough()));
  std::string bytes;
  EXPECT_EQ(body.read(bytes, steady_clock::now()), Read::kFailed);
  EXPECT_EQ(body.failure().stage, Stage::kDeadline);
  EXPECT_EQ(body.read(bytes, soon_enough(), stop.get_token()), Read::kFailed);
  EXPECT_EQ(body.failure().stage, Stage::kStopped);
}

TEST(HttpExchange, DroppingItClosesTheConnection) {
  std::promise<bool> closed;
  ScriptedServer server([&](Peer& peer) {
    peer.begin_chunked();
    closed.set_value(peer.wait_for_close(milliseconds(60'000)));
  });
  const auto endpoint = endpoint_of(server);
  {
    HttpExchange exchange(*endpoint, get());
    ASSERT_FALSE(exchange.wait_for_head(soon_enough()));
  }
  EXPECT_TRUE(closed.get_future().get());
}

}  // namespace
}  // namespace plimsoll::kube
