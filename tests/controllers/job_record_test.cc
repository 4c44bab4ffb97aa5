#include "controllers/job_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controllers/job_children.h"
#include "tests/estimator/provisioner_fixture.h"
#include "tests/kube/partial_client.h"
#include "tests/kube/virtual_clock.h"

namespace plimsoll::controllers {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// One TrainingJob, as an API server keeps it.
class JobClient final : public testing::PartialClient {
 public:
  Result<Json> get(const kube::Resource&, const std::string&, const std::string&,
                   const kube::CallOptions&) override {
    return answer_.value_or(object);
  }
  Result<Json> update(const kube::Resource& resource, const std::string& namespace_name, const Json& next,
                      const std::string& subresource, const kube::CallOptions&) override {
    calls.push_back(kube::path_of(resource, namespace_name, "ads", subresource) + " " +
                    text_member(next, {"metadata", "resourceVersion"}));
    return write([&] { object["status"] = next["status"]; });
  }
  Result<Json> patch(const kube::Resource&, const std::string&, const std::string&, kube::PatchType type,
                     const Json& patch, const std::string&, const kube::CallOptions&) override {
    EXPECT_EQ(type, kube::PatchType::kJson);
    calls.push_back(write_json(patch));
    return write([&] { object["spec"]["trainers"]["replicas"] = 16; });
  }
  Result<void> remove(const kube::Resource&, const std::string&, const std::string& name,
                      const kube::CallOptions& options) override {
    calls.push_back(name + " " + options.uid + " " + options.resource_version);
    return answer_ ? Result<void>(answer_->error()) : Result<void>();
  }
  void fail(ErrorCode code) { answer_ = Error(code, "told to fail"); }

  Json object;
  std::vector<std::string> calls;

 private:
  template <class Change>
  Result<Json> write(Change change) {
    if (answer_) {
      return *answer_;
    }
    change();
    object["metadata"]["resourceVersion"] = "8";
    return object;
  }

  std::optional<Result<Json>> answer_;
};

class JobRecordTest : public ::testing::Test {
 protected:
  JobRecordTest() {
    client_.object = testing::job_object(4, 1000, 8);
    client_.object["metadata"]["namespace"] = "ml";
    client_.object["metadata"]["uid"] = "u-1";
    client_.object["metadata"]["resourceVersion"] = "7";
    client_.object["metadata"]["generation"] = 3;
    context_.client = &client_;
    context_.clock = &clock_;
  }
  JobRecord record() { return {context_, client_.object, testing::decode(client_.object), call_}; }

  testing::VirtualClock clock_;
  JobClient client_;
  PassContext context_;
  const kube::CallOptions call_;
};

TEST_F(JobRecordTest, WritesTheStatusOfTheStateThatItRead) {
  JobRecord record = this->record();
  EXPECT_EQ(record.uid(), "u-1");
  EXPECT_EQ(record.job().name, "ads");
  EXPECT_FALSE(record.has_changes());
  clock_.pass(std::chrono::seconds(90));
  record.set("Running", true, "PodsReady", "8 of 8 pods are ready");
  EXPECT_TRUE(record.has_changes());
  EXPECT_THAT(client_.calls, IsEmpty()) << "changes are kept";
  ASSERT_TRUE(record.write());
  EXPECT_THAT(client_.calls,
              ElementsAre("/apis/plimsoll.dev/v1alpha1/namespaces/ml/trainingjobs/ads/status 7"));
  const Json& condition = client_.object["status"]["conditions"][0];
  EXPECT_EQ(condition["type"].asString(), "Running");
  EXPECT_EQ(condition["status"].asString(), "True");
  EXPECT_EQ(condition["reason"].asString(), "PodsReady");
  EXPECT_EQ(condition["observedGeneration"].asInt(), 3);
  EXPECT_EQ(condition["lastTransitionTime"].asString(), "1970-01-01T00:01:30Z");
  EXPECT_FALSE(record.has_changes());
  EXPECT_EQ(text_member(record.object(), {"metadata", "resourceVersion"}), "8") << "its own write is known";
}

TEST_F(JobRecordTest, WithoutChangesNothingIsWritten) {
  JobRecord record = this->record();
  record.set("Running", true, "PodsReady", "all");
  ASSERT_TRUE(record.write());
  record.set("Running", true, "PodsReady", "all");
  ASSERT_TRUE(record.write());
  EXPECT_EQ(client_.calls.size(), 1U);
}

TEST_F(JobRecordTest, AFailedWriteIsAnErrorAndTheChangesStay) {
  JobRecord record = this->record();
  record.set("Running", true, "PodsReady", "all");
  client_.fail(ErrorCode::kConflict);
  EXPECT_EQ(record.write().error().code, ErrorCode::kConflict);
  EXPECT_TRUE(record.has_changes());
  EXPECT_EQ(text_member(record.object(), {"metadata", "resourceVersion"}), "7");
}

TEST_F(JobRecordTest, APatchTestsTheStateThatItRead) {
  JobRecord record = this->record();
  ASSERT_TRUE(record.patch(Json(::Json::arrayValue)));
  EXPECT_THAT(client_.calls, IsEmpty());
  ASSERT_TRUE(record.patch(*parse_json(R"([{"op":"replace","path":"/spec/trainers/replicas","value":16}])")));
  const Json sent = *parse_json(client_.calls.front());
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent[0], *parse_json(R"({"op":"test","path":"/metadata/resourceVersion","value":"7"})"));
  EXPECT_EQ(sent[1]["path"].asString(), "/spec/trainers/replicas");
  EXPECT_EQ(record.job().spec.trainers.replicas, 16);
  EXPECT_EQ(text_member(record.object(), {"metadata", "resourceVersion"}), "8");
}

TEST_F(JobRecordTest, IsCurrentWhileTheServerHasTheSameState) {
  const JobRecord record = this->record();
  EXPECT_TRUE(record.check_current());
  client_.object["metadata"]["resourceVersion"] = "9";
  EXPECT_EQ(record.check_current().error().code, ErrorCode::kConflict);
  client_.object["metadata"]["resourceVersion"] = "7";
  client_.object["metadata"]["uid"] = "u-2";
  EXPECT_EQ(record.check_current().error().code, ErrorCode::kConflict) << "another job of the name";
  client_.fail(ErrorCode::kNotFound);
  EXPECT_EQ(record.check_current().error().code, ErrorCode::kNotFound);
}

TEST_F(JobRecordTest, RemovesTheJobInTheStateThatItRead) {
  const JobRecord record = this->record();
  ASSERT_TRUE(record.remove());
  EXPECT_THAT(client_.calls, ElementsAre("ads u-1 7"));
  client_.fail(ErrorCode::kNotFound);
  EXPECT_TRUE(record.remove()) << "somebody else has";
  client_.fail(ErrorCode::kConflict);
  EXPECT_EQ(record.remove().error().code, ErrorCode::kConflict);
}

}  // namespace
}  // namespace plimsoll::controllers
