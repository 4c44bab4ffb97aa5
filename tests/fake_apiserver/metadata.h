// What the server itself writes into objects, and demands of their metadata. Pure functions but for uid,
// names and times; any thread.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "tests/fake_apiserver/resource_type.h"

namespace plimsoll::testing::fake {

std::string new_uid();
std::string now_text();                                 // as metav1.Time
std::string generated_name(const std::string& prefix);  // five more characters

// What is wrong with name, labels, annotations and their total size.
std::vector<Cause> check_metadata(const Json& object, const ResourceType& type);

// Sets what only the server sets at creation: uid, creationTimestamp, generation. Drops what it owns.
void stamp_creation(Json& object, const ResourceType& type);

// Carries over what no update may change, and counts the generation up when the desired state changed.
void carry_metadata(Json& object, const Json& before, const ResourceType& type);

// True when kinds like this one count their generation.
bool counts_generation(const ResourceType& type);

}  // namespace plimsoll::testing::fake
