#include "tests/crds/test_jobs.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/yaml.h"

namespace plimsoll::crds {

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Json yaml(const std::string& text) {
  Result<std::vector<Json>> documents = parse_yaml_documents(text);
  if (!documents || documents->size() != 1) {
    ADD_FAILURE() << (documents ? "not one document" : to_string(documents.error())) << "\n" << text;
    return Json();
  }
  return std::move(documents->front());
}

Json small_job() {
  return yaml(R"(
apiVersion: plimsoll.dev/v1alpha1
kind: TrainingJob
metadata: {name: ads-ctr, namespace: ads}
spec:
  model:
    family: ads
    dlrm:
      bottomMLP: [512, 128]
      topMLP: [1024, 1]
      tables:
        - {name: user, rows: 40000000, dim: 128, poolingFactor: "12.5"}
        - {name: item, count: 12, rows: 1000000, dim: 64, dtype: BF16, lookupFrequency: "0.25"}
  training: {batchSizePerTrainer: 1024}
  trainers: {replicas: 128}
  template: {spec: {containers: [{name: trainer}]}}
)");
}

void set(Json& object, const std::string& path, const Json& value) {
  Json* here = &object;
  std::istringstream steps(path);
  std::string step;
  while (std::getline(steps, step, '.')) {
    const std::size_t bracket = step.find('[');
    const std::string key = step.substr(0, bracket);
    if (value.isNull() && steps.peek() == EOF && bracket == std::string::npos) {
      here->removeMember(key);
      return;
    }
    here = &(*here)[key];
    if (bracket != std::string::npos) {
      here = &(*here)[static_cast<Json::ArrayIndex>(std::stoul(step.substr(bracket + 1)))];
    }
  }
  *here = value;
}

std::vector<FieldError> problems_of(const Json& object) {
  const Result<TrainingJob> job = decode_training_job(object);
  if (!job) {
    const std::string& message = job.error().message;
    const std::size_t colon = message.find(": ");
    return {{message.substr(0, colon), message.substr(colon == std::string::npos ? colon : colon + 2)}};
  }
  return validate(*job);
}

std::string problem_text(const Json& object) {
  return to_string(problems_of(object), 100);
}

}  // namespace plimsoll::crds
