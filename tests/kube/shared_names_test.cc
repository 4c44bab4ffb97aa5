#include "kube/shared_names.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <vector>

namespace plimsoll::kube {
namespace {

constexpr const char* kPod = R"({
  "metadata": {"name": "a-0", "labels": {"plimsoll.dev/job-name": "a", "": "empty"}, "finalizers": []},
  "spec": {"nodeName": "gpu-1", "priority": 0, "overhead": null, "hostNetwork": false, "share": 0.25},
  "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}, {}]}
})";

TEST(SharedNames, KeepTheValue) {
  Json pod = *parse_json(kPod);
  const Json kept = with_shared_names(pod);
  pod["spec"].removeMember("overhead");  // null
  EXPECT_EQ(kept, pod);
  EXPECT_EQ(write_json(kept), write_json(pod));
  EXPECT_EQ(text_member(kept, {"status", "phase"}), "Running");
  EXPECT_EQ(member(kept, {"metadata", "labels", "plimsoll.dev/job-name"}).asString(), "a");
  for (const char* text :
       {"null", "[null]", "[]", "{}", "\"\"", "\"True\"", "7", R"("with\u0000nul")", R"({"\u0000": 1})"}) {
    EXPECT_EQ(write_json(with_shared_names(*parse_json(text))), write_json(*parse_json(text))) << text;
  }
}

TEST(SharedNames, AreOneCopyForAllObjects) {
  const auto phase = [](const Json& pod) {
    const char* begin = nullptr;
    const char* end = nullptr;
    member(pod, {"status", "phase"}).getString(&begin, &end);
    return begin;
  };
  const Json pod = *parse_json(kPod);
  EXPECT_EQ(phase(with_shared_names(pod)), phase(with_shared_names(pod)));
}

TEST(SharedNames, LeaveCopiesFreeToChangeAndOutlivingTheirOriginal) {
  auto kept = std::optional(with_shared_names(*parse_json(kPod)));
  Json copy = *kept;
  kept.reset();
  copy["status"]["phase"] = "Failed";
  copy["status"]["new"] = 1;
  copy["metadata"].removeMember("labels");
  EXPECT_EQ(text_member(copy, {"status", "phase"}), "Failed");
  EXPECT_EQ(copy["status"]["new"].asInt(), 1);
  EXPECT_EQ(text_member(with_shared_names(*parse_json(kPod)), {"status", "phase"}), "Running");
}

// A flood of names that never repeat is kept all the same, each by its own object.
TEST(SharedNames, AreBoundedAndOfAnyThread) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([thread] {
      for (int i = 0; i < 3000; ++i) {
        const std::string name = "label-" + std::to_string(i) + "-" + std::to_string(thread % 2);
        Json object;
        object[name] = "Value";
        object[std::string(100, 'x') + name] = name;
        ASSERT_EQ(with_shared_names(object), object);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace
}  // namespace plimsoll::kube
