// What a pod template may be: the types of core/v1, named by the field's path; and the CRD says the same.
#include "crds/pod_template_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "tests/checkout.h"
#include "tests/crds/test_jobs.h"

namespace plimsoll::crds {
namespace {

using ::testing::HasSubstr;

std::string problem_of_template(const std::string& text) {
  Json object = small_job();
  object["spec"]["template"] = yaml(text);
  return problem_text(object);
}

// Row 1 of what once stopped the operator: it threw in job_children.cc, and again after each restart.
TEST(PodTemplate, ValuesOfAWrongTypeThatCrashedTheOperatorAreRefusedByTheirPath) {
  const std::pair<const char*, const char*> cases[] = {
      {"{spec: {volumes: {a: 1}, containers: [{name: t}]}}",
       "spec.template.spec.volumes: must be a list, is an object"},
      {"{spec: {volumes: x, containers: [{name: t}]}}",
       "spec.template.spec.volumes: must be a list, is a string"},
      {"{spec: {volumes: [{name: shm, emptyDir: Memory}], containers: [{name: t}]}}",
       "spec.template.spec.volumes[0].emptyDir: must be an object, is a string"},
      {"{spec: {volumes: [{name: shm, emptyDir: {medium: [Memory]}}], containers: [{name: t}]}}",
       "spec.template.spec.volumes[0].emptyDir.medium: must be a string, is a list"},
      {"{spec: {volumes: [{name: shm, emptyDir: {sizeLimit: {a: 1}}}], containers: [{name: t}]}}",
       "spec.template.spec.volumes[0].emptyDir.sizeLimit: must be a quantity like 8 or \"80Gi\", is an object"},
      {"{spec: {hostIPC: 1, containers: [{name: t}]}}",
       "spec.template.spec.hostIPC: must be true or false, is an integer"},
      {"{spec: {containers: [{name: t, resources: x}]}}",
       "spec.template.spec.containers[0].resources: must be an object, is a string"},
      {"{spec: {containers: [{name: t, resources: {limits: [a]}}]}}",
       "spec.template.spec.containers[0].resources.limits: must be an object, is a list"},
      {"{spec: {containers: [{name: t, resources: {limits: {memory: [a]}}}]}}",
       "spec.template.spec.containers[0].resources.limits.memory: must be a quantity like 8 or \"80Gi\", is a list"},
      {"{spec: {containers: [{name: t, volumeMounts: {a: 1}}]}}",
       "spec.template.spec.containers[0].volumeMounts: must be a list, is an object"},
      {"{metadata: {labels: [a]}, spec: {containers: [{name: t}]}}",
       "spec.template.metadata.labels: must be an object, is a list"},
      {"{metadata: {annotations: x}, spec: {containers: [{name: t}]}}",
       "spec.template.metadata.annotations: must be an object, is a string"},
      {"{metadata: {labels: {a: 1}}, spec: {containers: [{name: t}]}}",
       "spec.template.metadata.labels.a: must be a string, is an integer"},
      {"{spec: {initContainers: [x], containers: [{name: t}]}}",
       "spec.template.spec.initContainers[0]: must be an object, is a string"},
      {"{spec: {containers: [{name: t, env: [{name: A, value: 1}]}]}}",
       "spec.template.spec.containers[0].env[0].value: must be a string, is an integer"},
      {"{spec: {containers: [null]}}", "spec.template.spec.containers[0]: must be an object, is null"},
      {"[]", "spec.template: must be an object, is a list"},
      {"{spec: x}", "spec.template.spec: must be an object, is a string"},
      {"{}", "spec.template.spec: is required"},
      {"{spec: {}}", "spec.template.spec.containers: is required"},
      {"{spec: {containers: []}}", "spec.template.spec.containers: must have 1 to 32 items, has 0"},
      {"{spec: {containers: [{name: A_b}]}}", "spec.template.spec.containers[0].name: must be at most 63"},
      {"{spec: {containers: [{name: a}, {name: a}]}}",
       "spec.template.spec.containers[1].name: is also the name of another container"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_THAT(problem_of_template(text), HasSubstr(expected)) << text;
  }
}

TEST(PodTemplate, ListsHaveAnEnd) {
  Json object = small_job();
  Json& volumes = object["spec"]["template"]["spec"]["volumes"];
  for (int i = 0; i < 1025; ++i) {
    volumes.append(yaml("{name: v" + std::to_string(i) + "}"));
  }
  EXPECT_EQ(problem_text(object), "spec.template.spec.volumes: must have at most 1024 items, has 1025");
  volumes.resize(1024);
  EXPECT_EQ(problem_text(object), "");
}

TEST(PodTemplate, NullIsAbsentAndQuantitiesMayBeNumbers) {
  EXPECT_EQ(
      problem_of_template("{metadata: null, spec: {volumes: null, containers: [{name: t, env: null, "
                          "resources: {limits: {cpu: 0.5, memory: 80Gi, nvidia.com/gpu: 8, x: null}}}]}}"),
      "");
}

// Values of all kinds, and the kind that a schema asks for.
const Json& value_of_kind(const std::string& kind) {
  static const std::map<std::string, Json> kValues = {{"string", Json("x")},
                                                      {"array", Json(::Json::arrayValue)},
                                                      {"object", Json(::Json::objectValue)},
                                                      {"integer", Json(7)},
                                                      {"boolean", Json(true)}};
  return kValues.at(kind);
}

// Puts a value of each other kind at the property's place, and looks whether C++ refuses it there.
void expect_mirrored(const Json& schema, const Json& job, const std::string& path) {
  for (const std::string& name : schema["properties"].getMemberNames()) {
    const std::string here = path + "." + name;
    const Json& property = schema["properties"][name];
    const std::string type = property["type"].asString();
    const bool quantity = property["x-kubernetes-int-or-string"].asBool();
    for (const std::string other : {"string", "array", "object", "integer", "boolean"}) {
      if (other != type && !(quantity && (other == "string" || other == "integer"))) {
        Json wrong = job;
        set(wrong, here, value_of_kind(other));
        EXPECT_THAT(problem_text(wrong), HasSubstr(here + ": ")) << other;
      }
    }
    Json inside = job;
    if (type == "object" && property.isMember("properties")) {
      const bool there = name == "metadata" || name == "spec";
      if (!there) {
        set(inside, here, Json(::Json::objectValue));
      }
      expect_mirrored(property, inside, here);
    } else if (type == "array" && property["items"].isMember("properties")) {
      if (name != "containers") {
        Json list(::Json::arrayValue);
        list.append(Json(::Json::objectValue));
        set(inside, here, list);
      }
      expect_mirrored(property["items"], inside, here + "[0]");
    } else if (type == "object" && property["additionalProperties"]["type"] == "string") {
      set(inside, here, yaml("{a: [1]}"));
      EXPECT_THAT(problem_text(inside), HasSubstr(here + ".a: ")) << here;
    }
  }
}

TEST(PodTemplate, EveryTypeOfTheCrdIsMirrored) {
  const Json crd = yaml(read_file(PLIMSOLL_SOURCE_DIR "/crds/plimsoll.dev_trainingjobs.yaml"));
  const Json& schema =
      crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["template"];
  Json job = small_job();
  job["spec"]["template"] = yaml("{metadata: {}, spec: {containers: [{name: trainer}]}}");
  expect_mirrored(schema, job, "spec.template");
}

}  // namespace
}  // namespace plimsoll::crds
