#include "http/socket.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <string>
#include <thread>

#include <boost/asio/io_context.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "tests/http/peer.h"
#include "tests/http/test_certificates.h"

namespace plimsoll::http {
namespace {

using boost::asio::ip::tcp;
using testing::Peer;

// A socket over the loopback, which delivers within the call of the writer, and its other end.
class SocketTest : public ::testing::Test {
 protected:
  std::unique_ptr<Socket> accept(std::shared_ptr<boost::asio::ssl::context> context = nullptr) {
    peer_.connect(listener_.local_endpoint());
    tcp::socket accepted = listener_.accept();
    accepted.non_blocking(true);
    return std::make_unique<Socket>(std::move(accepted), std::move(context));
  }
  void send(std::string_view bytes) { boost::asio::write(peer_, boost::asio::buffer(bytes)); }
  std::string receive(std::size_t size) {
    std::string bytes(size, ' ');
    boost::asio::read(peer_, boost::asio::buffer(bytes));
    return bytes;
  }

  boost::asio::io_context io_;
  tcp::acceptor listener_{io_, {boost::asio::ip::address_v4::loopback(), 0}};
  tcp::socket peer_{io_};
  std::array<char, 64> buffer_{};
};

TEST_F(SocketTest, APlainOneReadsWhatIsThereAndNeverBlocks) {
  const auto socket = accept();
  EXPECT_FALSE(socket->tls());
  EXPECT_EQ(socket->handshake().state, IoState::kBytes) << "there is none";
  EXPECT_EQ(socket->read(buffer_).state, IoState::kWouldRead);
  EXPECT_TRUE(socket->quiet());
  send("hello");
  EXPECT_FALSE(socket->quiet());
  const IoResult got = socket->read(buffer_);
  EXPECT_EQ(got.state, IoState::kBytes);
  EXPECT_EQ(std::string_view(buffer_.data(), got.bytes), "hello");
  EXPECT_FALSE(socket->has_buffered());
}

TEST_F(SocketTest, APeerThatSendsNoMoreMayStillRead) {
  const auto socket = accept();
  send("last");
  peer_.shutdown(tcp::socket::shutdown_send);
  EXPECT_EQ(socket->read(buffer_).bytes, 4U);
  EXPECT_EQ(socket->read(buffer_).state, IoState::kEnd);
  EXPECT_EQ(socket->write("answer").bytes, 6U);
  EXPECT_EQ(receive(6), "answer");
  socket->finish_writing();
  boost::system::error_code end;
  char more = 0;
  peer_.read_some(boost::asio::buffer(&more, 1), end);
  EXPECT_EQ(end, boost::asio::error::eof);
}

TEST_F(SocketTest, APeerThatReadsNothingHoldsTheWriterBack) {
  const auto socket = accept();
  const std::string piece(1 << 16, 'x');
  IoResult last{IoState::kBytes};
  for (int i = 0; i < 10'000 && last.state == IoState::kBytes; ++i) {
    last = socket->write(piece);
  }
  EXPECT_EQ(last.state, IoState::kWouldWrite);
}

TEST_F(SocketTest, AfterAStopItReadsWhatArrivedAndThenTheEnd) {
  const auto socket = accept();
  send("arrived");
  socket->stop_reading();
  EXPECT_EQ(socket->read(buffer_).bytes, 7U);
  EXPECT_EQ(socket->read(buffer_).state, IoState::kEnd);
  EXPECT_EQ(socket->write("bye").state, IoState::kBytes) << "only reading has stopped";
}

TEST_F(SocketTest, ACutEndsBothDirections) {
  const auto socket = accept();
  socket->cut();
  EXPECT_EQ(socket->read(buffer_).state, IoState::kEnd);
  EXPECT_EQ(socket->write("bye").state, IoState::kBroken);
}

TEST_F(SocketTest, PlainHttpOnATlsPortIsToldAndMayBeAnswered) {
  testing::HeldCertificate certificate;
  const auto socket = accept(certificate.current());
  EXPECT_TRUE(socket->tls());
  EXPECT_EQ(socket->handshake().state, IoState::kWouldRead);
  send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(socket->handshake().state, IoState::kPlainHttp);
  socket->drop_tls();
  EXPECT_FALSE(socket->tls());
  EXPECT_EQ(socket->write("plain").state, IoState::kBytes);
  EXPECT_EQ(receive(5), "plain");
}

TEST_F(SocketTest, NonsenseInPlaceOfAHandshakeBreaksIt) {
  testing::HeldCertificate certificate;
  const auto socket = accept(certificate.current());
  send(std::string(64, '\x7f'));
  EXPECT_EQ(socket->handshake().state, IoState::kBroken);
}

TEST_F(SocketTest, OverTlsBytesGoBothWays) {
  testing::HeldCertificate certificate;
  Peer peer(listener_.local_endpoint().port());
  tcp::socket accepted = listener_.accept();
  accepted.non_blocking(true);
  Socket socket(std::move(accepted), certificate.current());
  bool shaken = false;
  std::jthread other_end([&] { shaken = peer.start_tls(); });
  IoResult result = socket.handshake();
  while (result.state == IoState::kWouldRead) {
    pollfd readable{socket.stream().native_handle(), POLLIN, 0};
    ASSERT_EQ(::poll(&readable, 1, 30'000), 1);
    result = socket.handshake();
  }
  ASSERT_EQ(result.state, IoState::kBytes);
  other_end.join();
  ASSERT_TRUE(shaken);
  ASSERT_TRUE(peer.write("hello"));
  std::array<char, 2> two{};
  EXPECT_EQ(socket.read(two).bytes, 2U);
  EXPECT_TRUE(socket.has_buffered()) << "the record's rest was received with its beginning";
  EXPECT_FALSE(socket.quiet());
  const IoResult rest = socket.read(buffer_);
  EXPECT_EQ(std::string_view(buffer_.data(), rest.bytes), "llo");
  EXPECT_EQ(socket.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").state, IoState::kBytes);
  EXPECT_EQ(peer.read_response()->body, "ok");
}

}  // namespace
}  // namespace plimsoll::http
