#include "crds/pod_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/crds/test_jobs.h"

namespace plimsoll::crds {
namespace {

using ::testing::ElementsAre;
using ::testing::MatchesRegex;

std::vector<FieldError> unknown_in(const std::string& pod_template) {
  const Json parsed = yaml(pod_template);
  return unknown_pod_fields(JsonView(parsed), "template");
}

std::string said_of(const std::string& pod_template) {
  return to_string(unknown_in(pod_template));
}

TEST(PodFields, NamesAMisspeltFieldWithTheOneThatWasMeant) {
  EXPECT_EQ(said_of("{spec: {contaners: [{name: t}]}}"),
            "template.spec.contaners: unknown field; did you mean containers?");
  EXPECT_EQ(said_of("{spec: {containers: [{name: t}, {name: u, comand: [a]}]}}"),
            "template.spec.containers[1].comand: unknown field; did you mean command?");
  EXPECT_EQ(said_of("{spec: {containers: [{name: t, resources: {limit: {cpu: 1}}}]}}"),
            "template.spec.containers[0].resources.limit: unknown field; did you mean limits?");
  EXPECT_EQ(said_of("{metadata: {label: {a: b}}}"),
            "template.metadata.label: unknown field; did you mean labels?");
  EXPECT_EQ(said_of("{specs: {}}"), "template.specs: unknown field; did you mean spec?");
}

TEST(PodFields, KnowsTheFieldsAtEachDepth) {
  EXPECT_EQ(said_of(R"(
metadata: {labels: {any.key/at-all: a}, annotations: {b: c}, creationTimestamp: null}
spec:
  schedulerName: volcano
  nodeSelector: {any.label/of-a-node: x}
  overhead: {cpu: 100m}
  securityContext: {runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}
  tolerations: [{key: nvidia.com/gpu, operator: Exists, tolerationSeconds: 5}]
  affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a, labelSelector: {matchLabels: {x: y}}}]}}
  containers:
    - name: trainer
      env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
      lifecycle: {preStop: {exec: {command: [sync]}}}
      resources: {limits: {nvidia.com/gpu: 8}, claims: [{name: c, request: r}]}
  volumes:
    - {name: shm, emptyDir: {medium: Memory, sizeLimit: 16Gi}}
    - {name: p, projected: {sources: [{serviceAccountToken: {path: t, audience: a}}]}}
)"),
            "");
  EXPECT_EQ(said_of("{spec: {volumes: [{name: p, projected: {sources: [{configMap: {nam: a}}]}}]}}"),
            "template.spec.volumes[0].projected.sources[0].configMap.nam: unknown field; did you mean name?");
}

TEST(PodFields, HaveNothingToSayOfValuesOfAWrongType) {
  for (const char* wrong : {"{spec: null}", "{spec: 1}", "{spec: {containers: [null, a, [[{x: 1}]]]}}",
                            "{spec: {containers: {name: a}}}", "{metadata: [a]}"}) {
    EXPECT_EQ(said_of(wrong), "") << wrong;
  }
  EXPECT_TRUE(unknown_pod_fields(JsonView(), "template").empty());
}

TEST(PodFields, AreReportedUpToALimit) {
  std::string text = "{spec: {";
  for (std::size_t i = 0; i < 2 * kMaxFieldErrors; ++i) {
    text += (i == 0 ? "" : ", ") + std::string("field") + std::to_string(i) + ": 1";
  }
  EXPECT_EQ(unknown_in(text + "}}").size(), kMaxFieldErrors);
}

TEST(PodFields, WarningsSayOfWhichKubernetesTheTableIs) {
  const Json pod_template = yaml("{spec: {contaners: []}}");
  EXPECT_THAT(warnings_of_unknown_fields(JsonView(pod_template), "spec.template"),
              ElementsAre(MatchesRegex(
                  "spec\\.template\\.spec\\.contaners: unknown field; did you mean containers\\? "
                  "\\(core/v1 of Kubernetes 1\\.[0-9]+ has no such field; .*")));
}

TEST(PodFields, WarningsNameAFewAndCountTheRest) {
  const Json pod_template = yaml("{a1: 1, a2: 1, a3: 1, a4: 1, a5: 1, a6: 1, a7: 1}");
  const std::vector<std::string> warnings = warnings_of_unknown_fields(JsonView(pod_template), "template");
  ASSERT_EQ(warnings.size(), 6U);
  EXPECT_EQ(warnings.back(), "template: 2 further unknown fields");
  EXPECT_TRUE(warnings_of_unknown_fields(JsonView(), "template").empty());
}

}  // namespace
}  // namespace plimsoll::crds
