#include "operator/ops_servers.h"

#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include <fstream>

#include "tests/controlplane/scratch_directory.h"
#include "tests/http/peer.h"
#include "tests/operator/review_client.h"

namespace plimsoll::process {
namespace {

using testing::Peer;
using testing::Response;

class OpsServersTest : public ::testing::Test {
 protected:
  OpsServersTest() {
    options_.ops_address = "127.0.0.1";
    options_.ops_port = 0;
    options_.metrics_port = 0;
  }

  static int status_of(std::uint16_t port, const std::string& path, bool tls) {
    Peer peer(port);
    EXPECT_TRUE(!tls || peer.start_tls());
    EXPECT_TRUE(peer.write("GET " + path + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer reader\r\n\r\n"));
    return peer.read_response().value_or(Response{}).status;
  }
  static int port_in(const std::string& file) {
    int port = 0;
    std::ifstream(file) >> port;
    return port;
  }

  ServerOptions options_;
  testing::ReviewClient client_;
  const Collectables metrics_{std::make_shared<prometheus::Registry>()};
};

TEST_F(OpsServersTest, SecureMetricsHaveAPortOfTheirOwn) {
  const auto folder = *testing::ScratchDirectory::create();
  options_.ops_port_file = folder->file("ops");
  options_.metrics_port_file = folder->file("metrics");
  OpsServers servers(options_, {}, metrics_, client_);
  ASSERT_TRUE(servers.start().ok());
  ASSERT_TRUE(servers.write_port_files().ok());
  EXPECT_NE(servers.metrics_port(), servers.ops_port());
  EXPECT_EQ(status_of(servers.ops_port(), "/readyz", false), 200);
  EXPECT_EQ(status_of(servers.ops_port(), "/metrics", false), 404);
  EXPECT_EQ(status_of(servers.metrics_port(), "/metrics", true), 200);
  EXPECT_EQ(port_in(options_.ops_port_file), servers.ops_port());
  EXPECT_EQ(port_in(options_.metrics_port_file), servers.metrics_port());
  servers.stop();
}

TEST_F(OpsServersTest, OpenMetricsAreOnTheOpsPort) {
  options_.metrics_secure = false;
  OpsServers servers(options_, {}, metrics_, client_);
  ASSERT_TRUE(servers.start().ok());
  ASSERT_TRUE(servers.write_port_files().ok());
  EXPECT_EQ(servers.metrics_port(), servers.ops_port());
  EXPECT_EQ(status_of(servers.ops_port(), "/metrics", false), 200);
  EXPECT_EQ(client_.reviews(), 0);
}

TEST_F(OpsServersTest, APortThatIsTakenIsAnError) {
  OpsServers first(options_, {}, metrics_, client_);
  ASSERT_TRUE(first.start().ok());
  options_.metrics_port = first.metrics_port();
  OpsServers second(options_, {}, metrics_, client_);
  EXPECT_FALSE(second.start().ok());
}

}  // namespace
}  // namespace plimsoll::process
