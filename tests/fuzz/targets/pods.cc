// The pods of an attempt, a batch/v1 Job and a TrainingJob's status as the API server gives them: an object
// {"pods": [...], "job": {...}, "trainingJob": {...}, "logs": [...]}.
#include <string>
#include <vector>

#include "base/json/json.h"
#include "controllers/dcgm.h"
#include "remediation/attempt_end.h"
#include "remediation/attempt_record.h"
#include "remediation/remediation_note.h"
#include "remediation/signposts.h"
#include "tests/fuzz/target.h"

namespace plimsoll::testing {

FUZZ_TARGET(pods) {
  using namespace plimsoll::remediation;
  (void)controllers::read_dcgm_answer(std::string(input));
  const Result<Json> world = parse_json(input);
  if (!world) {
    return;
  }
  std::vector<Json> pods;
  for (const Json& pod : member(*world, {"pods"})) {
    pods.push_back(pod);
  }
  std::vector<LogTail> logs;
  for (const Json& log : member(*world, {"logs"})) {
    logs.push_back({text_member(log, {"pod"}), text_member(log, {"container"}), text_member(log, {"text"})});
  }
  (void)classify(pods, logs);
  (void)unschedulable(pods);
  (void)read_signposts(pods);
  const Json& job = member(*world, {"job"});
  (void)end_of(job);
  crds::Attempt attempt{.number = 1, .gpu_model = "A100-80GB", .trainers = 8, .per_node = 8};
  record_end(attempt, job, pods, "2026-01-02T03:04:05Z");
  require(attempt.message.size() <= crds::kMaxAttemptMessage, "the evidence is bounded");
  const Json& training_job = member(*world, {"trainingJob"});
  (void)noted_remediation(training_job, attempt);
  const crds::JobStatus status = crds::decode_status(training_job);
  Json object;
  object["status"] = crds::encode(status);
  require(crds::decode_status(object) == status, "a status is written as it is read");
}

}  // namespace plimsoll::testing
