// The jobs of the input, ready to be estimated: decoded, validated, with their tables. One thread.
//
//   const JobsOfInput input = read_jobs(*documents, sources_of(*documents, *state));
//   if (input.jobs.empty()) return complain(console, kExitUsage, kNoJob);
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"
#include "cli/console.h"
#include "cli/input.h"
#include "cli/job_sources.h"
#include "cli/options.h"
#include "cli/workload_job.h"
#include "crds/training_job.h"
#include "estimator/estimate/estimate.h"
#include "estimator/trace/trace.h"

namespace plimsoll::cli {

struct JobOrError {
  std::string name;  // "default/ads": what to call it, also when it could not be read
  Result<crds::TrainingJob> job;
  std::shared_ptr<const estimator::TraceFile> graph{};  // what spec.model.graph names; null without one
  std::shared_ptr<const WorkloadJob> workload{};        // null for a TrainingJob
};

struct JobsOfInput {
  std::vector<JobOrError> jobs;
  std::vector<std::string> notes;  // for people: what was passed over, and why
};

inline constexpr const char* kNoJob =
    "there is no TrainingJob in the input, nor a workload of another kind that requests GPUs";

// Each TrainingJob among the documents, and each workload of another kind, in their order. A job that is wrong is an entry with its error,
// and the others are still answered; so is an object that requests GPUs and cannot be sized. Objects without GPUs have a note, unless they are what jobs
// refer to or what a cluster consists of. The documents must outlive the jobs.
JobsOfInput read_jobs(const std::vector<Document>& documents, const JobSources& sources);

// Prints the notes.
void print_notes(Console& console, const std::vector<std::string>& notes);

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
