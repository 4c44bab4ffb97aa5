#include "controllers/calibration.h"

#include <gmock/gmock.h>
#include <prometheus/text_serializer.h>

#include <utility>

#include "crds/profile_samples.h"
#include "estimator/provisioner/cluster_view.h"
#include "tests/controllers/memory_cluster.h"
#include "tests/testing/eventually.h"

namespace plimsoll::controllers {
namespace {

using plimsoll::testing::eventually;
using plimsoll::testing::MemoryCluster;
using std::chrono::milliseconds;
using ::testing::Ge;
using ::testing::HasSubstr;

Json job(const std::string& name, const std::string& family, const std::vector<std::string>& attempts) {
  Json object;
  object["apiVersion"] = crds::kApiVersion;
  object["kind"] = "TrainingJob";
  object["metadata"]["name"] = name;
  object["metadata"]["namespace"] = "ml";
  object["metadata"]["uid"] = "uid-of-" + name;
  object["spec"]["model"]["family"] = family;
  for (const std::string& attempt : attempts) {
    object["status"]["attempts"].append(*parse_json(attempt));
  }
  return object;
}

const char* const kOutOfMemory =
    R"({"number":0,"gpuModel":"a100-80gb","trainers":8,"estimatedBytes":64424509440,"neededBytes":90194313216,)"
    R"("outcome":"CUDAOutOfMemory","completionTime":"2199-11-21T10:00:00Z"})";
const char* const kSucceeded =
    R"({"number":1,"gpuModel":"a100-80gb","trainers":16,"estimatedBytes":75161927680,"learnedBytes":25769803776,)"
    R"("observedPeakBytes":64424509440,"outcome":"Succeeded","completionTime":"2199-11-21T11:00:00Z"})";

// Those that have ended.
std::uint64_t passes(prometheus::Registry& registry) {
  std::uint64_t sum = 0;
  for (const prometheus::MetricFamily& family : registry.Collect()) {
    if (family.name == "workqueue_work_duration_seconds") {
      for (const prometheus::ClientMetric& metric : family.metric) {
        sum += metric.histogram.sample_count;
      }
    }
  }
  return sum;
}

class CalibrationTest : public ::testing::Test {
 protected:
  static CalibrationController::Options fast() {
    CalibrationController::Options options;
    options.retries.initial = milliseconds(2);
    options.retries.cap = milliseconds(50);
    return options;
  }

  std::optional<Json> profile(const std::string& name) {
    return cluster_.find("memoryprofiles", "ml/" + name);
  }

  std::string shortfall(const std::string& name) {
    const std::optional<Json> found = profile(name);
    return found ? text_member((*found)["status"]["bounds"][0], {"shortfall"}) : "";
  }

  // Waits until the profile has learned such a shortfall.
  ::testing::AssertionResult learns(const std::string& name, const std::string& expected) {
    return eventually(
        "the shortfall of " + name, [&] { return shortfall(name); }, expected);
  }

  MemoryCluster cluster_;
};

TEST_F(CalibrationTest, AJobThatRanOutTeachesItsFamily) {
  CalibrationController calibration(cluster_, estimator::GpuCatalog::built_in(), fast());
  calibration.start();
  ASSERT_TRUE(eventually("calibration is ready", [&] { return calibration.ready(); }));
  EXPECT_TRUE(cluster_.names("memoryprofiles").empty());
  cluster_.put("trainingjobs", job("one", "ads", {kOutOfMemory}));
  ASSERT_TRUE(learns("ads", "24Gi"));
  const Json first = *profile("ads");
  EXPECT_EQ(first["spec"]["family"], "ads");
  EXPECT_EQ(first["status"]["statistics"]["jobs"].asInt(), 1);
  EXPECT_EQ(first["status"]["updateTime"], "2199-11-21T10:00:00Z");
  cluster_.put("trainingjobs", job("one", "ads", {kOutOfMemory, kSucceeded}));
  ASSERT_TRUE(eventually("the second attempt", [&] {
    return (*profile("ads"))["status"]["samples"][0]["lastAttempt"] == Json(1);
  }));
  EXPECT_EQ(shortfall("ads"), "24Gi");
  EXPECT_EQ((*profile("ads"))["status"]["samples"].size(), 1U);
}

TEST_F(CalibrationTest, WritesNothingWhenNothingIsNew) {
  prometheus::Registry registry;
  CalibrationController::Options options = fast();
  options.registry = &registry;
  cluster_.put("trainingjobs", job("one", "ads", {kOutOfMemory}));
  CalibrationController calibration(cluster_, estimator::GpuCatalog::built_in(), options);
  calibration.start();
  ASSERT_TRUE(learns("ads", "24Gi"));
  const auto writes_after_a_change = [&](const Json& changed) {
    const std::uint64_t before = passes(registry);
    for (std::uint64_t i = 1; i <= 2; ++i) {  // the first may be of a pass that was under way
      cluster_.put("trainingjobs", changed);
      EXPECT_TRUE(eventually(
          "a pass", [&] { return passes(registry); }, Ge(before + i)));
    }
    return cluster_.writes();
  };
  const Json one = job("one", "ads", {kOutOfMemory});
  // What it wrote comes back to it by its watch; before that it may try once more, and meet a conflict.
  int writes = cluster_.writes();
  ASSERT_TRUE(eventually("a pass that knows what it wrote", [&] {
    const int before = std::exchange(writes, writes_after_a_change(one));
    return writes == before;
  }));
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(writes_after_a_change(one), writes);
    EXPECT_EQ(writes_after_a_change(job("no-family", "", {kOutOfMemory})), writes);
    EXPECT_EQ(writes_after_a_change(job("running", "ads", {R"({"number":0,"outcome":"Running"})"})), writes);
  }
  calibration.stop();

