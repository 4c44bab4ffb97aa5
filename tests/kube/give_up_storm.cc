// 10,000 watches, calls and exchanges that are given up at random moments, by four threads at once, against a server that is slow
// and one that dies: whatever the moment, the caller gets an answer or a failure that it can handle, and nothing is left behind.
// It is for the sanitizers above all; cpprestsdk is not safe where two threads touch it (kube/transport.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "kube/http_client.h"
#include "kube/http_exchange.h"
#include "kube/transport.h"
#include "tests/controlplane/certificates.h"
#include "tests/kube/fault_proxy.h"
#include "tests/kube/scripted_server.h"
#include "tests/kube/simulation.h"
#include "tests/testing/random_seed.h"

namespace plimsoll::kube {
namespace {

using plimsoll::testing::CertificateAuthority;
using plimsoll::testing::Dice;
using plimsoll::testing::FaultProxy;
using plimsoll::testing::ScriptedServer;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Peer = ScriptedServer::Peer;
using Read = HttpExchange::Read;

// Servers keep a descriptor of each connection, so they are new in each round.
constexpr int kRounds = 50;
constexpr int kCallers = 4;
constexpr int kCallsOfOne = 50;
const Resource kMaps{"", "v1", "configmaps", true};

// How calls ended. Thread-safe.
struct Counts {
  std::atomic<int> calls = 0;
  std::atomic<int> complete = 0;
  std::atomic<int> stopped = 0;
  std::atomic<int> timed_out = 0;
  std::atomic<int> unavailable = 0;

  void add(const Result<void>& result) {
    ++calls;
    if (result) {
      ++complete;
      return;
    }
    switch (result.error().code) {
      case ErrorCode::kCancelled: ++stopped; break;
      case ErrorCode::kTimeout: ++timed_out; break;
      case ErrorCode::kUnavailable: ++unavailable; break;
      default: ADD_FAILURE() << to_string(result.error());
    }
  }
  void add(const HttpFailure& failure) {
    ++calls;
    EXPECT_FALSE(failure.reason.empty());
    switch (failure.stage) {
      case HttpFailure::Stage::kStopped: ++stopped; break;
      case HttpFailure::Stage::kDeadline: ++timed_out; break;
      case HttpFailure::Stage::kConnecting:
      case HttpFailure::Stage::kSending:
      case HttpFailure::Stage::kReceiving: ++unavailable; break;
    }
  }
};

// What a server does to each request. Its handlers run at once.
class Conduct {
 public:
  Conduct(unsigned seed, bool dies) : dice_(seed), dies_(dies) {}

