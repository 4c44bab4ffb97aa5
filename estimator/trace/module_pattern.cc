#include "estimator/trace/module_pattern.h"

#include <algorithm>

namespace plimsoll::estimator::inline trace {

bool module_matches(std::string_view pattern, std::string_view path) {
  while (true) {
    const std::size_t pattern_end = std::min(pattern.find('.'), pattern.size());
    const std::size_t path_end = std::min(path.find('.'), path.size());
    const std::string_view name = pattern.substr(0, pattern_end);
    if (name != "*" && name != path.substr(0, path_end)) {
      return false;
    }
    if (pattern_end == pattern.size() || path_end == path.size()) {
      return pattern_end == pattern.size() && path_end == path.size();
    }
    pattern.remove_prefix(pattern_end + 1);
    path.remove_prefix(path_end + 1);
  }
}

bool module_ends_with(std::string_view pattern, std::string_view path) {
  const auto names = std::count(pattern.begin(), pattern.end(), '.');
  const auto dots = std::count(path.begin(), path.end(), '.');
  for (auto surplus = dots - names; surplus > 0; --surplus) {
    path.remove_prefix(path.find('.') + 1);
  }
  return !path.empty() && module_matches(pattern, path);
}

std::string_view numbered_prefix(std::string_view path) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    const std::string_view name = path.substr(begin, end - begin);
    if (!name.empty() && std::all_of(name.begin(), name.end(), is_digit)) {
      return path.substr(0, end);
    }
    begin = end + 1;
  }
  return {};
}

bool ModulePatterns::matches(std::string_view path) {
  return matches_by(module_matches, path);
}

bool ModulePatterns::matches_end(std::string_view path) {
  return matches_by(module_ends_with, path);
}

bool ModulePatterns::matches_by(bool (*rule)(std::string_view, std::string_view), std::string_view path) {
  bool any = false;
  for (std::size_t i = 0; i < patterns_.size(); ++i) {
    if (rule(patterns_[i], path)) {
      used_[i] = any = true;
    }
  }
  return any;
}

const std::string* ModulePatterns::unused() const {
  const auto found = std::find(used_.begin(), used_.end(), false);
  return found == used_.end() ? nullptr : &patterns_[static_cast<std::size_t>(found - used_.begin())];
}

}  // namespace plimsoll::estimator::trace
