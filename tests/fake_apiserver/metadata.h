// The metadata that the server sets, and its validation. Pure functions except for random names, uids and
// timestamps; any thread.
#pragma once

#include <string>
#include <vector>

#include "base/json/json.h"
#include "tests/fake_apiserver/resource_type.h"

namespace plimsoll::testing::fake {

std::string new_uid();
std::string now_text();                                 // as metav1.Time
std::string generated_name(const std::string& prefix);  // five more characters

// Validates the name, labels, annotations and the size of all annotations.
std::vector<Cause> check_metadata(const Json& object, const ResourceType& type);

// Sets uid, creationTimestamp and generation; removes other fields that only the server sets.
void set_creation_metadata(Json& object, const ResourceType& type);

// Restores the fields that no update may change; increments the generation when the desired state changed.
void preserve_metadata(Json& object, const Json& before, const ResourceType& type);

// Whether objects of this type have a generation.
bool counts_generation(const ResourceType& type);

}  // namespace plimsoll::testing::fake
