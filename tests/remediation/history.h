// A job whose attempts end as a test says, for the tests of remediate().
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "remediation/remediation.h"
#include "tests/estimator/provisioner_fixture.h"

namespace plimsoll::remediation {

inline constexpr std::int64_t kGiBOfRows = 2'097'152;  // rows of 128 FP32 columns in a GiB

inline Json transformer_object(const std::string& strategy, std::int64_t requested) {
  Json object = plimsoll::testing::parse(R"({
    "apiVersion": "plimsoll.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "llm"},
    "spec": {
      "model": {"family": "llm", "transformer": {"layers": 4, "hidden": 4096, "heads": 16, "ffn": 16384,
                                                 "vocab": 32000, "seqLen": 1024}},
      "training": {"batchSizePerTrainer": 4},
      "trainers": {"perNode": 8},
      "template": {"spec": {"containers": [{"name": "trainer"}]}}}})");
  object["spec"]["training"]["parallelism"]["strategy"] = strategy;
  object["spec"]["trainers"]["replicas"] = static_cast<::Json::Int64>(requested);
  return object;
}

// A job whose attempts end as the test says, each next one as remediate() wants it.
struct History {
  explicit History(Json object, plimsoll::testing::Cluster gpus_there)
      : now(std::move(object)), gpus(std::move(gpus_there)) {
    now["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555";
  }

  // As the webhook lets it in.
  History& admit() {
    now = plimsoll::testing::admitted(now, gpus);
    return *this;
  }

  crds::Attempt& end(crds::Outcome outcome) {
    const crds::TrainingJob job = plimsoll::testing::decode(now);
    attempts.push_back({.number = number++,
                        .gpu_model = job.spec.trainers.gpu_model,
                        .trainers = job.spec.trainers.replicas,
                        .per_node = job.spec.trainers.per_node,
                        .expandable_segments = last.expandable_segments,
                        .shared_memory = last.shared_memory,
                        .outcome = outcome});
    return attempts.back();
  }

  Remediation decide() {
    const crds::TrainingJob job = plimsoll::testing::decode(now);
    last = remediate({.job = &job,
                      .gpus = &gpus,
                      .profile = nullptr,
                      .attempts = &attempts,
                      .restarts_counted = counted,
                      .restarts_uncounted = uncounted});
    if (last.restart) {
      (last.counts ? counted : uncounted) += 1;
      std::string why;
      const std::optional<Json> patched = plimsoll::testing::apply_patch(now, last.patch, why);
      EXPECT_TRUE(patched) << why << " in " << write_json(last.patch);
      now = patched.value_or(now);
    }
    return last;
  }

  Remediation decide(crds::Outcome outcome) {
    end(outcome);
    return decide();
  }

  std::int64_t trainers() const { return now["spec"]["trainers"]["replicas"].asInt64(); }
  std::string gpu_model() const { return now["spec"]["trainers"]["gpuModel"].asString(); }

  Json now;
  plimsoll::testing::Cluster gpus;
  std::vector<crds::Attempt> attempts;
  Remediation last;
  std::int64_t number = 0;
  std::int64_t counted = 0;
  std::int64_t uncounted = 0;
};

inline Bytes memory_of(const plimsoll::testing::Cluster& gpus, const std::string& name) {
  for (const estimator::AvailableGpu& gpu : gpus) {
    if (gpu.model.name == name) {
      return gpu.model.memory;
    }
  }
  return {};
}

}  // namespace plimsoll::remediation
