// Clients that keep a server busy and lose nothing they could have kept: they honour `Connection: close`, and
// go on with another server, or stop, when theirs is going away.
//
//   Load load({server.port()}, 16);
//   ... do something to the server ...
//   LoadResult result = load.finish();
//   EXPECT_EQ(result.lost, 0);
//
// A request is lost when it was sent and got no answer, or one other than 200.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace plimsoll::testing {

struct LoadResult {
  std::uint64_t answered = 0;
  std::uint64_t lost = 0;
  std::uint64_t closed = 0;  // answers that said `Connection: close`
};

class Load {
 public:
  // Each client sends to the first of `ports` that takes its connection; when an answer says close it moves
  // on to the next and does not come back. With the last of them gone it ends.
  Load(std::vector<std::uint16_t> ports, int clients, std::string path, std::function<std::string(int)> body);
  ~Load() { finish(); }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  std::uint64_t answered() const { return answered_; }
  LoadResult finish();

 private:
  void run(int client);

  const std::vector<std::uint16_t> ports_;
  const std::string path_;
  const std::function<std::string(int)> body_;
  std::atomic<bool> enough_ = false;
  std::atomic<std::uint64_t> answered_ = 0, lost_ = 0, closed_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace plimsoll::testing
