// The TrainingJobs of the input, ready to be estimated: decoded, validated, with their tables. One thread.
#pragma once

#include <boost/program_options.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"
#include "cli/input.h"
#include "crds/training_job.h"
#include "estimator/estimate/estimate.h"
#include "estimator/trace/trace.h"

namespace plimsoll::cli {

// Finds a ConfigMap. Errors: kNotFound, or what the API server said.
using ConfigMapReader =
    std::function<Result<Json>(const std::string& namespace_name, const std::string& name)>;

struct JobOrError {
  std::string name;  // "default/ads": what to call it, also when it could not be read
  Result<crds::TrainingJob> job;
  std::shared_ptr<const estimator::TraceFile> graph{};  // what spec.model.graph names; null without one
};

// Each TrainingJob among the documents, in their order. A job that is wrong is an entry with its error, so
// that the others are still answered.
std::vector<JobOrError> read_jobs(const std::vector<Document>& documents,
                                  const std::string& default_namespace, const ConfigMapReader& config_maps);

// The value of --method. Errors: kInvalid.
Result<estimator::Method> method_option(const boost::program_options::variables_map& values);

// {"job", "code", "reason"}: what programs get for a job that was refused.
Json refusal(const std::string& job, const Error& error);

}  // namespace plimsoll::cli