  CalibrationController again(cluster_, estimator::GpuCatalog::built_in(), fast());
  again.start();
  ASSERT_TRUE(eventually("all jobs are looked at again", [&] { return again.ready(); }));
  EXPECT_EQ(cluster_.writes(), writes) << "a new operator counts nothing again";
}

TEST_F(CalibrationTest, ManyJobsAtOnceAreEachCountedOnceThoughWritesFail) {
  cluster_.fail_writes(7);
  for (int i = 0; i < 40; ++i) {
    cluster_.put("trainingjobs",
                 job("job-" + std::to_string(i), i % 2 == 0 ? "ads" : "feed", {kOutOfMemory}));
  }
  CalibrationController calibration(cluster_, estimator::GpuCatalog::built_in(), fast());
  calibration.start();
  for (const char* family : {"ads", "feed"}) {
    EXPECT_TRUE(eventually("20 jobs are counted", [&] {
      const std::optional<Json> found = profile(family);
      return found && (*found)["status"]["statistics"]["jobs"] == Json(20);
    })) << family;
  }
}

TEST_F(CalibrationTest, KeepsWhatPeopleWroteAndMakesAgainWhatIsGone) {
  Json mine;
  mine["apiVersion"] = crds::kApiVersion;
  mine["kind"] = "MemoryProfile";
  mine["metadata"]["name"] = "my-name-for-it";
  mine["metadata"]["namespace"] = "ml";
  mine["spec"]["family"] = "ads";
  mine["spec"]["bounds"][0]["cudaContext"] = "1Gi";
  cluster_.put("memoryprofiles", mine);
  cluster_.put("trainingjobs", job("one", "ads", {kOutOfMemory}));
  CalibrationController calibration(cluster_, estimator::GpuCatalog::built_in(), fast());
  calibration.start();
  ASSERT_TRUE(learns("my-name-for-it", "24Gi"));
  EXPECT_EQ((*profile("my-name-for-it"))["spec"], mine["spec"]);
  EXPECT_EQ(cluster_.names("memoryprofiles").size(), 1U);
  cluster_.erase("memoryprofiles", "ml/my-name-for-it");
  EXPECT_TRUE(learns("ads", "24Gi"));
}

TEST_F(CalibrationTest, ANameThatIsTakenIsLeftToItsOwner) {
  Json other;
  other["metadata"]["name"] = "ads";
  other["metadata"]["namespace"] = "ml";
  other["spec"]["family"] = "another";
  cluster_.put("memoryprofiles", other);
  cluster_.put("trainingjobs", job("one", "ads", {kOutOfMemory}));
  CalibrationController calibration(cluster_, estimator::GpuCatalog::built_in(), fast());
  calibration.start();
  EXPECT_TRUE(learns(profile_name("ads", true), "24Gi"));
}

TEST_F(CalibrationTest, ADamagedStatusStopsNobodyElse) {
  Json damaged = job("damaged", "ads", {});
  damaged["status"]["attempts"] = "none";
  cluster_.put("trainingjobs", damaged);
  damaged = job("worse", "ads",
                {R"({"number":-1,"outcome":"CUDAOutOfMemory","estimatedBytes":"x","neededBytes":-7})"});
  damaged["spec"]["failurePolicy"] = 3;
  cluster_.put("trainingjobs", damaged);
  cluster_.put("trainingjobs", job("good", "ads", {kOutOfMemory}));
  CalibrationController calibration(cluster_, estimator::GpuCatalog::built_in(), fast());
  calibration.start();
  EXPECT_TRUE(learns("ads", "24Gi"));
}

TEST_F(CalibrationTest, TellsPrometheusOfWhatEndedSinceTheStart) {
  prometheus::Registry registry;
  CalibrationController::Options options = fast();
  options.registry = &registry;
  Json before = job("before", "ads", {kOutOfMemory});
  before["status"]["attempts"][0]["completionTime"] = "2001-01-01T00:00:00Z";
  cluster_.put("trainingjobs", before);
  cluster_.put("trainingjobs", job("one", "", {kOutOfMemory, kSucceeded}));
  CalibrationController calibration(cluster_, estimator::GpuCatalog::built_in(), options);
  calibration.start();
  ASSERT_TRUE(eventually("the old job is learned from",
                         [&] { return calibration.ready() && !shortfall("ads").empty(); }));
  calibration.stop();
  const std::string text = prometheus::TextSerializer().Serialize(registry.Collect());
  EXPECT_THAT(text, HasSubstr("plimsoll_oom_detected_total{kind=\"cuda\",namespace=\"ml\",profile=\"\"} 1"));
  EXPECT_THAT(
      text, HasSubstr("plimsoll_estimate_relative_error_count{gpu_product=\"a100-80gb\",is_oom=\"true\"} 1"));
  EXPECT_THAT(
      text,
      HasSubstr("plimsoll_estimate_relative_error_count{gpu_product=\"a100-80gb\",is_oom=\"false\"} 1"));
}

// A label has at most as many values as a namespace may have profiles, whatever users call their families.
TEST_F(CalibrationTest, TellsPrometheusWhichFamiliesRanOutOfMemory) {
  prometheus::Registry registry;
  CalibrationController::Options options = fast();
  options.registry = &registry;
  cluster_.put("trainingjobs", job("first", "ads", {kOutOfMemory}));
  CalibrationController calibration(cluster_, estimator::GpuCatalog::built_in(), options);
  calibration.start();
  const auto counted = [&](const std::string& profile, int count) {
    return prometheus::TextSerializer()
               .Serialize(registry.Collect())
               .find("plimsoll_oom_detected_total{kind=\"cuda\",namespace=\"ml\",profile=\"" + profile +
                     "\"} " + std::to_string(count) + "\n") != std::string::npos;
  };
  ASSERT_TRUE(eventually("the first job counts", [&] { return counted("ads", 1); }));
  constexpr int kBeyond = 3;
  for (std::size_t i = 1; i < estimator::kProfilesOfNamespace + kBeyond; ++i) {
    const std::string name = "made-up-" + std::to_string(i);
    cluster_.put("trainingjobs", job(name, name, {kOutOfMemory}));
  }
  EXPECT_TRUE(eventually("those beyond the limit count", [&] { return counted("", kBeyond); }));
  cluster_.put("trainingjobs", job("last", "ads", {kOutOfMemory}));
  EXPECT_TRUE(eventually("the last job counts", [&] { return counted("ads", 2); }));
  calibration.stop();
}

// Prometheus, as a client's server.
class DcgmServer final : public plimsoll::testing::MemoryCluster {
 public:
  explicit DcgmServer(std::string body) : body_(std::move(body)) {}
  Result<std::string> get_raw(const std::string& path, const kube::CallOptions&) override {
    EXPECT_THAT(path, HasSubstr("/api/v1/query?query=max%28max_over_time%28DCGM_FI_DEV_FB_USED"));
    EXPECT_THAT(path, HasSubstr("&time=2199-11-21T11%3A00%3A00Z"));
    return body_;
  }

