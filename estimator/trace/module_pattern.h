// Module paths with wildcards: "layers.*.mlp" matches "layers.3.mlp"; * matches any one name. Not
// thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plimsoll::estimator::inline trace {

bool module_matches(std::string_view pattern, std::string_view path);
// Matches the last names of the path: "*.up" matches "layers.3.mlp.up".
bool module_ends_with(std::string_view pattern, std::string_view path);
// The path up to and including its first number ("layers.3" of "layers.3.mlp"); empty if it has none.
std::string_view numbered_prefix(std::string_view path);

// A list of patterns that records which of them have matched.
class ModulePatterns {
 public:
  explicit ModulePatterns(const std::vector<std::string>& patterns)
      : patterns_(patterns), used_(patterns.size(), false) {}

  bool matches(std::string_view path);
  bool matches_end(std::string_view path);
  // The first pattern that has matched nothing; null if all have matched.
  const std::string* unused() const;

 private:
  bool matches_by(bool (*rule)(std::string_view, std::string_view), std::string_view path);

  const std::vector<std::string>& patterns_;
  std::vector<bool> used_;
};

}  // namespace plimsoll::estimator::trace
