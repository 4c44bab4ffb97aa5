#include "webhook/admission_handler.h"

#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/log.h"
#include "tests/testing/patience.h"
#include "tests/webhook/samples.h"
#include "tests/webhook/test_server.h"

namespace plimsoll::webhook {
namespace {

using namespace std::chrono_literals;
using testing::sample_job;
using testing::sample_review;

http::Request post(const std::string& path, const Json& review) {
  return {.method = "POST",
          .path = path,
          .query = "timeout=5s",
          .content_type = "application/json",
          .authorization = {},
          .body = write_json(review),
          .received = std::chrono::steady_clock::now()};
}

TEST(TimeToAnswer, IsWhatTheApiServerGivesLessAMargin) {
  EXPECT_EQ(time_to_answer("timeout=5s"), 4000ms);
  EXPECT_EQ(time_to_answer("dryRun=All&timeout=1m"), 24000ms);
  EXPECT_EQ(time_to_answer("timeout=1.5s&x"), 1200ms);
  EXPECT_EQ(time_to_answer("timeout=300ms"), 240ms);
  for (const char* query :
       {"", "timeout", "timeout=", "timeout=0s", "timeout=-3s", "timeout=soon", "timeout=5", "&&&"}) {
    EXPECT_EQ(time_to_answer(query), 8000ms) << query;
  }
}

TEST(AdmissionHandler, ThePathSaysTheModeOfTheNamespace) {
  configure_log(LogLevel::kError, LogFormat::kText);
  estimator::ClusterViewStore cluster;
  cluster.set(testing::sample_view());
  const AdmissionHandler handler({.cluster = &cluster, .policy = {.mode = crds::ProvisioningMode::kInitial}});
  const auto mode_at = [&](const std::string& path) {
    const http::Response answer = handler.handle(post(path.c_str(), sample_review(sample_job())));
    const Json patch = testing::patch_of(testing::response_of(answer.body, "1f0c7a52"));
    return text_member(testing::patched(sample_job(), patch), {"spec", "provisioning", "mode"});
  };
  EXPECT_EQ(mode_at(kMutatePath), "Initial");
  for (const auto& [mode, name] : kModesInPaths) {
    EXPECT_EQ(mode_at(std::string(kMutatePath) + "/" + name), name_of(mode));
  }
  for (const char* unknown : {"", "Auto", "auto/", "off/x"}) {
    const std::string path = std::string(kMutatePath) + "/" + unknown;
    EXPECT_EQ(handler.handle(post(path.c_str(), sample_review(sample_job()))).status, 404) << path;
  }
}

std::string request_id_of(const Json& object) {
  return text_member(object, {"metadata", "annotations", "plimsoll.dev/request-id"});
}

class RequestId : public ::testing::Test {
 protected:
  RequestId() {
    configure_log(LogLevel::kInfo, LogFormat::kJson);
    cluster_.set(testing::sample_view());
  }
  ~RequestId() override { configure_log(LogLevel::kInfo, LogFormat::kText); }

  Json admitted(Json object, const Json& review, const std::string& uid) {
    ::testing::internal::CaptureStderr();
    const http::Response answer = handler_.handle(post(kMutatePath, review));
    log_ = ::testing::internal::GetCapturedStderr();
    return testing::patched(std::move(object), testing::patch_of(testing::response_of(answer.body, uid)));
  }
  Json logged() const {
    const Result<Json> record = parse_json(log_);
    EXPECT_TRUE(record.ok()) << log_;
    return record ? *record : Json();
  }

