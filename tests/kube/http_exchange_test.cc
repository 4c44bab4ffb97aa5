// One request at a time; what the client makes of them is in http_client_test.cc.
#include "kube/http_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <iostream>
#include <iterator>

#include "kube/transport.h"
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

// The transport thread does nothing until it is let go.
class HeldTransport {
 public:
  HeldTransport() {
    const auto held = std::make_shared<std::promise<void>>();
    run_on_transport([held, go = go_.get_future().share()] {
      held->set_value();
      go.wait();
    });
    held->get_future().wait();
  }
  void let_go() { go_.set_value(); }

 private:
  std::promise<void> go_;
};

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

TEST(HttpEndpoint, ItsDestructionWaitsForAnExchangeThatWasGivenUp) {
  ScriptedServer server([](Peer& peer) { peer.wait_for_close(milliseconds(60'000)); });
  auto endpoint = endpoint_of(server);
  auto exchange = std::make_unique<HttpExchange>(*endpoint, get());
  EXPECT_EQ(exchange->wait_for_head(steady_clock::now())->stage, Stage::kDeadline);
  HeldTransport transport;
  exchange.reset();
  std::atomic<bool> is_free = false;
  run_on_transport([&] { is_free = true; });
  std::promise<void> begun;
  std::future<bool> was_free = std::async(std::launch::async, [&] {
    begun.set_value();
    endpoint.reset();
    return is_free.load();
  });
  begun.get_future().wait();
  transport.let_go();
  EXPECT_TRUE(was_free.get());
}

TEST(HttpEndpoint, AllItsConnectionsAreClosedWhenItIsGone) {
  std::promise<void> both_arrived;
  std::promise<void> over;
  std::atomic<int> silent = 0;
  ScriptedServer server([&, is_over = over.get_future().share()](Peer& peer) {
    if (peer.target() == "/kept") {
      peer.respond(200, "ok");
      return;
    }
    if (++silent == 2) {
      both_arrived.set_value();
    }
    is_over.wait();
  });
  const auto keep_one = [](HttpEndpoint& endpoint) {
    HttpExchange exchange(endpoint, get("/kept"));
    EXPECT_FALSE(exchange.wait_for_head(soon_enough()));
    std::string bytes;
    EXPECT_EQ(read_all(exchange, bytes), Read::kEnd);
  };
  // The server keeps its end of each connection.
  const auto clients_descriptors = [&] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}) - server.connections();
  };
  auto endpoint = endpoint_of(server);
  keep_one(*endpoint);  // opens what the transport thread needs
  endpoint.reset();
  const auto before = clients_descriptors();
  endpoint = endpoint_of(server);
  keep_one(*endpoint);
  endpoint->forget_connections();
  {
    HttpExchange first(*endpoint, get("/silent"));
    HttpExchange second(*endpoint, get("/silent"));
    both_arrived.get_future().wait();
    keep_one(*endpoint);
  }
  endpoint.reset();
  EXPECT_EQ(clients_descriptors(), before);
  over.set_value();
}

TEST(HttpEndpoint, AnExchangeThatOutlivesItEndsAsUsual) {
  std::promise<void> is_gone;
  ScriptedServer server([&](Peer& peer) {
    peer.begin_chunked();
    is_gone.get_future().wait();
    peer.chunk("all");
    peer.end_chunked();
  });
  auto endpoint = endpoint_of(server);
  HttpExchange exchange(*endpoint, get());
  ASSERT_FALSE(exchange.wait_for_head(soon_enough()));
  endpoint.reset();  // after two seconds
  is_gone.set_value();
  std::string bytes;
  EXPECT_EQ(read_all(exchange, bytes), Read::kEnd);
  EXPECT_EQ(bytes, "all");
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

TEST(HttpExchange, GivenUpBeforeItsRequestWasSentItSendsNone) {
  ScriptedServer server([](Peer& peer) { peer.respond(200, "ok"); });
  auto endpoint = endpoint_of(server);
  {
    HeldTransport transport;
    for (int i = 0; i < 10; ++i) {
      HttpExchange exchange(*endpoint, get("/given-up"));
    }
    transport.let_go();
  }
  HttpExchange exchange(*endpoint, get("/wanted"));
  ASSERT_FALSE(exchange.wait_for_head(soon_enough()));
  EXPECT_THAT(server.requests(), ::testing::ElementsAre("GET /wanted"));
  EXPECT_EQ(server.connections(), 1);
}

TEST(HttpExchange, ItsCallerWaitsAndGivesUpWhileTheTransportIsBusy) {
  ScriptedServer server([](Peer& peer) { peer.respond(200, "ok"); });
  const auto endpoint = endpoint_of(server);
  HeldTransport transport;
  std::stop_source stop;
  stop.request_stop();
  auto exchange = std::make_unique<HttpExchange>(*endpoint, get());
  EXPECT_EQ(exchange->wait_for_head(steady_clock::now())->stage, Stage::kDeadline);
  EXPECT_EQ(exchange->wait_for_head(soon_enough(), stop.get_token())->stage, Stage::kStopped);
  exchange.reset();
  endpoint->forget_connections();
  transport.let_go();
}

// The cancellation waits for the transport thread when the last bytes of the response do, too.
TEST(HttpExchange, GivenUpWhileItsEndArrivesTheNextOneIsUnharmed) {
  std::promise<void> answer;
  std::promise<void> answered;
  ScriptedServer server([&](Peer& peer) {
    if (peer.target() == "/given-up") {
      peer.begin_chunked();
      answer.get_future().wait();
      peer.chunk("late");
      peer.end_chunked();
      answered.set_value();
      return;
    }
    peer.respond(200, "ok");
  });
  const auto endpoint = endpoint_of(server);
  {
    HttpExchange exchange(*endpoint, get("/given-up"));
    ASSERT_FALSE(exchange.wait_for_head(soon_enough()));
    HeldTransport transport;
    answer.set_value();
    answered.get_future().wait();
    transport.let_go();
  }
  HttpExchange exchange(*endpoint, get("/wanted"));
  ASSERT_FALSE(exchange.wait_for_head(soon_enough()));
  std::string bytes;
  EXPECT_EQ(read_all(exchange, bytes), Read::kEnd);
  EXPECT_EQ(bytes, "ok");
}

TEST(HttpExchange, GivenUpWhileItHoldsTheServerBackItClosesTheConnection) {
  std::promise<bool> all_written;
  ScriptedServer server([&](Peer& peer) {
    peer.begin_chunked();
    const std::string piece(1 << 20, 'x');
    bool written = true;
    for (int i = 0; i < 256 && written; ++i) {
      written = peer.chunk(piece);
    }
    all_written.set_value(written);
  });
  const auto endpoint = endpoint_of(server);
  {
    HttpExchange exchange(*endpoint, get());
    ASSERT_FALSE(exchange.wait_for_head(soon_enough()));
    std::string bytes;
    while (bytes.size() < (4U << 20)) {  // held back and let go on, again and again
      ASSERT_EQ(exchange.read(bytes, soon_enough()), Read::kData);
    }
  }
  EXPECT_FALSE(all_written.get_future().get());
}

// Nothing is destroyed but what is static, as by a signal handler or another thread that calls exit. What the exchanges hold then is no
// leak: AddressSanitizer is told so, in the process that exits.
TEST(HttpExchangeDeathTest, TheProcessMayExitDuringExchanges) {
  const char* const options = std::getenv("ASAN_OPTIONS");
  const std::string before = options == nullptr ? "" : options;
  ::setenv("ASAN_OPTIONS", (before + ":detect_leaks=0").c_str(), 1);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto check = [] {
    static const auto* const server = new ScriptedServer([](Peer& peer) {
      if (peer.target() == "/body") {
        peer.begin_chunked();
        peer.chunk(std::string(1 << 20, 'x'));
      }
      peer.wait_for_close(milliseconds(60'000));
    });
    static auto* const endpoint = endpoint_of(*server).release();
    static auto* const body = new HttpExchange(*endpoint, get("/body"));
    static const auto* const silent = new HttpExchange(*endpoint, get("/silent"));
    const bool arrived = !body->wait_for_head(soon_enough());
    HttpExchange given_up(*endpoint, get("/given-up"));
    std::cerr << (arrived && silent != nullptr ? "exits" : "no head") << std::endl;
    std::exit(0);
  };
  EXPECT_EXIT(check(), ::testing::ExitedWithCode(0), "^exits");
  ::setenv("ASAN_OPTIONS", before.c_str(), 1);
}

}  // namespace
}  // namespace plimsoll::kube
