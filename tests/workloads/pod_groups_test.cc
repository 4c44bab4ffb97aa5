#include "workloads/pod_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/yaml.h"

namespace plimsoll::workloads {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

Json yaml(const std::string& text) {
  return parse_yaml_documents(text)->front();
}

Json pod_of(const std::string& gpus) {
  return yaml("{spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: " + gpus + "}}}]}}");
}

TEST(PodGroups, APlaceKnowsItsPointer) {
  const Json object = yaml("{spec: {a/b: {c~d: 7}}}");
  const Place place = Place{object, {}}.at("spec").at("a/b").at("c~d");
  EXPECT_EQ(place.pointer, "/spec/a~1b/c~0d");
  EXPECT_EQ(place.value.integer(), 7);
  EXPECT_EQ(*count_at(place, 1), 7);
  EXPECT_EQ(*count_at(place.at("none"), 3), 3);
  EXPECT_THAT(count_at(Place{object, "/x"}, 1).error().message, HasSubstr("/x must be a whole number"));
}

TEST(PodGroups, ATemplateThatIsMadeOutlivesTheCollector) {
  Collector collector;
  collector.add("made", pod_of("4"), 2, {{"/spec/n"}});
  const Result<Workload> workload = std::move(collector).take();
  ASSERT_TRUE(workload) << workload.error().message;
  const Workload copy = *workload;
  EXPECT_EQ(copy.gpus(), 8);
  EXPECT_TRUE(member(copy.groups[0].pod_template, {"spec", "containers"}).is_array());
  EXPECT_THAT(copy.fixed, IsEmpty());
}

TEST(PodGroups, AFieldThatRepeatsTheGpusFollowsThemOrKeepsTheSize) {
  const auto workload_with = [](const Json& processes) {
    Collector collector;
    collector.add("made", pod_of("4"), 2, {{"/spec/n"}});
    collector.may_repeat_gpus({processes, "/spec/processes"});
    return *std::move(collector).take();
  };
  EXPECT_EQ(workload_with(Json("4")).processes_path, "/spec/processes");
  EXPECT_EQ(workload_with(Json(4)).processes_path, "/spec/processes");
  EXPECT_THAT(workload_with(Json("auto")).processes_path, IsEmpty());
  EXPECT_THAT(workload_with(Json("auto")).fixed, IsEmpty());
  EXPECT_THAT(workload_with(Json(1)).fixed, HasSubstr("/spec/processes is 1, and a pod requests 4 GPUs"));
}

TEST(PodGroups, TheFirstErrorIsKept) {
  Collector collector;
  collector.add("a", pod_of("4"), Error(ErrorCode::kInvalid, "first"), {});
  collector.add("b", pod_of("4"), Error(ErrorCode::kInvalid, "second"), {});
  EXPECT_EQ(std::move(collector).take().error().message, "first");
  EXPECT_EQ(Collector().take().error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace plimsoll::workloads
