#include "operator/metrics_server.h"

#include <gtest/gtest.h>
#include <prometheus/counter.h>
#include <prometheus/registry.h>

#include "tests/http/peer.h"
#include "tests/operator/review_client.h"

namespace plimsoll::process {
namespace {

using testing::Peer;
using testing::Response;

class MetricsServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    prometheus::BuildCounter().Name("plimsoll_one_total").Help("One").Register(*registry_).Add({});
    const Result<void> started = server_.start();
    ASSERT_TRUE(started.ok()) << started.error().message;
  }

  Response answer_to(const std::string& method, const std::string& path, const std::string& token) const {
    Peer peer(server_.port());
    EXPECT_TRUE(peer.start_tls());
    EXPECT_TRUE(peer.write(method + " " + path + " HTTP/1.1\r\nHost: x\r\n" +
                           (token.empty() ? "" : "Authorization: Bearer " + token + "\r\n") + "\r\n"));
    return peer.read_response(method == "HEAD").value_or(Response{});
  }

  testing::ReviewClient client_;
  const std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  MetricsServer server_{{.address = "127.0.0.1", .port = 0, .metrics = {registry_}}, client_};
};

TEST_F(MetricsServerTest, ReadersAloneGetMetrics) {
  const Response metrics = answer_to("GET", "/metrics", "reader");
  EXPECT_EQ(metrics.status, 200);
  EXPECT_NE(metrics.body.find("plimsoll_one_total 0"), std::string::npos);
  EXPECT_EQ(answer_to("HEAD", "/metrics", "reader").status, 200);
  const Response nobody = answer_to("GET", "/metrics", "");
  EXPECT_EQ(nobody.status, 401);
  EXPECT_EQ(nobody.authenticate, "Bearer");
  EXPECT_EQ(answer_to("GET", "/metrics", "made-up").status, 401);
  const Response other = answer_to("GET", "/metrics", "other");
  EXPECT_EQ(other.status, 403);
  EXPECT_EQ(other.body.find("plimsoll_one_total"), std::string::npos);
}

TEST_F(MetricsServerTest, HasNothingElse) {
  EXPECT_EQ(answer_to("GET", "/healthz", "reader").status, 404);
  EXPECT_EQ(answer_to("POST", "/metrics", "reader").status, 405);
  EXPECT_EQ(answer_to("GET", "/metrics/", "reader").status, 404);
}

TEST_F(MetricsServerTest, ATokenOverPlainHttpIsRefused) {
  Peer peer(server_.port());
  EXPECT_TRUE(peer.write("GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer reader\r\n\r\n"));
  EXPECT_EQ(peer.read_response().value_or(Response{}).status, 400);
  EXPECT_EQ(client_.reviews(), 0);
}

TEST_F(MetricsServerTest, APortThatIsTakenIsAnError) {
  MetricsServer second({.address = "127.0.0.1", .port = server_.port(), .metrics = {}}, client_);
  EXPECT_FALSE(second.start().ok());
}

}  // namespace
}  // namespace plimsoll::process
