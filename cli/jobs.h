// The TrainingJobs of the input, ready to be estimated: decoded, validated, with their tables. One thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/budget.h"
#include "base/json/json.h"
#include "base/result.h"
#include "cli/console.h"
#include "cli/input.h"
#include "cli/options.h"
#include "crds/training_job.h"
#include "estimator/estimate/estimate.h"
#include "estimator/trace/trace.h"

namespace plimsoll::cli {

// Finds a ConfigMap. Errors: kNotFound, or those of the API server.
using ConfigMapReader =
    std::function<Result<Json>(const std::string& namespace_name, const std::string& name)>;

struct JobOrError {
  std::string name;  // "default/ads": what to call it, also when it could not be read
  Result<crds::TrainingJob> job;
  std::shared_ptr<const estimator::TraceFile> graph{};  // what spec.model.graph names; null without one
};

// Each TrainingJob among the documents, in their order. A job that is wrong is an entry with its error, and the others
// are still answered.
std::vector<JobOrError> read_jobs(const std::vector<Document>& documents,
                                  const std::string& default_namespace, const ConfigMapReader& config_maps);

// The budget of one answer: far more than a server's decision has, but limited.
inline Budget::Limits limits_of_answer() {
  return {.deadline = std::chrono::steady_clock::now() + std::chrono::minutes(10), .memory = 4_GiB};
}

// --method, plimsoll's own estimate or the formula of the AMP paper.
estimator::Method read_method(OptionReader& options);
const char* name_of(estimator::Method method);

// Collects the answers of a command, one a job, and its exit code.
class JobAnswers {
 public:
  JobAnswers(Console& console, OutputFormat format) : console_(console), format_(format) {}

  void add(const Json& answer) { answers_.push_back(answer); }
  // A job without an answer: programs get {"job", "code", "reason"}.
  void refuse(const std::string& job, const Error& error);
  // Prints why a job is refused; its answer says so too.
  void complain(const std::string& message);
  // Prints the answers unless they were printed as a table. Returns the exit code.
  int finish();

 private:
  Console& console_;
  OutputFormat format_;
  std::vector<Json> answers_;
  int code_ = 0;
};

}  // namespace plimsoll::cli
