// The defaults of built-in kinds, as far as controllers and kubectl need them: the initial status, and unset
// fields of pods, jobs, services and webhook configurations. Custom types are defaulted by their schema
// (schema.h). Pure functions; any thread.
#pragma once

#include <vector>

#include "base/json/json.h"
#include "tests/fake_apiserver/resource_type.h"

namespace plimsoll::testing::fake {

void initialise_status(Json& object, const ResourceType& type);
void default_builtin(Json& object, const ResourceType& type);

// Checks required and immutable fields of built-in kinds. `before` is null at creation.
std::vector<Cause> check_builtin(const Json& object, const Json& before, const ResourceType& type);

// core/v1 Event <-> events.k8s.io/v1 Event, whose fields are the same under other names; other kinds are
// returned with `api_version` set. The store holds core/v1.
Json convert(Json object, const std::string& api_version);

}  // namespace plimsoll::testing::fake
