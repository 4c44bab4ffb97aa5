#include "http/listener.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/http/peer.h"

namespace plimsoll::http {
namespace {

using boost::asio::ip::tcp;
using testing::Peer;

class ListenerTest : public ::testing::Test {
 protected:
  boost::asio::io_context io_;
  bool room_ = true;
  std::vector<tcp::socket> accepted_;
  Listener listener_{io_,
                     io_,
                     {.make_room = [this] { return room_; },
                      .add = [this](tcp::socket socket) { accepted_.push_back(std::move(socket)); },
                      .rejected = [] {}}};
};

TEST_F(ListenerTest, AcceptsWhenThereIsRoom) {
  ASSERT_TRUE(listener_.open("127.0.0.1", 0).ok());
  listener_.start();
  const Peer first(listener_.port());
  io_.poll();
  EXPECT_EQ(accepted_.size(), 1U);
  room_ = false;
  const Peer second(listener_.port());
  io_.poll();
  EXPECT_EQ(accepted_.size(), 1U);
  room_ = true;
  listener_.resume();
  io_.poll();
  EXPECT_EQ(accepted_.size(), 2U);
}

TEST_F(ListenerTest, ClosingAcceptsThoseThatHaveConnected) {
  ASSERT_TRUE(listener_.open("127.0.0.1", 0).ok());
  listener_.start();
  const Peer early(listener_.port());
  listener_.close();
  EXPECT_EQ(accepted_.size(), 1U);
  EXPECT_FALSE(Peer(listener_.port()).connected());
  io_.poll();
  EXPECT_TRUE(io_.stopped()) << "it waits for nothing more";
}

TEST_F(ListenerTest, RefusesAnAddressThatIsNotOneAndAPortThatIsTaken) {
  EXPECT_EQ(listener_.open("webhook.example", 0).error().code, ErrorCode::kInvalid);
  ASSERT_TRUE(listener_.open("::1", 0).ok());
  Listener other(io_, io_, {});
  EXPECT_EQ(other.open("::1", listener_.port()).error().code, ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace plimsoll::http
