// Watches of the production client, against a server that misbehaves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "kube/http_client.h"
#include "tests/kube/scripted_server.h"
#include "tests/testing/eventually.h"
#include "tests/testing/latch.h"
#include "tests/testing/patience.h"

namespace plimsoll::kube {
namespace {

using plimsoll::testing::eventually;
using plimsoll::testing::kPatience;
using plimsoll::testing::Latch;
using plimsoll::testing::ScriptedServer;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::Contains;
using ::testing::HasSubstr;
using Peer = ScriptedServer::Peer;

const Resource kMaps{"", "v1", "configmaps", true};

std::string event(const std::string& type, const std::string& name, int version, std::size_t padding = 0) {
  return R"({"type":")" + type + R"(","object":{"kind":"ConfigMap","metadata":{"name":")" + name +
         R"(","resourceVersion":")" + std::to_string(version) + R"("},"data":{"x":")" +
         std::string(padding, 'x') + "\"}}}\n";
}

constexpr const char* kGone =
    R"({"type":"ERROR","object":{"kind":"Status","status":"Failure","reason":"Expired","code":410,)"
    R"("message":"too old resource version: 1"}})";

struct Watched {
  Result<void> ended;
  std::vector<std::string> events;  // "ADDED a 5"
  double seconds = 0;
};

Watched watch(const ScriptedServer& server, WatchOptions options = {}, std::stop_token stop = {},
              const std::function<void(const WatchEvent&)>& also = {}) {
  ClientConfig config;
  config.server = server.url();
  const auto client = std::move(*connect(config));
  Watched result;
  const auto began = steady_clock::now();
  result.ended = client->watch(
      kMaps, "ns", options,
      [&](const WatchEvent& event) {
        static const char* const kNames[] = {"ADDED", "MODIFIED", "DELETED", "BOOKMARK"};
        result.events.push_back(std::string(kNames[static_cast<int>(event.type)]) + " " +
                                text_member(event.object, {"metadata", "name"}) + " " +
                                text_member(event.object, {"metadata", "resourceVersion"}));
        if (also) {
          also(event);
        }
      },
      stop);
  result.seconds = std::chrono::duration<double>(steady_clock::now() - began).count();
  return result;
}

TEST(Watch, DeliversEventsInOrderHoweverTheyAreCutIntoChunks) {
  ScriptedServer server([](Peer& peer) {
    peer.begin_chunked();
    const std::string all = event("ADDED", "a", 1) + event("MODIFIED", "a", 2) + "\n" +
                            event("DELETED", "a", 3) + event("BOOKMARK", "", 9);
    for (std::size_t i = 0; i < all.size(); i += 7) {
      peer.chunk(all.substr(i, 7));
    }
    peer.end_chunked();
  });
  WatchOptions options;
  options.resource_version = "5";
  options.label_selector = "a=b";
  const Watched result = watch(server, options);
  EXPECT_TRUE(result.ended) << to_string(result.ended.error());
  EXPECT_THAT(result.events,
              ::testing::ElementsAre("ADDED a 1", "MODIFIED a 2", "DELETED a 3", "BOOKMARK  9"));
  EXPECT_THAT(
      server.requests(),
      ::testing::ElementsAre(
          "GET /api/v1/namespaces/ns/configmaps?watch=true&allowWatchBookmarks=true&timeoutSeconds=300&resourceVersion=5&labelSelector=a%3Db"));
}

TEST(Watch, AsksForInitialEventsAsTheServerWantsIt) {
  ScriptedServer server([](Peer& peer) { peer.respond(200, event("BOOKMARK", "", 9)); });
  WatchOptions options;
  options.send_initial_events = true;
  EXPECT_TRUE(watch(server, options).ended);
  EXPECT_THAT(
      server.requests(),
      ::testing::ElementsAre(
          "GET /api/v1/namespaces/ns/configmaps?watch=true&allowWatchBookmarks=true&timeoutSeconds=300&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"));
}

TEST(Watch, GoneArrivesAsStatusAsEventAndAsAnUnchunkedBody) {
  const std::vector<std::function<void(Peer&)>> kWays = {
      [](Peer& peer) {
        peer.respond(410, R"({"kind":"Status","reason":"Expired","code":410,"message":"old"})");
      },
      [](Peer& peer) {
        peer.begin_chunked();
        peer.chunk(event("ADDED", "a", 1) + kGone + "\n");
        peer.end_chunked();
      },
      [](Peer& peer) { peer.respond(200, kGone); },
      [](Peer& peer) {
        peer.respond(200,
                     R"({"kind":"Status","status":"Failure","reason":"Expired","code":410,"message":"old"})");
      },
  };
  for (const auto& way : kWays) {
    ScriptedServer server(way);
    const Watched result = watch(server);
    ASSERT_FALSE(result.ended);
    EXPECT_EQ(result.ended.error().code, ErrorCode::kExpired) << to_string(result.ended.error());
  }
}

TEST(Watch, OtherErrorEventsCarryTheirCode) {
  ScriptedServer server([](Peer& peer) {
    peer.begin_chunked();
    peer.chunk("{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":500,\"message\":\"broken\"}}\n");
    peer.end_chunked();
  });
  const Watched result = watch(server);
  EXPECT_EQ(result.ended.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(result.ended.error().message, "broken");
}

TEST(Watch, ARefusalBeforeTheFirstEventKeepsItsReason) {
  ScriptedServer server([](Peer& peer) {
    peer.respond(403, R"({"kind":"Status","reason":"Forbidden","code":403,"message":"cannot watch"})");
  });
  const Watched result = watch(server);
  EXPECT_EQ(result.ended.error().code, ErrorCode::kForbidden);
  EXPECT_EQ(result.ended.error().message, "cannot watch");
}

TEST(Watch, WhatWasCompleteBeforeACutIsDelivered) {
  for (const bool reset : {false, true}) {
    Latch delivered("both events are delivered");  // a reset drops what was not read
    ScriptedServer server([&](Peer& peer) {
      peer.begin_chunked();
      peer.chunk(event("ADDED", "a", 1) + event("ADDED", "b", 2) + "{\"type\":\"ADD");
      peer.write("100\r\nhalf a chunk");
      delivered.wait();
      reset ? peer.reset() : peer.close();
    });
    const Watched result = watch(server, {}, {}, [&](const WatchEvent& event) {
      if (text_member(event.object, {"metadata", "name"}) == "b") {
        delivered.open();
      }
    });
    ASSERT_FALSE(result.ended);
    EXPECT_EQ(result.ended.error().code, ErrorCode::kUnavailable);
    EXPECT_THAT(result.events, ::testing::ElementsAre("ADDED a 1", "ADDED b 2"));
  }
}

TEST(Watch, AnEventCutByAProperEndIsAnError) {
  ScriptedServer server([](Peer& peer) {
    peer.begin_chunked();
    peer.chunk(event("ADDED", "a", 1) + "{\"type\":\"ADD");
    peer.end_chunked();
  });
  const Watched result = watch(server);
  EXPECT_EQ(result.ended.error().code, ErrorCode::kInternal);
  EXPECT_EQ(result.events.size(), 1U);
}

TEST(Watch, SilenceEndsItAndBytesKeepItAlive) {
  WatchOptions options;
  options.idle_timeout =
      milliseconds(300);  // twice, and more where a pause of a sixth takes longer than that
  Watched result;
  EXPECT_TRUE(eventually(
      "an event after eight pauses",
      [&] {
        options.idle_timeout *= 2;
        ScriptedServer server([&](Peer& peer) {
          peer.begin_chunked();
          for (int i = 0; i < 8; ++i) {
            peer.wait_for_close(options.idle_timeout / 6);
            peer.chunk("\n");
          }
          peer.chunk(event("ADDED", "a", 1));
          peer.wait_for_close(2 * kPatience);
        });
        result = watch(server, options);
        return result.events.size();
      },
      1U));
  EXPECT_EQ(result.ended.error().code, ErrorCode::kTimeout);
  const double idle_seconds = std::chrono::duration<double>(options.idle_timeout).count();
  EXPECT_GE(result.seconds, (8.0 / 6 + 1) * idle_seconds - 0.05);
}

TEST(Watch, StopsAtOnceWhetherOrNotTheServerHasAnswered) {
  ScriptedServer server([](Peer& peer) {
    if (peer.target().find("resourceVersion=1&") != std::string::npos ||
        peer.target().ends_with("resourceVersion=1")) {
      peer.begin_chunked();
    }
    peer.wait_for_close(2 * kPatience);
  });
  for (const char* version : {"1", "2"}) {
    std::stop_source stop;
    std::thread later([&] {
      EXPECT_TRUE(eventually(
          "the request", [&] { return server.requests(); },
          Contains(HasSubstr(std::string("resourceVersion=") + version))));
      stop.request_stop();
    });
    WatchOptions options;
    options.resource_version = version;
    options.idle_timeout = 2 * kPatience;
    const Watched result = watch(server, options, stop.get_token());
    later.join();
    EXPECT_EQ(result.ended.error().code, ErrorCode::kCancelled);
    EXPECT_LT(result.seconds, kPatience.count());
  }
}

TEST(Watch, StopsBetweenTwoEventsOfOneChunk) {
  ScriptedServer server([](Peer& peer) {
    peer.begin_chunked();
    peer.chunk(event("ADDED", "a", 1) + event("ADDED", "b", 2));
    peer.wait_for_close(milliseconds(60'000));
  });
  std::stop_source stop;
  const Watched result = watch(server, {}, stop.get_token(), [&](const WatchEvent&) { stop.request_stop(); });
  EXPECT_EQ(result.ended.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(result.events.size(), 1U);
}

TEST(Watch, AHugeEventPassesAndAnEndlessOneDoesNot) {
  ScriptedServer server([](Peer& peer) {
    peer.begin_chunked();
    peer.chunk(event("ADDED", "a", 1, 3 << 20));
    const std::string piece(1 << 20, 'x');
    for (int i = 0; i < 64 && peer.chunk(piece); ++i) {
    }
    peer.wait_for_close(milliseconds(30'000));
  });
  const Watched result = watch(server);
  EXPECT_EQ(result.events.size(), 1U);
  EXPECT_EQ(result.ended.error().code, ErrorCode::kTooLarge);
}

// cpprestsdk waits on its own thread where a stream refuses bytes: a few watches given up while the server
// still wrote took all that there were, and a process that ended just then hung.
TEST(Watch, GivingUpWhileTheServerStillWritesHoldsNoThreadOfTheLibrary) {
  ScriptedServer server([](Peer& peer) {
    peer.begin_chunked();
    for (int i = 0; i < 10'000 && peer.chunk("nonsense\n"); ++i) {
    }
  });
  std::vector<std::thread> watchers;
  for (int i = 0; i < 16; ++i) {
    watchers.emplace_back([&] {
      for (int round = 0; round < 20; ++round) {
        EXPECT_EQ(watch(server).ended.error().code, ErrorCode::kInternal);
      }
    });
  }
  for (std::thread& watcher : watchers) {
    watcher.join();
  }
  ScriptedServer sound([](Peer& peer) { peer.respond(200, event("ADDED", "a", 1)); });
  EXPECT_EQ(watch(sound).events.size(), 1U);
}

TEST(Watch, NonsenseLinesEndIt) {
  for (const char* line : {"hello", "[]", "{}", "{\"type\":\"ODD\",\"object\":{}}", "{\"type\":\"ADDED\"}",
                           "{\"type\":\"ADDED\",\"object\":5}", "{\"type\":5,\"object\":{}}", "\xff\xfe\xfd",
                           "{\"type\":\"ADDED\",\"object\":{}} trailing"}) {
    ScriptedServer server([&](Peer& peer) {
      peer.begin_chunked();
      peer.chunk(std::string(line) + "\n");
      peer.wait_for_close(milliseconds(30'000));
    });
    const Watched result = watch(server);
    ASSERT_FALSE(result.ended) << line;
    EXPECT_EQ(result.ended.error().code, ErrorCode::kInternal) << line;
    EXPECT_TRUE(result.events.empty());
  }
}

TEST(Watch, ASlowReaderHoldsTheServerBackAndLosesNothing) {
  constexpr int kEvents = 60'000;
  std::atomic<std::size_t> written = 0;
  std::size_t written_while_blocked = 0;
  ScriptedServer server([&](Peer& peer) {
    peer.begin_chunked();
    for (int i = 0; i < kEvents / 100; ++i) {
      std::string piece;
      for (int j = 0; j < 100; ++j) {
        piece += event("ADDED", "a", i * 100 + j, 1000);
      }
      if (!peer.chunk(piece)) {
        return;
      }
      written += piece.size();
    }
    peer.end_chunked();
  });
  const Watched result = watch(server, {}, {}, [&, first = true](const WatchEvent&) mutable {
    if (first) {
      std::this_thread::sleep_for(milliseconds(1'000));
      written_while_blocked = written;
      first = false;
    }
  });
  EXPECT_TRUE(result.ended) << to_string(result.ended.error());
  ASSERT_EQ(result.events.size(), static_cast<std::size_t>(kEvents));
  EXPECT_EQ(result.events.back(), "ADDED a " + std::to_string(kEvents - 1));
  // Ours is 8 MiB, and each end's socket buffers a few more; all together are 66 MiB.
  EXPECT_LT(written_while_blocked, 40U << 20);
}

TEST(Watch, AServerThatIsGoneIsUnavailable) {
  auto server = std::make_unique<ScriptedServer>([](Peer&) {});
  ClientConfig config;
  config.server = server->url();
  server.reset();
  const auto client = std::move(*connect(config));
  EXPECT_EQ(client->watch(kMaps, "ns", {}, [](const WatchEvent&) {}, {}).error().code,
            ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace plimsoll::kube
