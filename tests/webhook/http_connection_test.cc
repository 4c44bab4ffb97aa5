#include "webhook/http_connection.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "tests/webhook/peer.h"
#include "tests/webhook/test_server.h"

namespace plimsoll::webhook {
namespace {

using testing::Peer;
using testing::request_text;
using testing::Response;
using Next = HttpConnection::Next;

// A connection over the loopback that the test takes its steps for, and the peer at its other end.
class HttpConnectionTest : public ::testing::Test {
 protected:
  HttpConnectionTest() {
    shared_.options = testing::test_options();
    shared_.handler = [](const HttpRequest& request) {
      return HttpResponse{200, "text/plain", request.method + " " + request.path + " " + request.body};
    };
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(::bind(listener, generic, size), 0);
    EXPECT_EQ(::listen(listener, 1), 0);
    EXPECT_EQ(::getsockname(listener, generic, &size), 0);
    peer_ = std::make_unique<Peer>(ntohs(address.sin_port));
    EXPECT_TRUE(peer_->connected());
    accepted_ = Descriptor(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    ::close(listener);
  }

  void serve() { connection_ = std::make_unique<HttpConnection>(shared_, std::move(accepted_), nullptr); }

  // Bytes are there when they were written: the loopback delivers within the call.
  void expect_answer(const std::string& body) {
    const std::optional<Response> answer = peer_->read_response();
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->body, body);
  }

  HttpServerShared shared_;
  Descriptor accepted_;
  std::unique_ptr<Peer> peer_;
  std::unique_ptr<HttpConnection> connection_;
};

TEST_F(HttpConnectionTest, TakesARequestByteByByte) {
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
TEST_F(HttpConnectionTest, AnswersOneRequestAtATime) {
  serve();
  peer_->write(request_text("POST", "/1", "text/plain", "a") + request_text("POST", "/2", "text/plain", "b") +
               "POST /3");
  for (const char* answer : {"POST /1 a", "POST /2 b"}) {
    ASSERT_EQ(connection_->advance(), Next::kHandler);
    connection_->handle();
    EXPECT_EQ(connection_->advance(), Next::kWritable);
    EXPECT_FALSE(connection_->idle());
    expect_answer(answer);
  }
  EXPECT_EQ(connection_->advance(), Next::kReadable);
}

TEST_F(HttpConnectionTest, SendsALargeAnswerAsThePeerTakesIt) {
  const std::string large(8 << 20, 'x');
  shared_.handler = [&](const HttpRequest&) { return HttpResponse{200, "text/plain", large}; };
  serve();
  peer_->write("GET / HTTP/1.1\r\n\r\n");
  ASSERT_EQ(connection_->advance(), Next::kHandler);
  connection_->handle();
  EXPECT_EQ(connection_->advance(), Next::kWritable);
  EXPECT_LT(connection_->deadline(), HttpConnection::Clock::time_point::max());

  std::thread reader([&] { expect_answer(large); });
  Next next = Next::kWritable;
  while (next == Next::kWritable) {
    next = connection_->advance();
    std::this_thread::yield();
  }
  EXPECT_EQ(next, Next::kReadable);
  reader.join();
}

TEST_F(HttpConnectionTest, HasNoDeadlineWhileItIsAtTheHandler) {
  serve();
  const auto far = HttpConnection::Clock::now() + std::chrono::hours(1);
  EXPECT_LT(connection_->deadline(), far);
  peer_->write("GET / HTTP/1.1\r\n\r\n");
  ASSERT_EQ(connection_->advance(), Next::kHandler);
  EXPECT_GT(connection_->deadline(), far);
  connection_->time_out_at(far);
  connection_->handle();
  EXPECT_EQ(connection_->advance(), Next::kReadable);
  expect_answer("GET / ");
}

TEST_F(HttpConnectionTest, EndsWhenItIsLate) {
  serve();
  peer_->write("GET / HT");
  ASSERT_EQ(connection_->advance(), Next::kReadable);
  connection_->time_out_at(HttpConnection::Clock::now());
  EXPECT_EQ(connection_->advance(), Next::kReadable) << "it is not late yet";
  connection_->time_out_at(connection_->deadline());
  EXPECT_EQ(connection_->advance(), Next::kOver);
  EXPECT_EQ(shared_.rejected_timeout, 1U);
  EXPECT_TRUE(peer_->closed_within(5));
}

TEST_F(HttpConnectionTest, EndsAnIdleOneThatIsAskedTo) {
  serve();
  ASSERT_EQ(connection_->advance(), Next::kReadable);
  EXPECT_TRUE(connection_->end_if_idle());
  EXPECT_FALSE(connection_->end_if_idle()) << "asked already";
  EXPECT_EQ(connection_->advance(), Next::kOver);
  EXPECT_TRUE(peer_->closed_within(5));
}

// The request was on its way before the server wished the connection's end.
TEST_F(HttpConnectionTest, AskedToEndStillServesWhatHasCome) {
  serve();
  ASSERT_EQ(connection_->advance(), Next::kReadable);
  peer_->write(request_text("POST", "/late", "text/plain", "x"));
  EXPECT_TRUE(connection_->end_if_idle());
  ASSERT_EQ(connection_->advance(), Next::kHandler);
  EXPECT_FALSE(connection_->end_if_idle());
  connection_->handle();
  connection_->advance();
  const std::optional<Response> answer = peer_->read_response();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->body, "POST /late x");
  EXPECT_FALSE(answer->keep_alive);
  EXPECT_TRUE(peer_->closed_within(5));
}

TEST_F(HttpConnectionTest, CuttingWaitsForTheHandler) {
  serve();
  peer_->write("GET / HTTP/1.1\r\n\r\n");
  ASSERT_EQ(connection_->advance(), Next::kHandler);
  connection_->cut();
  EXPECT_EQ(connection_->advance(), Next::kHandler);
  connection_->handle();
  EXPECT_EQ(connection_->advance(), Next::kOver);
}

TEST_F(HttpConnectionTest, GivesBackTheMemoryOfABodyThatIsNeverComplete) {
  serve();
  peer_->write("POST / HTTP/1.1\r\nContent-Length: 100\r\n\r\n" + std::string(60, 'x'));
  ASSERT_EQ(connection_->advance(), Next::kReadable);
  EXPECT_EQ(shared_.body_memory, 60U);
  connection_->cut();
  EXPECT_EQ(connection_->advance(), Next::kOver);
  EXPECT_EQ(shared_.rejected_malformed, 0U) << "the peer did nothing wrong";
  connection_.reset();
  EXPECT_EQ(shared_.body_memory, 0U);
}

}  // namespace
}  // namespace plimsoll::webhook