  void operator()(Peer& peer) {
    if (peer.wait_for_close(milliseconds(roll(3)))) {
      return;
    }
    if (peer.target() == "/silent") {
      peer.wait_for_close(milliseconds(60'000));
    } else if (peer.target() == "/big") {
      stream(peer, std::string(100'000, 'x'), milliseconds(0));
    } else if (peer.target().find("watch=true") != std::string::npos) {
      stream(peer,
             R"({"type":"ADDED","object":{"kind":"ConfigMap","metadata":{"name":"a","resourceVersion":"1"}}})"
             "\n",
             milliseconds(1));
    } else if (!fails(peer)) {
      peer.respond(200, "{}");
    }
  }

 private:
  int roll(int sides) {
    const std::lock_guard lock(mutex_);
    return dice_.roll(sides);
  }

  bool fails(Peer& peer) {
    if (!dies_ || roll(8) != 0) {
      return false;
    }
    switch (roll(3)) {
      case 0: peer.reset(); break;
      case 1: peer.close(); break;
      default: peer.write("HTTP/1.1 200 OK\r\nContent-Le"); peer.close();
    }
    return true;
  }

  void stream(Peer& peer, const std::string& piece, milliseconds pause) {
    peer.begin_chunked();
    for (int i = 0; i < 200; ++i) {
      if (fails(peer) || !peer.chunk(piece) || (pause.count() > 0 && peer.wait_for_close(pause))) {
        return;
      }
    }
    peer.end_chunked();
  }

  std::mutex mutex_;
  Dice dice_;
  const bool dies_;
};

// A client and an endpoint of one server, for all callers.
struct Clients {
  explicit Clients(const ClientConfig& config)
      : client(*connect(config)), endpoint(*HttpEndpoint::make(config, *TlsMaterial::make(config))) {}
  std::unique_ptr<Client> client;
  std::unique_ptr<HttpEndpoint> endpoint;
};

// How long one has patience. Most have too little for an answer.
microseconds patience(Dice& dice) {
  return microseconds(dice.roll(4) == 0 ? dice.roll(100'000) : dice.roll(8'000));
}

// Requests a stop after that long.
class Stopper {
 public:
  explicit Stopper(microseconds after)
      : thread_([this, after](const std::stop_token& no_longer_needed) {
          std::mutex mutex;
          std::unique_lock lock(mutex);
          std::condition_variable_any().wait_for(lock, no_longer_needed, after, [] { return false; });
          stop_.request_stop();
        }) {}
  std::stop_token token() const { return stop_.get_token(); }
  void stop() { stop_.request_stop(); }

 private:
  std::stop_source stop_;
  std::jthread thread_;
};

void give_up_watch(Clients& clients, Dice& dice, Counts& counts) {
  WatchOptions options;
  if (dice.roll(2) == 0) {
    options.idle_timeout = milliseconds(1 + dice.roll(10));
  }
  const int most_events = dice.roll(8);
  Stopper stopper(patience(dice));
  int events = 0;
  counts.add(clients.client->watch(
      kMaps, "ns", options,
      [&](const WatchEvent&) {
        if (++events > most_events) {
          stopper.stop();
        }
      },
      stopper.token()));
}

void give_up_call(Clients& clients, Dice& dice, Counts& counts) {
  Stopper stopper(patience(dice));
  CallOptions options;
  options.timeout = milliseconds(1 + dice.roll(50));
  options.stop = stopper.token();
  const Result<std::string> got = clients.client->get_raw(dice.roll(3) == 0 ? "/silent" : "/answer", options);
  EXPECT_TRUE(!got || *got == "{}") << *got;
  counts.add(got ? Result<void>() : got.error());
}

void give_up_exchange(Clients& clients, Dice& dice, Counts& counts) {
  static constexpr std::array kTargets = {"/answer", "/silent", "/big"};
  if (dice.roll(20) == 0) {
    clients.endpoint->forget_connections();
  }
  HttpRequest request{"POST", kTargets[static_cast<std::size_t>(dice.roll(3))], "", "application/json", "{}"};
  const bool at_once = dice.roll(10) == 0;
  const auto deadline = steady_clock::now() + patience(dice);
  HttpExchange exchange(*clients.endpoint, request);
  if (at_once) {
    ++counts.calls;
    return;
  }
  if (const std::optional<HttpFailure> failure = exchange.wait_for_head(deadline)) {
    counts.add(*failure);
    return;
  }
  EXPECT_EQ(exchange.status(), 200);
  std::string bytes;
  Read read = Read::kData;
  while (read == Read::kData) {
    read = exchange.read(bytes, deadline);
  }
  EXPECT_EQ(bytes.find_first_not_of(request.target == "/big" ? "x" : "{}"), std::string::npos);
  if (read == Read::kFailed) {
    counts.add(exchange.failure());
  } else {
    counts.add(Result<void>());
  }
}

ClientConfig config_of(const std::string& url, const std::string& ca) {
  ClientConfig config;
  config.server = url;
  config.ca_pem = ca;
  return config;
}

void run_round(unsigned seed, const CertificateAuthority& authority, Counts& counts) {
  Conduct slow_conduct(seed, false);
  Conduct dying_conduct(seed + 1, true);
  ScriptedServer::Options tls;
  tls.tls = *authority.issue("server", {"127.0.0.1"});
  ScriptedServer slow([&](Peer& peer) { slow_conduct(peer); });
  auto dying = std::make_unique<ScriptedServer>([&](Peer& peer) { dying_conduct(peer); }, tls);
  FaultProxy proxy(dying->port(), seed);
  proxy.set({.reset = 0.02, .cut = 0.02, .stall = 0.01, .dribble = 0.02});
  Clients slow_clients(config_of(slow.url(), ""));
  Clients dying_clients(
      config_of("https://127.0.0.1:" + std::to_string(proxy.port()), authority.certificate_pem()));
  std::vector<std::jthread> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&, caller] {
      Dice dice(seed + 10 + static_cast<unsigned>(caller));
      for (int i = 0; i < kCallsOfOne; ++i) {
        if (caller == 0 && i == kCallsOfOne * 3 / 4) {
          dying.reset();
        }
        Clients& clients = dice.roll(2) == 0 ? slow_clients : dying_clients;
        switch (dice.roll(3)) {
          case 0: give_up_watch(clients, dice, counts); break;
          case 1: give_up_call(clients, dice, counts); break;
          default: give_up_exchange(clients, dice, counts);
        }
      }
    });
  }
}

std::ptrdiff_t descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

TEST(GiveUpStorm, EachCallEndsAndNothingIsLeftBehind) {
  initialise_transport();
  configure_log(LogLevel::kError, LogFormat::kText);
  const CertificateAuthority authority = *CertificateAuthority::create("test CA");
  Counts counts;
  std::ptrdiff_t after_first = 0;  // with those that the process keeps for the transport thread
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    run_round(plimsoll::testing::random_seed() + 100 * static_cast<unsigned>(round), authority, counts);
    if (round == 0) {
      after_first = descriptors();
    }
    EXPECT_EQ(descriptors(), after_first) << "endpoints wait for all that they have opened";
  }
  std::cout << counts.calls << " calls: " << counts.complete << " complete, " << counts.stopped
            << " stopped, " << counts.timed_out << " timed out, " << counts.unavailable << " unavailable"
            << std::endl;
  EXPECT_EQ(counts.calls, kRounds * kCallers * kCallsOfOne);
  for (const std::atomic<int>* kind :
       {&counts.complete, &counts.stopped, &counts.timed_out, &counts.unavailable}) {
    EXPECT_GT(*kind, 0);
  }
}

}  // namespace
}  // namespace plimsoll::kube
