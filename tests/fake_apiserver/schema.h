// Evaluates the structural OpenAPI v3 schema of a custom type: defaulting, pruning of unknown fields, and
// validation with the messages of kube-apiserver 1.36. CEL rules (x-kubernetes-validations) are listed, not
// evaluated. Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "base/json/json.h"
#include "tests/fake_apiserver/status.h"
#include "tests/fake_apiserver/unevaluated_rule.h"

namespace plimsoll::testing::fake {

// Whether the schema has this keyword with the value true.
bool is_set(const Json& schema, const char* keyword);

// Converts 1.0 and 1e3 to 1 and 1000, as kube-apiserver does. Do it before validation.
void write_integers(Json& value);

void apply_defaults(Json& object, const Json& schema);

// Removes unknown fields and returns their paths ("spec.parts[0].zoo"). apiVersion, kind and metadata of the
// object are kept.
std::vector<std::string> prune(Json& object, const Json& schema);

// All violations, fields in alphabetical order.
std::vector<Cause> validate_schema(const Json& object, const Json& schema);

bool evaluates_format(const std::string& format);

// The CEL rules of the schema and the formats that are not evaluated, wherever they stand; `resource` is left
// empty.
UnevaluatedRules unevaluated_rules(const Json& schema);

bool has_cel_rules(const UnevaluatedRules& rules);

}  // namespace plimsoll::testing::fake
