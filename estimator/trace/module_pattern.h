// Paths of modules with wildcards: "layers.*.mlp" matches "layers.3.mlp"; * is any one name. One thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plimsoll::estimator::inline trace {

bool module_matches(std::string_view pattern, std::string_view path);
// The same of the path's last names: "*.up" matches "layers.3.mlp.up".
bool module_ends_with(std::string_view pattern, std::string_view path);

// Patterns that remember whether they have matched anything.
class ModulePatterns {
 public:
  explicit ModulePatterns(const std::vector<std::string>& patterns)
      : patterns_(patterns), used_(patterns.size(), false) {}

  bool matches(std::string_view path);
  bool matches_end(std::string_view path);
  // The first that has matched nothing; null when all have.
  const std::string* unused() const;

 private:
  bool matches_by(bool (*rule)(std::string_view, std::string_view), std::string_view path);

  const std::vector<std::string>& patterns_;
  std::vector<bool> used_;
};

}  // namespace plimsoll::estimator::trace
