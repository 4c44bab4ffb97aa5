// A TrainingJob, from its JSON to the decision, the patch, and the children of its first attempt.
#include <string>

#include "base/json/view.h"
#include "controllers/job_children.h"
#include "estimator/provisioner/json_patch.h"
#include "estimator/provisioner/patch.h"
#include "tests/fuzz/target.h"
#include "tests/fuzz/world.h"

namespace plimsoll::testing {

FUZZ_TARGET(training_job) {
  static const estimator::ClusterView& cluster = fuzz_cluster();
  static estimator::ModelSource& models = fuzz_models();
  (void)cluster;
  (void)models;
  const Result<JsonText> object = JsonText::parse(input);
  if (!object) {
    return;
  }
  // Short: what ends a search is its deadline, and sanitizers slow down what it does between two looks.
  Budget budget(decision_limits(std::chrono::milliseconds(50)));
  const Result<DecidedJob> decided = decide(object->root(), budget);
  if (!decided) {
    require(!decided.error().message.empty(), "an error says what is wrong");
    return;
  }
  const crds::TrainingJob& job = decided->job;
  const Json patch = estimator::patch_for(job, decided->provision);
  require(patch.isArray(), "a patch is a list");
  crds::Attempt attempt{.number = 0,
                        .gpu_model = job.spec.trainers.gpu_model,
                        .trainers = job.spec.trainers.replicas,
                        .per_node = job.spec.trainers.per_node};
  const Result<controllers::AttemptChildren> children = controllers::make_children(
      job, attempt, {.plan = "{}", .swap_plan = "{}", .host_memory = 1_GiB, .shared_memory = 1_GiB});
  require(children.ok(), "a valid job has children");
  require(write_json(children->job).size() > 2, "the Job is written");
}

}  // namespace plimsoll::testing