 private:
  const std::string body_;
};

TEST_F(CalibrationTest, DcgmSaysWhatNoSignpostDid) {
  const char* const silent =
      R"({"number":0,"gpuModel":"a100-80gb","trainers":16,"estimatedBytes":64424509440,"outcome":"Succeeded",)"
      R"("startTime":"2199-11-21T10:00:00Z","completionTime":"2199-11-21T11:00:00Z"})";
  DcgmServer answers(R"({"status":"success","data":{"result":[{"value":[1,"63488"]}]}})");
  CalibrationController::Options options = fast();
  options.prometheus = &answers;
  cluster_.put("trainingjobs", job("silent", "ads", {silent}));
  {
    CalibrationController calibration(cluster_, estimator::GpuCatalog::built_in(), options);
    calibration.start();
    EXPECT_TRUE(learns("ads", "2Gi")) << "62 GiB seen, 60 estimated";
  }
  DcgmServer broken("<html>not found</html>");
  options.prometheus = &broken;
  cluster_.put("trainingjobs", job("silent-too", "feed", {silent}));
  CalibrationController calibration(cluster_, estimator::GpuCatalog::built_in(), options);
  calibration.start();
  EXPECT_TRUE(eventually("the job is learned from without Prometheus", [&] {
    return profile("feed") && (*profile("feed"))["status"]["statistics"]["jobs"] == Json(1);
  }));
}

}  // namespace
}  // namespace plimsoll::controllers
