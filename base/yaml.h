// YAML in, as JSON values: several documents in one text, scalars resolved as kubectl resolves them
// (sigs.k8s.io/yaml, that is go-yaml v2: YAML 1.1 with yes/no/on/off as booleans, 0o17, 0x1f, 1_000, merge
// keys), and limits that a hostile file cannot pass: nesting, aliases that recurse or multiply, and
// duplicate keys are errors. Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"

namespace plimsoll {

inline constexpr int kYamlDepthLimit = 200;
inline constexpr std::size_t kYamlNodeLimit = 4'000'000;  // after aliases are followed; less for short texts

// Each document of the text; empty ones are left out. JSON is YAML, but `parse_json` reads it faster, so
// a text that begins with { or [ is tried there first. Errors: kInvalid with line and column.
Result<std::vector<Json>> parse_yaml_documents(std::string_view text);

// The value as one YAML document, in block style, keys in the order of `Json` (alphabetical).
std::string write_yaml(const Json& value);

}  // namespace plimsoll
