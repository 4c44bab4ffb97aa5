// TrainingJobs that somebody made to hurt: each is accepted by the API server where no webhook stands before
// it.
#pragma once

#include <string>
#include <vector>

namespace plimsoll::testing {

struct HostileJob {
  std::string name;
  std::string text;  // YAML
};

// Pod templates whose fields have wrong types.
std::vector<HostileJob> malformed_jobs();

// Small manifests that describe enormous models.
std::vector<HostileJob> huge_jobs();

// What has the names of a job's children and is not the job's, labelled test=foreign; YAML.
std::string objects_with_the_names_of(const std::string& job);

}  // namespace plimsoll::testing
