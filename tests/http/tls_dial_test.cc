#include "http/tls_dial.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>  // before asio's headers, which need it under C++20

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>

#include "http/server.h"
#include "tests/http/test_certificates.h"

namespace plimsoll::http {
namespace {

using boost::asio::ip::tcp;
using std::chrono::milliseconds;

constexpr milliseconds kEnough{30'000};

TEST(DialTls, ShakesHandsWithoutVerifyingTheCertificate) {
  Server server(
      testing::test_options(),
      [](const Request&) {
        return Response{200, "text/plain", ""};
      },
      std::make_shared<testing::HeldCertificate>());
  ASSERT_TRUE(server.start());
  EXPECT_TRUE(dial_tls("127.0.0.1", server.port(), kEnough));
  EXPECT_TRUE(dial_tls("0.0.0.0", server.port(), kEnough)) << "any address is reached on the loopback";
}

TEST(DialTls, AServerWithoutACertificateIsUnavailable) {
  const auto certificate = std::make_shared<testing::HeldCertificate>();
  Server server(
      testing::test_options(),
      [](const Request&) {
        return Response{200, "text/plain", ""};
      },
      certificate);
  ASSERT_TRUE(server.start());
  certificate->clear();
  EXPECT_EQ(dial_tls("127.0.0.1", server.port(), kEnough).error().code, ErrorCode::kUnavailable);
  certificate->swap();
  EXPECT_TRUE(dial_tls("127.0.0.1", server.port(), kEnough));
}

TEST(DialTls, TheAddressIsANumber) {
  for (const char* address : {"", "localhost", "127.0.0.1:443", "256.0.0.1"}) {
    EXPECT_EQ(dial_tls(address, 443, kEnough).error().code, ErrorCode::kInvalid) << address;
  }
}

class DialTlsLoopback : public ::testing::Test {
 protected:
  std::uint16_t port() const { return listener_.local_endpoint().port(); }

  boost::asio::io_context io_;
  tcp::acceptor listener_{io_, {boost::asio::ip::address_v4::loopback(), 0}};
};

TEST_F(DialTlsLoopback, NobodyListeningIsUnavailable) {
  const std::uint16_t closed = port();
  listener_.close();
  EXPECT_EQ(dial_tls("127.0.0.1", closed, kEnough).error().code, ErrorCode::kUnavailable);
}

TEST_F(DialTlsLoopback, SilenceIsATimeout) {
  const Result<void> dialled = dial_tls("127.0.0.1", port(), milliseconds(50));
  ASSERT_FALSE(dialled);
  EXPECT_EQ(dialled.error().code, ErrorCode::kTimeout);
  EXPECT_NE(dialled.error().message.find("50 ms"), std::string::npos);
}

TEST_F(DialTlsLoopback, PlainHttpIsNoHandshake) {
  std::jthread server([this] {
    tcp::socket peer = listener_.accept();
    boost::system::error_code ignored;
    boost::asio::write(peer, boost::asio::buffer(std::string_view("HTTP/1.1 400 Bad Request\r\n\r\n")),
                       ignored);
  });
  EXPECT_EQ(dial_tls("127.0.0.1", port(), kEnough).error().code, ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace plimsoll::http
