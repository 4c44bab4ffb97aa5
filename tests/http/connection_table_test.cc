#include "http/connection_table.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>  // before asio's headers, which need it under C++20
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "tests/http/peer.h"
#include "tests/http/test_certificates.h"

namespace plimsoll::http {
namespace {

using namespace std::chrono_literals;
using boost::asio::ip::tcp;
using testing::Peer;
using Next = Connection::Next;

class ConnectionTableTest : public ::testing::Test {
 protected:
  ConnectionTableTest() {
    state_.options.max_connections = 4;
    state_.handler = [](const Request&) { return http::Response{200, "text/plain", "ok"}; };
  }

  Connection* add() {
    peers_.push_back(std::make_unique<Peer>(listener_.local_endpoint().port()));
    return table_.add(std::make_unique<Connection>(state_, listener_.accept(), nullptr));
  }

  Connection* add_served() {
    Connection* connection = add();
    peers_.back()->write("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_EQ(connection->advance(), Next::kHandler);
    connection->handle();
    EXPECT_EQ(connection->advance(), Next::kReadable);
    return connection;
  }

  ServerState state_;
  boost::asio::io_context io_;
  tcp::acceptor listener_{io_, {boost::asio::ip::address_v4::loopback(), 0}};
  std::vector<std::unique_ptr<Peer>> peers_;
  ConnectionTable table_{state_.options, state_.stats.open_connections};
};

TEST_F(ConnectionTableTest, EvictsTheOldestThatWasNeverServedBeyondAHalf) {
  Connection* first = add();
  Connection* second = add();
  EXPECT_EQ(state_.stats.open_connections, 2U);
  EXPECT_TRUE(table_.make_room());
  EXPECT_EQ(first->progress(), Connection::Progress::kEvicted);
  EXPECT_EQ(second->progress(), Connection::Progress::kNotServed);
  EXPECT_EQ(state_.stats.evicted, 1U);
}

TEST_F(ConnectionTableTest, ClosesTheServedOneThatHasBeenIdleForLongest) {
  std::vector<Connection*> served;
  for (int i = 0; i < 4; ++i) {
    served.push_back(add_served());
  }
  EXPECT_TRUE(table_.make_room());
  EXPECT_EQ(served[0]->advance(), Next::kOver);
  EXPECT_TRUE(served[1]->idle());
  EXPECT_TRUE(table_.remove(served[0])) << "somebody may have waited for it";
  EXPECT_EQ(state_.stats.open_connections, 3U);
}

TEST_F(ConnectionTableTest, ThereIsNoRoomWhileAllAreHandled) {
  for (int i = 0; i < 4; ++i) {
    Connection* connection = add_served();
    peers_.back()->write("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_EQ(connection->advance(), Next::kHandler);
  }
  EXPECT_FALSE(table_.make_room());
}

TEST_F(ConnectionTableTest, ClosesWhatIsLate) {
  const auto now = Connection::Clock::now();
  EXPECT_EQ(table_.close_late(now), Connection::Clock::time_point::max());
  Connection* connection = add();
  const auto next = table_.close_late(now);
  EXPECT_LE(next, connection->deadline());
  table_.close_late(connection->deadline());
  EXPECT_EQ(connection->advance(), Next::kOver);
  EXPECT_FALSE(table_.all_closed_within(1ms));
  table_.remove(connection);
  EXPECT_TRUE(table_.all_closed_within(0ms));
}

}  // namespace
}  // namespace plimsoll::http
