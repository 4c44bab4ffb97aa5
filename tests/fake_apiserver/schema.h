// The structural OpenAPI v3 schema of a custom type at work: defaulting, pruning of unknown fields, and
// validation with the messages of kube-apiserver 1.36. CEL rules (x-kubernetes-validations) are not evaluated
// here. Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "tests/fake_apiserver/status.h"

namespace plimsoll::testing::fake {

void apply_defaults(Json& object, const Json& schema);

// Drops what the schema does not know and returns the paths of what was dropped ("spec.parts[0].zoo").
// apiVersion, kind and metadata of the object stay.
std::vector<std::string> prune(Json& object, const Json& schema);

// Everything wrong with the object, in the order of its fields.
std::vector<Cause> validate_schema(const Json& object, const Json& schema);

// True when the schema holds CEL rules anywhere.
bool has_cel_rules(const Json& schema);

}  // namespace plimsoll::testing::fake
