#include "tests/fake_apiserver/json_path.h"

#include <regex>

namespace plimsoll::testing::fake {
namespace {

void step_into(const Json& value, const std::string& name, std::vector<const Json*>& found) {
  if (value.isObject() && value.isMember(name)) {
    found.push_back(&value[name]);
  }
}

// One bracket: 'name', "name" (both with escapes), a number, *, or ?(@.a.b=="c") (also !=).
void bracket_into(const Json& value, const std::string& inside, std::vector<const Json*>& found) {
  static const std::regex filter(R"re(\?\(\s*@\.([\w.\-/]+)\s*(==|!=)\s*["']([^"']*)["']\s*\))re");
  std::smatch parts;
  if (inside == "*") {
    if (value.isArray() || value.isObject()) {
      for (const Json& each : value) {
        found.push_back(&each);
      }
    }
  } else if (std::regex_match(inside, parts, filter)) {
    if (!value.isArray()) {
      return;
    }
    for (const Json& each : value) {
      const std::vector<const Json*> at = values_at(each, "." + parts[1].str());
      const bool equal = !at.empty() && at[0]->isString() && at[0]->asString() == parts[3].str();
      if (equal == (parts[2].str() == "==")) {
        found.push_back(&each);
      }
    }
  } else if (inside.size() >= 2 && (inside[0] == '\'' || inside[0] == '"')) {
    // client-go's jsonpath reads a quoted name as a field: a dot that belongs to the name is escaped in it
    // too.
    const std::vector<const Json*> at = values_at(value, "." + inside.substr(1, inside.size() - 2));
    found.insert(found.end(), at.begin(), at.end());
  } else if (value.isArray() && !inside.empty() && inside.size() < 9 &&
             inside.find_first_not_of("0123456789") == std::string::npos) {
    const auto index = static_cast<Json::ArrayIndex>(std::stoul(inside));
    if (index < value.size()) {
      found.push_back(&value[index]);
    }
  }
}

}  // namespace

std::vector<const Json*> values_at(const Json& object, const std::string& path) {
  std::vector<const Json*> here{&object};
  std::size_t at = 0;
  while (at < path.size() && !here.empty()) {
    std::vector<const Json*> next;
    if (path[at] == '[') {
      const std::size_t end = path.find(']', at);
      if (end == std::string::npos) {
        return {};
      }
      for (const Json* value : here) {
        bracket_into(*value, path.substr(at + 1, end - at - 1), next);
      }
      at = end + 1;
    } else {
      at += path[at] == '.' ? 1 : 0;
      std::string name;
      for (; at < path.size() && path[at] != '.' && path[at] != '['; ++at) {
        at += path[at] == '\\' && at + 1 < path.size() ? 1 : 0;
        name += path[at];
      }
      for (const Json* value : here) {
        step_into(*value, name, next);
      }
    }
    here = std::move(next);
  }
  return here;
}

}  // namespace plimsoll::testing::fake
