#include "webhook/admission_handler.h"

#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include "base/log.h"
#include "tests/webhook/peer.h"
#include "tests/webhook/samples.h"
#include "tests/webhook/test_server.h"

namespace plimsoll::webhook {
namespace {

using namespace std::chrono_literals;
using testing::sample_job;
using testing::sample_review;

HttpRequest post(const std::string& path, const Json& review) {
  return {.method = "POST",
          .path = path,
          .query = "timeout=5s",
          .content_type = "application/json",
          .body = write_json(review),
          .received = std::chrono::steady_clock::now()};
}

TEST(TimeToAnswer, IsWhatTheApiServerGivesLessAMargin) {
  EXPECT_EQ(time_to_answer("timeout=5s"), 4800ms);
  EXPECT_EQ(time_to_answer("dryRun=All&timeout=1m"), 29800ms);
  EXPECT_EQ(time_to_answer("timeout=1.5s&x"), 1300ms);
  EXPECT_EQ(time_to_answer("timeout=300ms"), 150ms);
  for (const char* query :
       {"", "timeout", "timeout=", "timeout=0s", "timeout=-3s", "timeout=soon", "timeout=5", "&&&"}) {
    EXPECT_EQ(time_to_answer(query), 9800ms) << query;
  }
}

TEST(AdmissionHandler, CountsWhatItDoes) {
  configure_log(LogLevel::kError, LogFormat::kText);
  prometheus::Registry registry;
  AdmissionMetrics metrics(registry);
  estimator::ClusterViewStore cluster;
  cluster.set(testing::sample_view());
  const AdmissionHandler handler({.cluster = &cluster, .tables = nullptr, .metrics = &metrics});

  const HttpResponse given = handler.handle(post(kMutatePath, sample_review(sample_job())));
  const Json patch = testing::patch_of(testing::response_of(given.body, "1f0c7a52"));
  const std::int64_t saved =
      128 - testing::patched(sample_job(), patch)["spec"]["trainers"]["replicas"].asInt64();
  Json invalid = sample_job();
  invalid["spec"]["training"]["batchSizePerTrainer"] = 0;
  handler.handle(post(kMutatePath, sample_review(invalid)));
  handler.handle(post(kValidatePath, sample_review(invalid)));
  handler.handle(post(kValidatePath, Json("nonsense")));
  handler.handle(post("/elsewhere", Json()));

  const std::string text = prometheus::TextSerializer().Serialize(registry.Collect());
  const auto counted = [&](const std::string& line) { return text.find(line) != std::string::npos; };
  EXPECT_TRUE(
      counted(R"(plimsoll_admission_requests_total{applied="true",reason="Provisioned",webhook="mutate"} 1)"))
      << text;
  EXPECT_TRUE(
      counted(R"(plimsoll_admission_requests_total{applied="false",reason="Malformed",webhook="mutate"} 1)"))
      << text;
  EXPECT_TRUE(
      counted(R"(plimsoll_admission_requests_total{applied="false",reason="Invalid",webhook="validate"} 1)"))
      << text;
  EXPECT_TRUE(counted(
      R"(plimsoll_admission_requests_total{applied="false",reason="BadReview",webhook="validate"} 1)"))
      << text;
  EXPECT_TRUE(counted(R"(plimsoll_admission_duration_seconds_count{webhook="mutate"} 2)")) << text;
  EXPECT_TRUE(counted(R"(plimsoll_admission_duration_seconds_count{webhook="validate"} 2)")) << text;
  EXPECT_TRUE(counted("plimsoll_admission_gpus_saved_total " + std::to_string(saved))) << text;
}

TEST(ServerMetrics, TellOfTheServerAndItsCertificate) {
  testing::TestServer server;
  testing::Peer peer(server.port());
  ASSERT_TRUE(peer.start_tls());
  peer.write("no HTTP\r\n\r\n");
  EXPECT_TRUE(peer.read_response().has_value());
  const FileCertificateSource certificates({.directory = "nowhere"});
  const std::string text =
      prometheus::TextSerializer().Serialize(ServerMetrics(server.server(), certificates).Collect());
  EXPECT_NE(text.find(R"(plimsoll_webhook_rejected_total{reason="malformed"} 1)"), std::string::npos) << text;
  EXPECT_NE(text.find("plimsoll_admission_in_flight 0"), std::string::npos) << text;
  EXPECT_NE(text.find("plimsoll_webhook_connections"), std::string::npos) << text;
  EXPECT_EQ(text.find("expiration"), std::string::npos) << text;  // there is no certificate
}

}  // namespace
}  // namespace plimsoll::webhook
