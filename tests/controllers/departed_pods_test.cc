#include "controllers/departed_pods.h"

#include <gtest/gtest.h>

namespace plimsoll::controllers {
namespace {

kube::SharedObject pod(const std::string& name, std::size_t padding = 0) {
  Json object;
  object["metadata"]["name"] = name;
  object["status"]["message"] = std::string(padding, 'x');
  return kube::SharedObject(JsonView(object));
}

std::vector<std::string> names_of(const DepartedPods& departed, const std::string& child_key) {
  std::vector<std::string> names;
  for (const Json& each : departed.of(child_key)) {
    names.push_back(text_member(each, {"metadata", "name"}));
  }
  return names;
}

using Names = std::vector<std::string>;

TEST(DepartedPods, AreKeptByTheirJobUntilItGoes) {
  DepartedPods departed;
  departed.remember("ads/a-0", pod("a-0-0"));
  departed.remember("ads/a-0", pod("a-0-1"));
  departed.remember("ads/b-0", pod("b-0-0"));
  EXPECT_EQ(names_of(departed, "ads/a-0"), (Names{"a-0-0", "a-0-1"}));
  departed.forget("ads/a-0");
  EXPECT_EQ(names_of(departed, "ads/a-0"), Names{});
  EXPECT_EQ(names_of(departed, "ads/b-0"), Names{"b-0-0"});
  departed.forget("ads/b-0");
  departed.forget("ads/b-0");
  departed.forget("nobody/x");
  EXPECT_EQ(names_of(departed, "ads/b-0"), Names{});
}

TEST(DepartedPods, OneNamespaceDoesNotEvictTheStoriesOfOthers) {
  DepartedPods departed({.pods = 10});
  departed.remember("quiet/job-0", pod("first"));
  for (int i = 0; i < 1000; ++i) {
    departed.remember("noisy/job-" + std::to_string(i), pod("n" + std::to_string(i)));
  }
  EXPECT_EQ(names_of(departed, "quiet/job-0"), Names{"first"});
  EXPECT_EQ(names_of(departed, "noisy/job-990"), Names{});
  for (int i = 991; i < 1000; ++i) {  // its own oldest went
    EXPECT_EQ(names_of(departed, "noisy/job-" + std::to_string(i)), Names{"n" + std::to_string(i)});
  }
}

TEST(DepartedPods, AreBoundedInBytesToo) {
  DepartedPods departed({.pods = 1000, .bytes = Bytes{10'000}});
  departed.remember("quiet/job-0", pod("small"));
  for (int i = 0; i < 20; ++i) {
    departed.remember("noisy/job-0", pod("large", 3000));
  }
  EXPECT_EQ(names_of(departed, "quiet/job-0"), Names{"small"});
  EXPECT_EQ(names_of(departed, "noisy/job-0").size(), 3U);
  departed.remember("noisy/job-0", pod("vast", 20'000));  // more than all may have
  EXPECT_EQ(names_of(departed, "quiet/job-0"), Names{"small"});
  EXPECT_EQ(names_of(departed, "noisy/job-0").size(), 0U);
}

}  // namespace
}  // namespace plimsoll::controllers
