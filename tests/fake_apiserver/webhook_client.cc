#include "tests/fake_apiserver/webhook_client.h"

#include <utility>  // which Boost 1.74 needs first

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <cctype>
#include <optional>
#include <regex>

namespace plimsoll::testing::fake {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using Clock = std::chrono::steady_clock;

// kube-apiserver keeps 25 idle connections a host.
constexpr std::size_t kIdlePerHost = 25;
constexpr std::uint64_t kAnswerLimit = std::uint64_t{16} << 20;

struct Address {
  std::string host;
  std::string port;
  std::string target;
};

std::optional<Address> parse_url(const std::string& url) {
  static const std::regex form(R"(https://(\[[0-9a-fA-F:.]+\]|[^/:?#]+)(?::(\d+))?(/[^#]*)?)");
  std::smatch parts;
  if (!std::regex_match(url, parts, form)) {
    return std::nullopt;
  }
  Address address;
  address.host = parts[1].str();
  if (address.host.front() == '[') {
    address.host = address.host.substr(1, address.host.size() - 2);
  }
  address.port = parts[2].matched ? parts[2].str() : "443";
  address.target = parts[3].matched ? parts[3].str() : "/";
  return address;
}

}  // namespace

// One TLS connection, used by one call at a time.
class WebhookConnection {
 public:
  WebhookConnection(const std::string& ca_bundle, const Address& address)
      : tls_(asio::ssl::context::tls_client), address_(address) {
    beast::error_code error;
    if (ca_bundle.empty()) {
      tls_.set_default_verify_paths(error);
    } else {
      tls_.add_certificate_authority(asio::buffer(ca_bundle), error);
    }
    bundle_error_ = error;
    tls_.set_verify_mode(asio::ssl::verify_peer);
    stream_.emplace(io_, tls_);
    stream_->set_verify_callback(asio::ssl::host_name_verification(address.host));
  }

  beast::error_code open(Clock::time_point deadline) {
    if (bundle_error_) {
      return bundle_error_;
    }
    // The system's name for IP addresses must not be sent as SNI.
    beast::error_code not_an_address;
    asio::ip::make_address(address_.host, not_an_address);
    if (not_an_address) {
      SSL_set_tlsext_host_name(stream_->native_handle(), address_.host.c_str());
    }
    asio::ip::tcp::resolver resolver(io_);
    beast::error_code error;
    const auto endpoints = resolver.resolve(address_.host, address_.port, error);
    if (error) {
      return error;
    }
    beast::get_lowest_layer(*stream_).expires_at(deadline);
    error = run([&](auto done) {
      beast::get_lowest_layer(*stream_).async_connect(
          endpoints, [done](beast::error_code result, const auto&) { done(result); });
    });
    connected = !error;
    if (error) {
      return error;
    }
    beast::get_lowest_layer(*stream_).socket().set_option(asio::ip::tcp::no_delay(true), error);
    return run([&](auto done) { stream_->async_handshake(asio::ssl::stream_base::client, done); });
  }

  beast::error_code exchange(const std::string& target, const std::string& body, Clock::time_point deadline) {
    http::request<http::string_body> request(http::verb::post, target, 11);
    request.set(http::field::host, address_.host + ":" + address_.port);
    request.set(http::field::content_type, "application/json");
    request.set(http::field::accept, "application/json, */*");
    request.set(http::field::user_agent, "kube-apiserver-admission");
    request.body() = body;
    request.prepare_payload();
    beast::get_lowest_layer(*stream_).expires_at(deadline);
    beast::error_code error = run([&](auto done) {
      http::async_write(*stream_, request, [done](beast::error_code result, std::size_t) { done(result); });
    });
    if (error) {
      return error;
    }
    http::response_parser<http::string_body> parser;
    parser.body_limit(kAnswerLimit);
    error = run([&](auto done) {
      http::async_read(*stream_, buffer_, parser,
                       [done](beast::error_code result, std::size_t) { done(result); });
    });
    if (!error) {
      answer = parser.release();
    }
    return error;
  }

  http::response<http::string_body> answer;
  bool connected = false;

 private:
  template <class Start>
  beast::error_code run(Start start) {
    beast::error_code outcome = asio::error::operation_aborted;
    io_.restart();
    start([&outcome](beast::error_code result) { outcome = result; });
    io_.run();
    return outcome;
  }

  asio::io_context io_;
  asio::ssl::context tls_;
  Address address_;
  beast::error_code bundle_error_;
  std::optional<beast::ssl_stream<beast::tcp_stream>> stream_;
  beast::flat_buffer buffer_;
};

WebhookClient::WebhookClient() = default;
WebhookClient::~WebhookClient() = default;

Result<std::string> WebhookClient::post(const std::string& url, const std::string& ca_bundle,
                                        const std::string& body, std::chrono::milliseconds timeout) {
  const std::optional<Address> address = parse_url(url);
  if (!address) {
    return invalid("the webhook's URL is not of the form https://host[:port]/path", url);
  }
  const auto deadline = Clock::now() + timeout;
  const std::string key = address->host + ":" + address->port + "\n" + ca_bundle;
  const std::string what = "Post \"" + url + "\": ";
  std::unique_ptr<WebhookConnection> connection = take_idle(key);
  beast::error_code error;
  if (connection != nullptr) {
    error = connection->exchange(address->target, body, deadline);
  }
  // A kept connection may have been closed by its other end meanwhile; a review may safely be sent again.
  if (connection == nullptr || (error && error != beast::error::timeout)) {
    connection = std::make_unique<WebhookConnection>(ca_bundle, *address);
    error = connection->open(deadline);
    if (!error) {
      error = connection->exchange(address->target, body, deadline);
    }
  }
  if (error == beast::error::timeout) {
    return Error(ErrorCode::kTimeout, what + "context deadline exceeded");
  }
  if (error && !connection->connected) {
    std::string reason = error.message();  // as Go says it, in lower case
    reason[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(reason[0])));
    return Error(ErrorCode::kUnavailable,
                 what + "dial tcp " + address->host + ":" + address->port + ": connect: " + reason);
  }
  if (error) {
    return Error(ErrorCode::kUnavailable, what + error.message());
  }
  const unsigned status = connection->answer.result_int();
  std::string text = std::move(connection->answer.body());
  if (connection->answer.keep_alive()) {
    keep_idle(key, std::move(connection));
  }
  if (status < 200 || status > 299) {
    return invalid(what + "the server answered with status " + std::to_string(status), text.substr(0, 200));
  }
  return text;
}

std::unique_ptr<WebhookConnection> WebhookClient::take_idle(const std::string& key) {
  const std::lock_guard lock(mutex_);
  auto& connections = idle_[key];
  if (connections.empty()) {
    return nullptr;
  }
  std::unique_ptr<WebhookConnection> connection = std::move(connections.back());
  connections.pop_back();
  return connection;
}

void WebhookClient::keep_idle(const std::string& key, std::unique_ptr<WebhookConnection> connection) {
  const std::lock_guard lock(mutex_);
  auto& connections = idle_[key];
  if (connections.size() < kIdlePerHost) {
    connections.push_back(std::move(connection));
  }
}

}  // namespace plimsoll::testing::fake
