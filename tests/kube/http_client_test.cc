#include "kube/http_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "tests/kube/scripted_server.h"
#include "tests/testing/eventually.h"
#include "tests/testing/patience.h"

namespace plimsoll::kube {
namespace {

using plimsoll::testing::eventually;
using plimsoll::testing::kPatience;
using plimsoll::testing::ScriptedServer;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::Contains;
using ::testing::Ge;
using ::testing::HasSubstr;
using Peer = ScriptedServer::Peer;

const Resource kMaps{"", "v1", "configmaps", true};
constexpr const char* kMap = R"({"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}})";

std::unique_ptr<Client> client_of(const ScriptedServer& server, const std::string& token = "secret") {
  ClientConfig config;
  config.server = server.url();
  config.token = token;
  Result<std::unique_ptr<Client>> client = connect(config);
  EXPECT_TRUE(client) << to_string(client.error());
  return std::move(*client);
}

CallOptions within(milliseconds timeout) {
  CallOptions options;
  options.timeout = timeout;
  return options;
}

double seconds_since(steady_clock::time_point began) {
  return std::chrono::duration<double>(steady_clock::now() - began).count();
}

std::string status_body(int code, const std::string& reason) {
  return R"({"kind":"Status","apiVersion":"v1","status":"Failure","message":"the message","reason":")" +
         reason + R"(","code":)" + std::to_string(code) + "}";
}

TEST(HttpClient, SendsTheTokenAndAsksForJson) {
  std::string authorization;
  std::string accept;
  std::string agent;
  ScriptedServer server([&](Peer& peer) {
    authorization = peer.header("Authorization");
    accept = peer.header("Accept");
    agent = peer.header("User-Agent");
    peer.respond(200, kMap);
  });
  Result<Json> got = client_of(server)->get(kMaps, "ns", "a");
  ASSERT_TRUE(got) << to_string(got.error());
  EXPECT_EQ(authorization, "Bearer secret");
  EXPECT_EQ(accept, "application/json");
  EXPECT_THAT(agent, ::testing::StartsWith("plimsoll/"));
  EXPECT_THAT(server.requests(), ::testing::ElementsAre("GET /api/v1/namespaces/ns/configmaps/a"));
}

TEST(HttpClient, SendsEachVerbAsTheApiWantsIt) {
  std::vector<std::string> seen;
  ScriptedServer server([&](Peer& peer) {
    seen.push_back(peer.header("Content-Type") + " " + peer.request().body());
    peer.respond(200, kMap);
  });
  const auto client = client_of(server);
  const Json object = *parse_json(kMap);
  CallOptions dry;
  dry.dry_run = true;
  ASSERT_TRUE(client->create(kMaps, "ns", object));
  ASSERT_TRUE(client->update(kMaps, "ns", object, "status", dry));
  ASSERT_TRUE(client->patch(kMaps, "ns", "a", PatchType::kApply, object));
  ASSERT_TRUE(client->patch(kMaps, "ns", "a", PatchType::kJson, *parse_json("[]")));
  ASSERT_TRUE(client->patch(kMaps, "ns", "a", PatchType::kMerge, *parse_json("{}"), "status"));
  ASSERT_TRUE(client->patch(kMaps, "ns", "a", PatchType::kStrategicMerge, *parse_json("{}")));
  ASSERT_TRUE(client->remove(kMaps, "ns", "a", dry));
  const std::string path = "/api/v1/namespaces/ns/configmaps";
  EXPECT_THAT(server.requests(),
              ::testing::ElementsAre("POST " + path + "?fieldManager=plimsoll",
                                     "PUT " + path + "/a/status?fieldManager=plimsoll&dryRun=All",
                                     "PATCH " + path + "/a?fieldManager=plimsoll&force=true",
                                     "PATCH " + path + "/a?fieldManager=plimsoll",
                                     "PATCH " + path + "/a/status?fieldManager=plimsoll",
                                     "PATCH " + path + "/a?fieldManager=plimsoll", "DELETE " + path + "/a"));
  ASSERT_EQ(seen.size(), 7U);
  EXPECT_EQ(seen[0], "application/json " + write_json(object));
  EXPECT_THAT(seen[2], ::testing::StartsWith("application/apply-patch+yaml {"));
  EXPECT_EQ(seen[3], "application/json-patch+json []");
  EXPECT_EQ(seen[4], "application/merge-patch+json {}");
  EXPECT_EQ(seen[5], "application/strategic-merge-patch+json {}");
}

