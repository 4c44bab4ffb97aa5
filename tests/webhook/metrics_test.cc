#include "webhook/metrics.h"

#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include "tests/http/peer.h"
#include "tests/webhook/test_server.h"

namespace plimsoll::webhook {
namespace {

using std::chrono::milliseconds;

class AdmissionMetricsTest : public ::testing::Test {
 protected:
  void expect(const std::string& line) const {
    const std::string text = prometheus::TextSerializer().Serialize(registry_.Collect());
    EXPECT_NE(text.find(line + "\n"), std::string::npos) << line << "\n" << text;
  }

  prometheus::Registry registry_;
  AdmissionMetrics metrics_{registry_};
};

TEST_F(AdmissionMetricsTest, CountRequestsByWhatWasDecided) {
  metrics_.record("mutate", true, "Provisioned", milliseconds(3));
  metrics_.record("mutate", true, "Provisioned", milliseconds(3));
  metrics_.record("mutate", false, "Invalid", milliseconds(3));
  expect(R"(plimsoll_admission_requests_total{applied="true",reason="Provisioned",webhook="mutate"} 2)");
  expect(R"(plimsoll_admission_requests_total{applied="false",reason="Invalid",webhook="mutate"} 1)");
}

TEST_F(AdmissionMetricsTest, DurationsAreSecondsOfEachWebhook) {
  expect(R"(plimsoll_admission_duration_seconds_count{webhook="validate"} 0)");  // there before the first
  metrics_.record("mutate", true, "Provisioned", milliseconds(250));
  metrics_.record("mutate", true, "Provisioned", milliseconds(4000));
  expect(R"(plimsoll_admission_duration_seconds_sum{webhook="mutate"} 4.25)");
  expect(R"(plimsoll_admission_duration_seconds_bucket{webhook="mutate",le="0.1"} 0)");
  expect(R"(plimsoll_admission_duration_seconds_bucket{webhook="mutate",le="0.25"} 1)");
  expect(R"(plimsoll_admission_duration_seconds_bucket{webhook="mutate",le="5"} 2)");
  expect(R"(plimsoll_admission_duration_seconds_count{webhook="validate"} 0)");
}

TEST_F(AdmissionMetricsTest, SavedGpusAddUp) {
  expect("plimsoll_admission_gpus_saved_total 0");
  metrics_.record_saved(96);
  metrics_.record_saved(4);
  expect("plimsoll_admission_gpus_saved_total 100");
}

TEST(ServerMetrics, TellOfDecisionsWhereASchedulerGivesTurns) {
  testing::TestServer server;
  const http::FileCertificateSource certificates({.directory = "nowhere"});
  const auto text_of = [&](const DecisionScheduler* scheduler) {
    return prometheus::TextSerializer().Serialize(
        ServerMetrics(server.server(), certificates, scheduler).Collect());
  };
  DecisionScheduler scheduler({.slots = 2, .max_long = 1});
  const Result<DecisionScheduler::Turn> turn = scheduler.enter("ads", DecisionScheduler::Time::max(), {});
  ASSERT_TRUE(turn.ok());
  const std::string text = text_of(&scheduler);
  EXPECT_NE(text.find(R"(plimsoll_admission_decisions{state="running"} 1)"), std::string::npos) << text;
  EXPECT_NE(text.find(R"(plimsoll_admission_decisions{state="waiting"} 0)"), std::string::npos) << text;
  EXPECT_EQ(text_of(nullptr).find("plimsoll_admission_decisions"), std::string::npos);
}

TEST(ServerMetrics, TellOfTheServerAndItsCertificate) {
  testing::TestServer server;
  testing::Peer peer(server.port());
  ASSERT_TRUE(peer.start_tls());
  peer.write("no HTTP\r\n\r\n");
  EXPECT_TRUE(peer.read_response().has_value());
  const http::FileCertificateSource certificates({.directory = "nowhere"});
  const std::string text =
      prometheus::TextSerializer().Serialize(ServerMetrics(server.server(), certificates).Collect());
  EXPECT_NE(text.find(R"(plimsoll_webhook_rejected_total{reason="malformed"} 1)"), std::string::npos) << text;
  EXPECT_NE(text.find("plimsoll_admission_in_flight 0"), std::string::npos) << text;
  EXPECT_NE(text.find("plimsoll_webhook_connections"), std::string::npos) << text;
  EXPECT_EQ(text.find("expiration"), std::string::npos) << text;  // there is no certificate
}

}  // namespace
}  // namespace plimsoll::webhook
