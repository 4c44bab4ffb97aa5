// What the tests of crds share: objects from YAML text and files.
#pragma once

#include <string>
#include <vector>

#include "base/json/json.h"
#include "crds/training_job.h"

namespace plimsoll::crds {

std::string read_file(const std::string& path);

// One YAML document; the test fails when it is none.
Json yaml(const std::string& text);

// A TrainingJob of two tables that is well-formed.
Json small_job();

// Sets the member at a path of keys and array indices: set(job, "spec.model.dlrm.tables[1].rows", 5).
// A null value removes the member.
void set(Json& object, const std::string& path, const Json& value);

// What decoding or validation says, as "field: message"; empty when the job is well-formed.
std::vector<FieldError> problems_of(const Json& object);

// All problems in one line.
std::string problem_text(const Json& object);

}  // namespace plimsoll::crds