TEST(HttpClient, RefusesWrongUseWithoutAskingTheServer) {
  ScriptedServer server([](Peer& peer) { peer.respond(200, kMap); });
  const auto client = client_of(server);
  const Json nameless = *parse_json(R"({"metadata":{"generateName":"x-"}})");
  EXPECT_EQ(client->get(kMaps, "ns", "").error().code, ErrorCode::kInvalid);
  EXPECT_EQ(client->remove(kMaps, "ns", "").error().code, ErrorCode::kInvalid);
  EXPECT_EQ(client->patch(kMaps, "ns", "", PatchType::kMerge, Json()).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(client->update(kMaps, "ns", nameless).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(client->create(kMaps, "ns", nameless).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(client->get_raw("healthz").error().code, ErrorCode::kInvalid);
  EXPECT_TRUE(server.requests().empty());
}

TEST(HttpClient, RefusesServersThatItCannotDial) {
  for (const char* server :
       {"", "nonsense", "ftp://h", "https://", "https://[::1]:6443", "https://h:port", "http:///x"}) {
    ClientConfig config;
    config.server = server;
    EXPECT_FALSE(connect(config)) << server;
  }
}

TEST(HttpClient, MapsAnErrorsReason) {
  ScriptedServer server([](Peer& peer) {
    peer.respond(409,
                 status_body(409, peer.request().method_string() == "POST" ? "AlreadyExists" : "Conflict"));
  });
  const auto client = client_of(server);
  EXPECT_EQ(client->create(kMaps, "ns", *parse_json(kMap)).error().code, ErrorCode::kAlreadyExists);
  const Result<Json> updated = client->update(kMaps, "ns", *parse_json(kMap));
  EXPECT_EQ(updated.error().code, ErrorCode::kConflict);
  EXPECT_EQ(updated.error().message, "the message");
}

TEST(HttpClient, NobodyListeningIsToldAtOnce) {
  unsigned short port = 0;
  {
    port = ScriptedServer([](Peer&) {}).port();
  }
  ClientConfig config;
  config.server = "http://127.0.0.1:" + std::to_string(port);
  const auto client = std::move(*connect(config));
  const auto began = steady_clock::now();
  const Result<Json> got = client->get(kMaps, "ns", "a", within(2 * kPatience));
  EXPECT_EQ(got.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(got.error().message, ::testing::HasSubstr(config.server));
  EXPECT_LT(seconds_since(began), kPatience.count());
}

TEST(HttpClient, AResetBeforeTheAnswerIsRepeatedWhereThatDoesNoHarm) {
  std::atomic<int> calls = 0;
  ScriptedServer server([&](Peer& peer) {
    if (++calls % 2 == 1) {
      peer.reset();
    } else {
      peer.respond(200, kMap);
    }
  });
  const auto client = client_of(server);
  EXPECT_TRUE(client->get(kMaps, "ns", "a"));
  EXPECT_TRUE(client->update(kMaps, "ns", *parse_json(kMap)));
  EXPECT_TRUE(client->patch(kMaps, "ns", "a", PatchType::kApply, *parse_json(kMap)));
  EXPECT_TRUE(client->remove(kMaps, "ns", "a"));
  EXPECT_EQ(calls, 8);
}

TEST(HttpClient, AResetOnAFreshConnectionSurfacesForACreate) {
  std::atomic<int> calls = 0;
  ScriptedServer server([&](Peer& peer) {
    ++calls;
    peer.reset();
  });
  EXPECT_EQ(client_of(server)->create(kMaps, "ns", *parse_json(kMap)).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(client_of(server)->patch(kMaps, "ns", "a", PatchType::kJson, *parse_json("[]")).error().code,
            ErrorCode::kUnavailable);
  EXPECT_EQ(calls, 2);
}

TEST(HttpClient, ADeleteThatWasRepeatedAndFindsNothingIsDone) {
  std::atomic<int> calls = 0;
  ScriptedServer server([&](Peer& peer) {
    if (++calls == 1) {
      peer.reset();
    } else {
      peer.respond(404, status_body(404, "NotFound"));
    }
  });
  EXPECT_TRUE(client_of(server)->remove(kMaps, "ns", "a"));
  EXPECT_EQ(client_of(server)->remove(kMaps, "ns", "a").error().code, ErrorCode::kNotFound);
}

TEST(HttpClient, ADeleteSaysWhatBecomesOfTheDependentsAndOfWhichObject) {
  std::vector<std::string> bodies;
  ScriptedServer server([&](Peer& peer) {
    bodies.push_back(peer.request().body());
    peer.respond(200, status_body(200, "Success"));
  });
  const auto client = client_of(server);
  EXPECT_TRUE(client->remove(kMaps, "ns", "a"));
  CallOptions options;
  options.uid = "u-1";
  options.propagation = Propagation::kForeground;
  options.dry_run = true;
  EXPECT_TRUE(client->remove(kMaps, "ns", "a", options));
  EXPECT_THAT(
      bodies,
      ::testing::ElementsAre(
          R"({"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Background"})",
          R"({"apiVersion":"v1","dryRun":["All"],"kind":"DeleteOptions","preconditions":{"uid":"u-1"},)"
          R"("propagationPolicy":"Foreground"})"));
}

TEST(HttpClient, AnAnswerCutInItsBodyIsNeverTakenForWhole) {
  std::atomic<int> calls = 0;
  ScriptedServer server([&](Peer& peer) {
    ++calls;
    if (peer.target().find("chunked") != std::string::npos) {
      peer.begin_chunked();
      peer.write("40\r\n{\"kind\":");
    } else {
      peer.write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"kind\":");
    }
    peer.close();
  });
  const auto client = client_of(server);
  EXPECT_EQ(client->get(kMaps, "ns", "plain").error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(client->get(kMaps, "ns", "chunked").error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(calls, 4);
}

TEST(HttpClient, WaitsAsLongAsRetryAfterAsks) {
  std::atomic<int> calls = 0;
  ScriptedServer server([&](Peer& peer) {
    if (++calls == 1) {
      peer.respond(429, status_body(429, "TooManyRequests"), "Retry-After: 1\r\n");
    } else {
      peer.respond(200, kMap);
    }
  });
  const auto began = steady_clock::now();
  EXPECT_TRUE(client_of(server)->create(kMaps, "ns", *parse_json(kMap)));
  EXPECT_GE(seconds_since(began), 1.0);
  EXPECT_EQ(calls, 2);
}

TEST(HttpClient, GivesUpAtOnceWhenRetryAfterPassesTheDeadline) {
  ScriptedServer server([](Peer& peer) { peer.respond(429, "slow down", "Retry-After: 100\r\n"); });
  const auto began = steady_clock::now();
  const Result<Json> got = client_of(server)->get(kMaps, "ns", "a", within(std::chrono::seconds(90)));
  EXPECT_EQ(got.error().code, ErrorCode::kTooManyRequests);
  EXPECT_EQ(got.error().retry_after, std::chrono::seconds(100));
  EXPECT_LT(seconds_since(began), 60);
  EXPECT_EQ(server.requests().size(), 1U);
}

TEST(HttpClient, RepeatsServerErrorsAFewTimesButNotForACreate) {
  ScriptedServer server([](Peer& peer) { peer.respond(500, status_body(500, "InternalError")); });
  const auto client = client_of(server);
  EXPECT_EQ(client->get(kMaps, "ns", "a").error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(server.requests().size(), 4U);
  EXPECT_EQ(client->create(kMaps, "ns", *parse_json(kMap)).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(server.requests().size(), 5U);
}

TEST(HttpClient, RepeatsACreateThatTheServerAskedToRepeat) {
  std::atomic<int> calls = 0;
  ScriptedServer server([&](Peer& peer) {
    if (++calls == 1) {
      peer.respond(503, "starting", "Retry-After: 0\r\n");
    } else {
      peer.respond(201, kMap);
    }
  });
  EXPECT_TRUE(client_of(server)->create(kMaps, "ns", *parse_json(kMap)));
}

TEST(HttpClient, ClientErrorsAreNotRepeated) {
  ScriptedServer server([](Peer& peer) { peer.respond(403, status_body(403, "Forbidden")); });
  EXPECT_EQ(client_of(server)->get(kMaps, "ns", "a").error().code, ErrorCode::kForbidden);
  EXPECT_EQ(server.requests().size(), 1U);
}

// Writes down what it sees.
class Record final : public ClientObserver {
 public:
  void requested(std::string_view method, int status) override {
    const std::scoped_lock lock(mutex_);
    requests_.push_back(std::string(method) + " " + std::to_string(status));
  }
  void took(std::string_view method, std::chrono::nanoseconds time) override {
    const std::scoped_lock lock(mutex_);
    EXPECT_GT(time.count(), 0);
    timed_.push_back(std::string(method));
  }
  std::vector<std::string> requests() const {
    const std::scoped_lock lock(mutex_);
    return requests_;
  }
  std::vector<std::string> timed() const {
    const std::scoped_lock lock(mutex_);
    return timed_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> requests_;
  std::vector<std::string> timed_;
};

TEST(HttpClient, AnObserverSeesEachTryAndTheWatchesWithoutTheirTime) {
  std::atomic<int> calls = 0;
  ScriptedServer server([&](Peer& peer) {
    if (peer.target().find("watch=true") != std::string::npos) {
      peer.respond(200, "");
    } else if (++calls == 1) {
      peer.respond(503, "starting", "Retry-After: 0\r\n");
    } else if (calls == 2) {
      peer.respond(201, kMap);
    } else {
      peer.reset();
    }
  });
  Record record;
  ClientConfig config;
  config.server = server.url();
  const auto client = std::move(*connect(config, &record));
  EXPECT_TRUE(client->create(kMaps, "ns", *parse_json(kMap)));
  EXPECT_TRUE(client->watch(kMaps, "ns", {}, [](const WatchEvent&) {}, {}));
  EXPECT_FALSE(client->get(kMaps, "ns", "a"));
  EXPECT_THAT(record.requests(), ::testing::ElementsAre("POST 503", "POST 201", "GET 200", "GET 0", "GET 0"));
  EXPECT_THAT(record.timed(), ::testing::ElementsAre("POST", "POST", "GET", "GET"));
}

TEST(HttpClient, AnObserverSeesThatAWatchWasNotAnswered) {
  ScriptedServer server([](Peer& peer) { peer.respond(403, status_body(403, "Forbidden")); });
  Record record;
  ClientConfig config;
  config.server = server.url();
  const auto client = std::move(*connect(config, &record));
  EXPECT_FALSE(client->watch(kMaps, "ns", {}, [](const WatchEvent&) {}, {}));
  EXPECT_THAT(record.requests(), ::testing::ElementsAre("GET 403"));
  EXPECT_TRUE(record.timed().empty());
}

TEST(HttpClient, ARedirectIsNotFollowedAndNoTokenLeaks) {
  ScriptedServer elsewhere([](Peer& peer) { peer.respond(200, kMap); });
  ScriptedServer server([&](Peer& peer) {
    peer.respond(peer.target().find("moved") != std::string::npos ? 307 : 302, "",
                 "Location: " + elsewhere.url() + "/steal\r\n");
  });
  const auto client = client_of(server);
  for (const char* name : {"a", "moved"}) {
    const Result<Json> got = client->get(kMaps, "ns", name);
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, ErrorCode::kInternal);
    EXPECT_THAT(got.error().message, ::testing::HasSubstr("redirect"));
  }
  EXPECT_FALSE(client->create(kMaps, "ns", *parse_json(kMap)));
  EXPECT_FALSE(client->watch(kMaps, "ns", {}, [](const WatchEvent&) {}, {}));
  EXPECT_EQ(elsewhere.connections(), 0);
}

// The server closes kept-alive connections right after each answer, without saying so.
TEST(HttpClient, ConnectionsThatTheServerClosedWhileIdleCostNoCall) {
  ScriptedServer server([](Peer& peer) {
    peer.respond(201, kMap);
    peer.close();
  });
  const auto client = client_of(server);
  for (int i = 0; i < 20; ++i) {
    const Result<Json> made = client->create(kMaps, "ns", *parse_json(kMap));
    EXPECT_TRUE(made) << i << ": " << to_string(made.error());
    std::this_thread::sleep_for(milliseconds(i % 4 == 0 ? 0 : 20));
  }
  EXPECT_EQ(server.requests().size(), 20U);
}

TEST(HttpClient, ManyStaleConnectionsAtOnceCostNoCallEither) {
  constexpr int kCalls = 12;
  std::atomic<bool> closing = false;
  std::atomic<int> arrived = 0;
  std::atomic<int> awaited = 0;
  std::atomic<int> resets = 0;
  ScriptedServer server([&](Peer& peer) {
    const bool resets_it = closing;
    // None is answered before all of a burst are there, so that each has a connection of its own.
    ++arrived;
    EXPECT_TRUE(eventually(
        "all calls of the burst", [&] { return arrived.load(); }, Ge(awaited.load())));
    peer.respond(200, kMap);
    if (resets_it) {
      peer.reset();
      ++resets;
    }
  });
  const auto client = client_of(server);
  const auto burst = [&] {
    awaited += kCalls;
    std::vector<std::thread> threads;
    for (int i = 0; i < kCalls; ++i) {
      threads.emplace_back([&] {
        const Result<Json> made = client->create(kMaps, "ns", *parse_json(kMap));
        EXPECT_TRUE(made) << to_string(made.error());
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  };
  burst();
  closing = true;
  burst();
  closing = false;
  EXPECT_TRUE(eventually(
      "all connections are stale", [&] { return resets.load(); }, kCalls));
  const Result<Json> made = client->create(kMaps, "ns", *parse_json(kMap));
  EXPECT_TRUE(made) << to_string(made.error());
}

// The server's machine is gone, and its connections do not know: only those that are dialled anew get
// through.
TEST(HttpClient, HalfOpenConnectionsCostOneCall) {
  constexpr int kCalls = 8;
  std::atomic<bool> gone = false;
  std::atomic<int> arrived = 0;
  ScriptedServer server([&](Peer& peer) {
    if (gone && peer.exchange() > 0) {
      peer.wait_for_close(2 * kPatience);
      return;
    }
    // None is answered before all are there, so that each has a connection of its own.
    ++arrived;
    EXPECT_TRUE(eventually(
        "all calls", [&] { return arrived.load(); }, Ge(kCalls)));
    peer.respond(200, kMap);
  });
  const auto client = client_of(server);
  std::vector<std::thread> threads;
  for (int i = 0; i < kCalls; ++i) {
    threads.emplace_back([&] { EXPECT_TRUE(client->get(kMaps, "ns", "a")); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  gone = true;
  EXPECT_EQ(client->get(kMaps, "ns", "a", within(milliseconds(500))).error().code, ErrorCode::kTimeout);
  const Result<Json> got = client->get(kMaps, "ns", "a");
  EXPECT_TRUE(got) << to_string(got.error());
}

TEST(HttpClient, KeepsConnectionsBetweenCalls) {
  ScriptedServer server([](Peer& peer) { peer.respond(200, kMap); });
  const auto client = client_of(server);
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(client->get(kMaps, "ns", "a"));
  }
  // The connection returns to the pool a moment after its answer is complete.
  EXPECT_LE(server.connections(), 3);
}

TEST(HttpClient, TheDeadlineHoldsAgainstSilenceAndAgainstDribble) {
  ScriptedServer server([](Peer& peer) {
    if (peer.target().find("dribble") != std::string::npos) {
      peer.write("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
      while (peer.write(" ") && !peer.wait_for_close(milliseconds(20))) {
      }
    } else {
      peer.wait_for_close(2 * kPatience);
    }
  });
  const auto client = client_of(server);
  for (const char* name : {"silence", "dribble"}) {
    const auto began = steady_clock::now();
    const Result<Json> got = client->get(kMaps, "ns", name, within(milliseconds(400)));
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, ErrorCode::kTimeout) << name;
    EXPECT_GE(seconds_since(began), 0.4);
  }
}

TEST(HttpClient, AStopEndsACallThatWaitsForAnAnswerOrForTheNextTry) {
  ScriptedServer server([](Peer& peer) {
    if (peer.target().find("busy") != std::string::npos) {
      peer.respond(429, "slow down", "Retry-After: 25\r\n");
    } else {
      peer.wait_for_close(2 * kPatience);
    }
  });
  const auto client = client_of(server);
  for (const char* name : {"silence", "busy"}) {
    std::stop_source stop;
    std::thread later([&] {
      EXPECT_TRUE(eventually(
          "the request", [&] { return server.requests(); }, Contains(HasSubstr(name))));
      stop.request_stop();
    });
    CallOptions options = within(kPatience);
    options.stop = stop.get_token();
    const Result<Json> got = client->get(kMaps, "ns", name, options);
    later.join();
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, ErrorCode::kCancelled) << name;
  }
}

TEST(HttpClient, AnAnswerTooLargeIsRefusedBeforeItFillsTheMemory) {
  std::atomic<std::size_t> written = 0;
  ScriptedServer server([&](Peer& peer) {
    peer.begin_chunked();
    const std::string piece(1 << 20, 'x');
    for (int i = 0; i < 200 && peer.chunk(piece); ++i) {
      written += piece.size();
    }
  });
  const Result<Json> got = client_of(server)->get(kMaps, "ns", "a", within(kPatience));
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, ErrorCode::kTooLarge);
  EXPECT_LT(written, 100U << 20);
}

TEST(HttpClient, WhatIsNoJsonObjectIsAnError) {
  for (const char* body : {"", "hello", "[]", "5", "{\"a\":1", "\xff\xfe"}) {
    ScriptedServer server([&](Peer& peer) { peer.respond(200, body); });
    const Result<Json> got = client_of(server)->get(kMaps, "ns", "a");
    ASSERT_FALSE(got) << body;
    EXPECT_EQ(got.error().code, ErrorCode::kInternal);
  }
}

TEST(HttpClient, NonsenseInPlaceOfHttpIsAnError) {
  for (const char* bytes : {"SSH-2.0-OpenSSH_9\r\n\r\n", "\r\n\r\n", "HTTP/1.1\r\n\r\n",
                            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nxx\r\n",
                            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\nxx\r\n"}) {
    ScriptedServer server([&](Peer& peer) {
      peer.write(bytes);
      peer.close();
    });
    EXPECT_FALSE(client_of(server)->get(kMaps, "ns", "a", within(milliseconds(5'000)))) << bytes;
  }
}

TEST(HttpClient, ARefusedTokenIsReadAgainOnce) {
  std::string name = (std::filesystem::temp_directory_path() / "http_client_test_XXXXXX").string();
  const std::string directory = ::mkdtemp(name.data());
  std::ofstream(directory + "/token") << "old";
  std::string accepted = "old";
  ScriptedServer server([&](Peer& peer) {
    const bool good = peer.header("Authorization") == "Bearer " + accepted;
    peer.respond(good ? 200 : 401, good ? kMap : status_body(401, "Unauthorized"));
  });
  ClientConfig config;
  config.server = server.url();
  config.token_file = directory + "/token";
  const auto client = std::move(*connect(config));
  EXPECT_TRUE(client->get(kMaps, "ns", "a"));
  std::ofstream(directory + "/token", std::ios::trunc) << "new";
  accepted = "new";
  EXPECT_TRUE(client->get(kMaps, "ns", "a"));
  accepted = "another";
  EXPECT_EQ(client->get(kMaps, "ns", "a").error().code, ErrorCode::kUnauthorized);
  EXPECT_EQ(server.requests().size(), 5U);
  std::filesystem::remove_all(directory);
}

TEST(HttpClientList, FollowsPagesAndNamesTheItems) {
  ScriptedServer server([](Peer& peer) {
    const bool first = peer.target().find("continue") == std::string::npos;
    peer.respond(200,
                 first ? R"({"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7",)"
                         R"("continue":"a b&c","remainingItemCount":1},"items":[{"metadata":{"name":"a"}}]})"
                       : R"({"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},)"
                         R"("items":[{"metadata":{"name":"b"},"kind":"Own","apiVersion":"own/v1"}]})");
  });
  ListOptions what;
  what.limit = 1;
  what.label_selector = "a=b,c!=d";
  what.resource_version = "0";
  Result<Json> all = client_of(server)->list(kMaps, "", what);
  ASSERT_TRUE(all) << to_string(all.error());
  ASSERT_EQ((*all)["items"].size(), 2U);
  EXPECT_EQ((*all)["items"][0]["kind"].asString(), "ConfigMap");
  EXPECT_EQ((*all)["items"][0]["apiVersion"].asString(), "v1");
  EXPECT_EQ((*all)["items"][1]["kind"].asString(), "Own");
  EXPECT_FALSE((*all)["metadata"].isMember("continue"));
  EXPECT_FALSE((*all)["metadata"].isMember("remainingItemCount"));
  EXPECT_THAT(server.requests(),
              ::testing::ElementsAre(
                  "GET /api/v1/configmaps?labelSelector=a%3Db%2Cc%21%3Dd&limit=1&resourceVersion=0",
                  "GET /api/v1/configmaps?labelSelector=a%3Db%2Cc%21%3Dd&limit=1&continue=a%20b%26c"));
}

TEST(HttpClientList, StartsOverWholeWhenAPageHasExpired) {
  ScriptedServer server([](Peer& peer) {
    if (peer.target().find("continue=") != std::string::npos) {
      peer.respond(410, status_body(410, "Expired"));
    } else if (peer.target().find("limit=") != std::string::npos) {
      peer.respond(200, R"({"kind":"ConfigMapList","metadata":{"continue":"x"},"items":[{}]})");
    } else {
      peer.respond(200, R"({"kind":"ConfigMapList","metadata":{"resourceVersion":"9"},"items":[{},{}]})");
    }
  });
  ListOptions what;
  what.limit = 1;
  Result<Json> all = client_of(server)->list(kMaps, "", what);
  ASSERT_TRUE(all) << to_string(all.error());
  EXPECT_EQ((*all)["items"].size(), 2U);
}

TEST(HttpClientList, TakesNullItemsForNone) {
  ScriptedServer server(
      [](Peer& peer) { peer.respond(200, R"({"kind":"ConfigMapList","metadata":{},"items":null})"); });
  Result<Json> all = client_of(server)->list(kMaps, "");
  ASSERT_TRUE(all);
  EXPECT_TRUE((*all)["items"].isArray());
}

TEST(HttpClientList, BringsItemsOneByOneAndBeginsAgainWhenAPageHasExpired) {
  ScriptedServer server([](Peer& peer) {
    if (peer.target().find("continue=") != std::string::npos) {
      peer.respond(410, status_body(410, "Expired"));
    } else if (peer.target().find("limit=") != std::string::npos) {
      peer.respond(200, R"({"kind":"PodList","metadata":{"continue":"x"},"items":[{"n":1}]})");
    } else {
      peer.respond(200, R"({"items":[{"n":2}, {} ,{"n":3,"kind":"Own"},{"apiVersion":"own/v1"},4],)"
                        R"("kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"}})");
    }
  });
  ListOptions what;
  what.limit = 1;
  std::vector<std::string> seen;
  const Result<Json> rest = client_of(server)->list_each(
      kMaps, "", what,
      {.begin = [&] { seen.emplace_back("begin"); },
       .take = [&](const JsonView& item) { seen.push_back(write_json(tree_of(item))); }});
  ASSERT_TRUE(rest) << to_string(rest.error());
  EXPECT_EQ(write_json(*rest), R"({"apiVersion":"v1","kind":"PodList","metadata":{"resourceVersion":"9"}})");
  EXPECT_THAT(seen, ::testing::ElementsAre("begin", R"({"apiVersion":"","kind":"Pod","n":1})", "begin",
                                           R"({"apiVersion":"v1","kind":"Pod","n":2})",
                                           R"({"apiVersion":"v1","kind":"Pod"})", R"({"kind":"Own","n":3})",
                                           R"({"apiVersion":"own/v1"})", "4"));
}

TEST(HttpClientList, RefusesWhatIsNoJson) {
  for (const char* body : {R"({"kind":"PodList","items":[{"n":1},{"n":}]})", R"({"items":[{}]} and more)",
                           R"({"items":[{"a":1,"a":2}]})", R"({"items":[{}])", "[]", "", "<html>"}) {
    ScriptedServer server([body](Peer& peer) { peer.respond(200, body); });
    const Result<Json> all = client_of(server)->list(kMaps, "");
    ASSERT_FALSE(all) << body;
    EXPECT_EQ(all.error().code, ErrorCode::kInternal) << body;
    EXPECT_THAT(all.error().message, ::testing::HasSubstr("is it an API server?")) << body;
  }
}

TEST(HttpClientList, FindsItemsWhoseNameIsWrittenWithEscapes) {
  ScriptedServer server([](Peer& peer) { peer.respond(200, R"({"kind":"x","item\u0073":[{"n":1}]})"); });
  const Result<Json> all = client_of(server)->list(kMaps, "");
  ASSERT_TRUE(all) << to_string(all.error());
  EXPECT_EQ((*all)["items"].size(), 1U);
}

TEST(HttpClient, ServesManyThreadsAtOnce) {
  ScriptedServer server([](Peer& peer) { peer.respond(200, kMap); });
  const auto client = client_of(server);
  std::atomic<int> good = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 25; ++j) {
        good += client->get(kMaps, "ns", "a").ok() ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(good, 400);
}

}  // namespace
}  // namespace plimsoll::kube
