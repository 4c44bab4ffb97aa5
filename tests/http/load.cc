#include "tests/http/load.h"

#include <memory>
#include <utility>

#include "tests/http/peer.h"

namespace plimsoll::testing {
namespace {

// Every so many requests a client opens a new connection, so that handshakes are under load too.
constexpr int kRequestsPerConnection = 7;

}  // namespace

Load::Load(std::vector<std::uint16_t> ports, int clients, std::string path,
           std::function<std::string(int)> body)
    : ports_(std::move(ports)), path_(std::move(path)), body_(std::move(body)) {
  for (int client = 0; client < clients; ++client) {
    threads_.emplace_back([this, client] { run(client); });
  }
}

LoadResult Load::finish() {
  enough_ = true;
  for (std::thread& thread : threads_) {
    thread.join();
  }
  threads_.clear();
  return {.answered = answered_, .lost = lost_, .closed = closed_};
}

void Load::run(int client) {
  std::size_t server = 0;
  std::unique_ptr<Peer> peer;
  int left = 0;
  for (int i = 0; !enough_ && server < ports_.size(); ++i) {
    if (left == 0) {
      peer = std::make_unique<Peer>(ports_[server]);
      left = kRequestsPerConnection;
      if (!peer->connected() || !peer->start_tls()) {
        ++lost_;  // the server was not said to be going away
        ++server;
        left = 0;
        continue;
      }
    }
    const std::optional<Response> answer =
        peer->exchange("POST", path_, "application/json", body_(client * 1'000'000 + i));
    if (!answer || answer->status != 200) {
      ++lost_;
      left = 0;
      continue;
    }
    ++answered_;
    --left;
    if (!answer->keep_alive) {
      ++closed_;
      ++server;
      left = 0;
    }
  }
}

}  // namespace plimsoll::testing
