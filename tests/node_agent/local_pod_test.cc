#include "tests/node_agent/local_pod.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/yaml.h"

namespace plimsoll::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Pair;

Json yaml(const std::string& text) {
  return parse_yaml_documents(text)->front();
}

LocalPlace place() {
  return {.directory = "/scratch/uid",
          .config_map = [](const std::string& name) -> Result<Json> {
            if (name == "plan") {
              return yaml("{data: {plan.json: '{}', mode: fast}, binaryData: {graph.gz: aGk=}}");
            }
            return Error(ErrorCode::kNotFound, "no ConfigMap " + name);
          },
          .port_for =
              [](const std::string& address, const std::string& port) {
                return address == "ads-0-0.ads-0" && port == "29500" ? "4711" : "0";
              }};
}

// A pod whose container has these lines besides its name.
Json pod(const std::string& container, const std::string& spec = "{}") {
  Json object = yaml("metadata: {name: ads-0-1-x7, namespace: ns, labels: {a/b: c}}");
  object["spec"] = yaml(spec);
  object["spec"]["containers"].append(yaml(container));
  return object;
}

TEST(LocalPodTest, RunsTheCommandInItsEnvironment) {
  const Result<LocalCommand> command = command_of(pod(R"yaml(
command: [python3, train.py, "$(SIZE)"]
args: ["--rank=$(RANK)", "$(UNKNOWN)", "$$(SIZE)"]
env:
- {name: SIZE, value: "8"}
- {name: DOUBLE, value: "$(SIZE)$(SIZE)"}
- {name: RANK, valueFrom: {fieldRef: {fieldPath: "metadata.labels['a/b']"}}}
- {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: MODE, valueFrom: {configMapKeyRef: {name: plan, key: mode}}}
- {name: MASTER_ADDR, value: ads-0-0.ads-0}
- {name: MASTER_PORT, value: "29500"}
- {name: PET_MASTER_ADDR, value: ads-0-0.ads-0}
- {name: PET_MASTER_PORT, value: "29500"}
)yaml"),
                                                  place());
  ASSERT_TRUE(command.ok()) << to_string(command.error());
  EXPECT_THAT(command->arguments,
              ElementsAre("python3", "train.py", "8", "--rank=c", "$(UNKNOWN)", "$(SIZE)"));
  EXPECT_THAT(command->environment,
              IsSupersetOf(std::map<std::string, std::string>{{"SIZE", "8"},
                                                              {"DOUBLE", "88"},
                                                              {"RANK", "c"},
                                                              {"NAME", "ads-0-1-x7"},
                                                              {"MODE", "fast"},
                                                              {"HOSTNAME", "ads-0-1-x7"},
                                                              {"MASTER_ADDR", "127.0.0.1"},
                                                              {"MASTER_PORT", "4711"},
                                                              {"PET_MASTER_ADDR", "127.0.0.1"},
                                                              {"PET_MASTER_PORT", "4711"}}));
}

TEST(LocalPodTest, MountsAreFoldersOfItsOwn) {
  const Result<LocalCommand> command = command_of(pod(R"yaml(
command: [run, /etc/plimsoll/plan.json, /etc/plimsoller, "--out=/data/x", /dev/termination-log]
env: [{name: PLAN, value: /etc/plimsoll}]
volumeMounts:
- {name: plan, mountPath: /etc/plimsoll}
- {name: data, mountPath: /data}
- {name: kube-api-access-2x, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}
)yaml",
                                                      "{volumes: [{name: plan, configMap: {name: plan}}, "
                                                      "{name: data, emptyDir: {}}]}"),
                                                  place());
  ASSERT_TRUE(command.ok()) << to_string(command.error());
  EXPECT_THAT(command->arguments,
              ElementsAre("run", "/scratch/uid/volumes/plan/plan.json", "/etc/plimsoller",
                          "--out=/scratch/uid/volumes/data/x", "/scratch/uid/termination-log"));
  EXPECT_THAT(command->environment, Contains(Pair("PLAN", "/scratch/uid/volumes/plan")));
  EXPECT_EQ(command->files.at("/scratch/uid/volumes/plan/graph.gz"), "hi");
  EXPECT_EQ(command->files.size(), 3U);
  EXPECT_THAT(command->directories, ElementsAre("/scratch/uid/volumes/plan", "/scratch/uid/volumes/data"));
}

TEST(LocalPodTest, TakesTheItemsOfAVolume) {
  const auto items = [](const std::string& key) {
    return command_of(
        pod("{command: [run], volumeMounts: [{name: plan, mountPath: /etc/plimsoll}]}",
            "{volumes: [{name: plan, configMap: {name: plan, items: [{key: " + key + ", path: p/q}]}}]}"),
        place());
  };
  ASSERT_TRUE(items("mode").ok());
  EXPECT_EQ(items("mode")->files.size(), 1U);
  EXPECT_EQ(items("mode")->files.at("/scratch/uid/volumes/plan/p/q"), "fast");
  EXPECT_THAT(items("none").error().message, HasSubstr("has no key none"));
}

TEST(LocalPodTest, RefusesWhatItCannotRun) {
  const auto refused = [](const Json& object) {
    const Result<LocalCommand> command = command_of(object, place());
    return command.ok() ? std::string() : command.error().message;
  };
  EXPECT_THAT(refused(pod("{image: x}")), HasSubstr("an image's own command"));
  EXPECT_THAT(refused(pod("{command: [run]}", "{containers: [{command: [other]}]}")),
              HasSubstr("several containers"));
  EXPECT_THAT(
      refused(pod("{command: [run], env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]}")),
      HasSubstr("A"));
  EXPECT_THAT(refused(pod("{command: [run], volumeMounts: [{name: s, mountPath: /s}]}",
                          "{volumes: [{name: s, secret: {secretName: s}}]}")),
              HasSubstr("other than a ConfigMap"));
  EXPECT_THAT(refused(pod("{command: [run], volumeMounts: [{name: c, mountPath: /c}]}",
                          "{volumes: [{name: c, configMap: {name: missing}}]}")),
              HasSubstr("no ConfigMap missing"));
}

TEST(LocalPodTest, TakesTheEndOfALog) {
  EXPECT_EQ(tail_of("a\nb\nc\n", 2, 100), "b\nc\n");
  EXPECT_EQ(tail_of("a\nb\nc", 2, 100), "b\nc");
  EXPECT_EQ(tail_of("a\nb\nc\n", 80, 3), "\nc\n");
  EXPECT_EQ(tail_of("", 80, 2048), "");
}

}  // namespace
}  // namespace plimsoll::testing
