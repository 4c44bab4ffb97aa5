#include "operator/ops_server.h"

#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/http/peer.h"

namespace plimsoll::process {
namespace {

using testing::Peer;
using testing::Response;

OpsServerOptions loopback() {
  OpsServerOptions options;
  options.address = "127.0.0.1";
  options.port = 0;
  return options;
}

Response get(const OpsServer& server, const std::string& path, const std::string& method = "GET") {
  Peer peer(server.port());
  EXPECT_TRUE(peer.write(method + " " + path + " HTTP/1.1\r\nHost: x\r\n\r\n"));
  const std::optional<Response> answer = peer.read_response(method == "HEAD");
  EXPECT_TRUE(answer.has_value());
  return answer.value_or(Response{});
}

TEST(OpsServer, IsHealthyAsLongAsItAnswers) {
  OpsServer server(loopback());
  ASSERT_TRUE(server.start().ok());
  EXPECT_EQ(get(server, "/healthz").status, 200);
  EXPECT_EQ(get(server, "/healthz", "HEAD").status, 200);
  EXPECT_EQ(get(server, "/healthz", "POST").status, 405);
  EXPECT_EQ(get(server, "/").status, 404);
  EXPECT_EQ(get(server, "/debug/pprof").status, 404);
}

TEST(OpsServer, IsReadyWhenEveryCheckPasses) {
  std::atomic<bool> synced = false;
  OpsServerOptions options = loopback();
  options.checks.push_back({"always", [] { return Result<void>(); }});
  options.checks.push_back({"caches", [&]() -> Result<void> {
                              return synced ? Result<void>()
                                            : Error(ErrorCode::kUnavailable, "nothing listed yet");
                            }});
  OpsServer server(options);
  ASSERT_TRUE(server.start().ok());
  const Response before = get(server, "/readyz");
  EXPECT_EQ(before.status, 503);
  EXPECT_NE(before.body.find("[+]always ok"), std::string::npos);
  EXPECT_NE(before.body.find("[-]caches: nothing listed yet"), std::string::npos);
  synced = true;
  EXPECT_EQ(get(server, "/readyz").status, 200);
  EXPECT_EQ(get(server, "/readyz?verbose").status, 200);
}

TEST(OpsServer, ServesTheMetricsThatItIsGiven) {
  OpsServerOptions options = loopback();
  options.metrics = {std::make_shared<prometheus::Registry>()};
  OpsServer open(options);
  ASSERT_TRUE(open.start().ok());
  EXPECT_EQ(get(open, "/metrics").status, 200);
  EXPECT_EQ(get(open, "/metrics").content_type, "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(get(open, "/metrics", "POST").status, 405);
  OpsServer closed(loopback());
  ASSERT_TRUE(closed.start().ok());
  const Response refusal = get(closed, "/metrics");
  EXPECT_EQ(refusal.status, 404);
  EXPECT_NE(refusal.body.find("--metrics-port"), std::string::npos);
}

TEST(WritePortFile, WritesItWholeOrSaysWhyNot) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("port-" + std::to_string(::getpid()))).string();
  ASSERT_TRUE(write_port_file(path, 9443).ok());
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), "9443\n");
  std::filesystem::remove(path);
  EXPECT_TRUE(write_port_file("", 1).ok());
  EXPECT_FALSE(write_port_file("/nowhere/at/all", 1).ok());
}

}  // namespace
}  // namespace plimsoll::process