  estimator::ClusterViewStore cluster_;
  const AdmissionHandler handler_{{.cluster = &cluster_}};
  std::string log_;
};

TEST_F(RequestId, IsWrittenWithTheDecisionAndLogged) {
  const Json job = admitted(sample_job(), sample_review(sample_job(), "CREATE", "u-1"), "u-1");
  EXPECT_EQ(request_id_of(job), "u-1");
  EXPECT_EQ(logged()["msg"], "Provisioned a job");
  EXPECT_EQ(logged()["requestId"], "u-1");
  EXPECT_TRUE(logged()["seconds"].isDouble());
  EXPECT_EQ(logged()["dryRun"], false);
}

TEST_F(RequestId, IsWrittenWithARecommendation) {
  Json object = sample_job();
  object["spec"]["provisioning"]["mode"] = "Off";
  EXPECT_EQ(request_id_of(admitted(object, sample_review(object, "CREATE", "u-1"), "u-1")), "u-1");
}

TEST_F(RequestId, StaysWhereTheDecisionStays) {
  const Json first = admitted(sample_job(), sample_review(sample_job(), "CREATE", "u-1"), "u-1");
  Json again = first;  // as kubectl apply of the original manifest leaves it
  again["spec"] = sample_job()["spec"];
  Json review = testing::update_review(first, again);
  review["request"]["uid"] = "u-2";
  const Json second = admitted(again, review, "u-2");
  EXPECT_EQ(write_json(second), write_json(first));
  EXPECT_EQ(logged()["requestId"], "u-2") << "the log is of the request";
  const Json created = admitted(first, sample_review(first, "CREATE", "u-3"), "u-3");
  EXPECT_EQ(request_id_of(created), "u-1") << "a job that has its decision gets no other";
}

TEST_F(RequestId, ChangesWithTheDecision) {
  const Json first = admitted(sample_job(), sample_review(sample_job(), "CREATE", "u-1"), "u-1");
  Json changed = first;
  changed["spec"]["training"]["batchSizePerTrainer"] =
      2 * sample_job()["spec"]["training"]["batchSizePerTrainer"].asInt();
  Json review = testing::update_review(first, changed);
  review["request"]["uid"] = "u-2";
  EXPECT_EQ(request_id_of(admitted(changed, review, "u-2")), "u-2") << log_;
}

TEST_F(RequestId, IsNotWrittenWithoutADecision) {
  Json object = sample_job();
  object["spec"]["training"]["batchSizePerTrainer"] = 0;
  const Json job = admitted(object, sample_review(object, "CREATE", "u-1"), "u-1");
  EXPECT_EQ(request_id_of(job), "");
  EXPECT_EQ(logged()["msg"], "Left a job unchanged");
  EXPECT_EQ(logged()["requestId"], "u-1");
}

TEST_F(RequestId, OfAReviewThatCannotBeReadIsLoggedToo) {
  Json review = sample_review(sample_job(), "CREATE", "u\n1");
  review["request"]["operation"] = "NONSENSE";
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(handler_.handle(post(kMutatePath, review)).status, 400);
  log_ = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(logged()["msg"], "Failed to read an AdmissionReview");
  EXPECT_EQ(logged()["requestId"], "u 1");
}

TEST(AdmissionHandler, CountsWhatItDoes) {
  configure_log(LogLevel::kError, LogFormat::kText);
  prometheus::Registry registry;
  AdmissionMetrics metrics(registry);
  estimator::ClusterViewStore cluster;
  cluster.set(testing::sample_view());
  const AdmissionHandler handler({.cluster = &cluster, .tables = nullptr, .metrics = &metrics});

  const http::Response given = handler.handle(post(kMutatePath, sample_review(sample_job())));
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

http::Request due_in(std::chrono::milliseconds time, const std::string& path, const Json& review) {
  http::Request request = post(path, review);
  request.received = std::chrono::steady_clock::now() - 4000ms + time;
  return request;
}

// 16 reviews of 2.6 MiB took 2.7 GB.
TEST(AdmissionHandler, AReviewWaitsForItsMemory) {
  configure_log(LogLevel::kError, LogFormat::kText);
  estimator::ClusterViewStore cluster;
  cluster.set(testing::sample_view());
  MemoryPool pool(72_MiB);  // one of them at a time
  const AdmissionHandler handler({.cluster = &cluster, .memory = &pool});
  const Json review = sample_review(sample_job());
  Json large = review;
  large["request"]["object"]["metadata"]["annotations"]["long"] = std::string(2'600'000, 'x');
  std::atomic<int> given = 0;
  {
    std::vector<std::jthread> clients;
    for (int i = 0; i < 16; ++i) {
      clients.emplace_back([&] {
        const http::Response answer = handler.handle(due_in(testing::kPatience, kMutatePath, large));
        given += testing::patch_of(testing::response_of(answer.body, "1f0c7a52")).empty() ? 0 : 1;
      });
    }
  }
  EXPECT_EQ(given, 16);
  EXPECT_GE(pool.stats().most_reserved, memory_of_review(2'600'000));
  EXPECT_LE(pool.stats().most_reserved, 72_MiB);
  EXPECT_EQ(pool.stats().reserved, Bytes());

  // What can never fit, and what does not fit in time: the failurePolicy decides.
  large["request"]["object"]["metadata"]["annotations"]["long"] = std::string(4'000'000, 'x');
  EXPECT_EQ(handler.handle(post(kMutatePath, large)).status, 413);
  const auto others = pool.reserve(pool.largest(), std::chrono::steady_clock::now());
  large["request"]["object"]["metadata"]["annotations"]["long"] = std::string(1'000'000, 'x');
  const http::Response late = handler.handle(due_in(20ms, kValidatePath, large));
  EXPECT_EQ(late.status, 429);
  EXPECT_NE(late.body.find("TooManyRequests"), std::string::npos) << late.body;
  EXPECT_EQ(handler.handle(post(kValidatePath, review)).status, 200);  // small ones do not wait
}

TEST(AdmissionHandler, AnImportWaitsForItsMemoryAndOtherDecisionsDoNot) {
  configure_log(LogLevel::kError, LogFormat::kText);
  estimator::ClusterViewStore cluster;
  cluster.set(testing::sample_view());
  MemoryPool imports(64_MiB);
  const AdmissionHandler handler({.cluster = &cluster, .imports = &imports, .import_memory = 40_MiB});
  Json imported = sample_job();
  Json from;
  from["configMapKeyRef"]["name"] = "tables";
  from["configMapKeyRef"]["key"] = "tables.csv";
  imported["spec"]["model"]["dlrm"].removeMember("tables");
  imported["spec"]["model"]["dlrm"]["tablesFrom"] = from;
  const auto answer_to = [&](const http::Request& request) {
    return testing::response_of(handler.handle(request).body, "1f0c7a52");
  };
  {
    const auto others = imports.reserve(40_MiB, std::chrono::steady_clock::now());
    ASSERT_TRUE(others.ok());
    const Json response = answer_to(due_in(20ms, kMutatePath, sample_review(imported)));
    EXPECT_TRUE(testing::patch_of(response).empty());
    EXPECT_EQ(response["warnings"].size(), 1U) << write_json(response);
    EXPECT_EQ(imports.stats().rejected, 1U);
    EXPECT_FALSE(testing::patch_of(answer_to(post(kMutatePath, sample_review(sample_job())))).empty());
  }
  answer_to(post(kMutatePath, sample_review(imported)));
  EXPECT_EQ(imports.stats().rejected, 1U);
  EXPECT_EQ(imports.stats().most_reserved, 40_MiB);
  EXPECT_EQ(imports.stats().reserved, Bytes());
}

TEST(AdmissionHandler, WithoutATurnTheJobIsKeptAndAValidationIsPutOff) {
  configure_log(LogLevel::kError, LogFormat::kText);
  estimator::ClusterViewStore cluster;
  cluster.set(testing::sample_view());
  DecisionScheduler scheduler({.slots = 1, .max_long = 1});
  const AdmissionHandler handler({.cluster = &cluster, .scheduler = &scheduler});
  const Result<DecisionScheduler::Turn> turn = scheduler.enter("other", DecisionScheduler::Time::max(), {});
  ASSERT_TRUE(turn.ok());
  const Json review = sample_review(sample_job());
  const http::Response kept = handler.handle(due_in(20ms, kMutatePath, review));
  const Json response = testing::response_of(kept.body, "1f0c7a52");
  EXPECT_TRUE(testing::patch_of(response).empty());
  EXPECT_EQ(response["warnings"].size(), 1U) << kept.body;
  EXPECT_EQ(handler.handle(due_in(20ms, kValidatePath, review)).status, 429);
  http::Request stopped = post(kValidatePath, review);
  std::stop_source stop;
  stop.request_stop();
  stopped.stop = stop.get_token();
  EXPECT_EQ(handler.handle(stopped).status, 503);
  EXPECT_TRUE(handler.progress().ok());
}

}  // namespace
}  // namespace plimsoll::webhook
