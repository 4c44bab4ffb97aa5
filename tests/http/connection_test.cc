#include "http/connection.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>  // before asio's headers, which need it under C++20

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "tests/http/peer.h"
#include "tests/http/test_certificates.h"
#include "tests/testing/eventually.h"

namespace plimsoll::http {
namespace {

using boost::asio::ip::tcp;
using testing::eventually;
using testing::Peer;
using testing::request_text;
using testing::Response;
using Next = Connection::Next;

// A connection over the loopback that the test takes its steps for, and the peer at its other end.
class ConnectionTest : public ::testing::Test {
 protected:
  ConnectionTest() {
    state_.options = testing::test_options();
    state_.handler = [](const Request& request) {
      return http::Response{200, "text/plain", request.method + " " + request.path + " " + request.body};
    };
    tcp::acceptor listener(io_, {boost::asio::ip::address_v4::loopback(), 0});
    peer_ = std::make_unique<Peer>(listener.local_endpoint().port());
    EXPECT_TRUE(peer_->connected());
    accepted_ = listener.accept();
  }

  void serve() { connection_ = std::make_unique<Connection>(state_, std::move(accepted_), nullptr); }

  // Bytes are there when they were written: the loopback delivers within the call.
  void expect_answer(const std::string& body) {
    const std::optional<Response> answer = peer_->read_response();
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->body, body);
  }

  ServerState state_;
  boost::asio::io_context io_;
  tcp::socket accepted_{io_};
  std::unique_ptr<Peer> peer_;
  std::unique_ptr<Connection> connection_;
};

TEST_F(ConnectionTest, TakesARequestByteByByte) {
  serve();
  const std::string request = request_text("POST", "/a", "text/plain", "xyz");
  for (std::size_t i = 0; i + 1 < request.size(); ++i) {
    ASSERT_TRUE(peer_->write(request.substr(i, 1)));
    ASSERT_EQ(connection_->advance(), Next::kReadable) << i;
    EXPECT_FALSE(connection_->idle());
  }
  peer_->write(request.substr(request.size() - 1));
  ASSERT_EQ(connection_->advance(), Next::kHandler);
  connection_->handle();
  EXPECT_EQ(connection_->advance(), Next::kReadable);
  EXPECT_TRUE(connection_->idle());
  expect_answer("POST /a xyz");
}

// What a peer sends ahead waits for its turn, behind other connections.
TEST_F(ConnectionTest, AnswersOneRequestAtATime) {
  serve();
  peer_->write(request_text("POST", "/1", "text/plain", "a") + request_text("POST", "/2", "text/plain", "b") +
               "POST /3");
  for (const char* answer : {"POST /1 a", "POST /2 b"}) {
    ASSERT_EQ(connection_->advance(), Next::kHandler);
    connection_->handle();
    EXPECT_EQ(connection_->advance(), Next::kAgain);
    EXPECT_FALSE(connection_->idle());
    expect_answer(answer);
  }
  EXPECT_EQ(connection_->advance(), Next::kReadable);
}

TEST_F(ConnectionTest, SendsALargeAnswerAsThePeerTakesIt) {
  const std::string large(8 << 20, 'x');
  state_.handler = [&](const Request&) { return http::Response{200, "text/plain", large}; };
  serve();
  peer_->write("GET / HTTP/1.1\r\n\r\n");
  ASSERT_EQ(connection_->advance(), Next::kHandler);
  connection_->handle();
  EXPECT_EQ(connection_->advance(), Next::kWritable);
  EXPECT_LT(connection_->deadline(), Connection::Clock::time_point::max());

  std::thread reader([&] { expect_answer(large); });
  Next next = Next::kWritable;
  EXPECT_TRUE(eventually("the whole answer is sent", [&] {
    next = connection_->advance();
    return next != Next::kWritable;
  }));
  EXPECT_EQ(next, Next::kReadable);
  reader.join();
}

TEST_F(ConnectionTest, HasNoDeadlineWhileItIsAtTheHandler) {
  serve();
  const auto far = Connection::Clock::now() + std::chrono::hours(1);
  EXPECT_LT(connection_->deadline(), far);
  peer_->write("GET / HTTP/1.1\r\n\r\n");
  ASSERT_EQ(connection_->advance(), Next::kHandler);
  EXPECT_GT(connection_->deadline(), far);
  connection_->time_out_at(far);
  connection_->handle();
  EXPECT_EQ(connection_->advance(), Next::kReadable);
  expect_answer("GET / ");
}

TEST_F(ConnectionTest, EndsWhenItIsLate) {
  serve();
  peer_->write("GET / HT");
  ASSERT_EQ(connection_->advance(), Next::kReadable);
  connection_->time_out_at(Connection::Clock::now());
  EXPECT_EQ(connection_->advance(), Next::kReadable) << "it is not late yet";
  connection_->time_out_at(connection_->deadline());
  EXPECT_EQ(connection_->advance(), Next::kOver);
  EXPECT_EQ(state_.stats.rejected_timeout, 1U);
  EXPECT_TRUE(peer_->closes());
}

TEST_F(ConnectionTest, EndsAnIdleOneThatIsAskedTo) {
  serve();
  ASSERT_EQ(connection_->advance(), Next::kReadable);
  EXPECT_TRUE(connection_->close_if_idle());
  EXPECT_FALSE(connection_->close_if_idle()) << "asked already";
  EXPECT_EQ(connection_->advance(), Next::kOver);
  EXPECT_TRUE(peer_->closes());
}

// The request was on its way before the server wished the connection's end.
TEST_F(ConnectionTest, AskedToEndStillServesWhatHasCome) {
  serve();
  ASSERT_EQ(connection_->advance(), Next::kReadable);
  peer_->write(request_text("POST", "/late", "text/plain", "x"));
  EXPECT_TRUE(connection_->close_if_idle());
  ASSERT_EQ(connection_->advance(), Next::kHandler);
  EXPECT_FALSE(connection_->close_if_idle());
  connection_->handle();
  connection_->advance();
  const std::optional<Response> answer = peer_->read_response();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->body, "POST /late x");
  EXPECT_FALSE(answer->keep_alive);
  EXPECT_TRUE(peer_->closes());
}

TEST_F(ConnectionTest, CuttingWaitsForTheHandler) {
  serve();
  peer_->write("GET / HTTP/1.1\r\n\r\n");
  ASSERT_EQ(connection_->advance(), Next::kHandler);
  connection_->cut();
  EXPECT_EQ(connection_->advance(), Next::kHandler);
  connection_->handle();
  EXPECT_EQ(connection_->advance(), Next::kOver);
}

TEST_F(ConnectionTest, GivesBackTheMemoryOfABodyThatIsNeverComplete) {
  serve();
  peer_->write("POST / HTTP/1.1\r\nContent-Length: 100\r\n\r\n" + std::string(60, 'x'));
  ASSERT_EQ(connection_->advance(), Next::kReadable);
  EXPECT_EQ(state_.stats.body_bytes, 60U);
  connection_->cut();
  EXPECT_EQ(connection_->advance(), Next::kOver);
  EXPECT_EQ(state_.stats.rejected_malformed, 0U) << "the peer did nothing wrong";
  connection_.reset();
  EXPECT_EQ(state_.stats.body_bytes, 0U);
}

}  // namespace
}  // namespace plimsoll::http
