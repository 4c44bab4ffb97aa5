// A small RFC 6902 applier for tests: add and replace only, and strict about both, so that a patch which an
// API server would refuse fails here too.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json/json.h"

namespace plimsoll::testing {

// The patched document, or nothing and the reason in `why`.
inline std::optional<Json> apply_patch(Json document, const Json& patch, std::string& why) {
  const auto refuse = [&](const std::string& reason) {
    why = reason;
    return std::nullopt;
  };
  if (!patch.isArray()) {
    return refuse("the patch is no array");
  }
  for (const Json& operation : patch) {
    const std::string name = operation["op"].asString();
    const std::string pointer = operation["path"].asString();
    if ((name != "add" && name != "replace") || !operation.isMember("value") || pointer.empty() ||
        pointer.front() != '/') {
      return refuse("not add or replace with a value: " + write_json(operation));
    }
    std::vector<std::string> tokens;
    for (const char c : pointer) {
      if (c == '/') {
        tokens.emplace_back();
      } else {
        tokens.back() += c;
      }
    }
    for (std::string& token : tokens) {
      for (std::size_t at = 0; (at = token.find('~', at)) != std::string::npos; ++at) {
        if (at + 1 >= token.size() || (token[at + 1] != '0' && token[at + 1] != '1')) {
          return refuse("bad escape in " + pointer);
        }
        token.replace(at, 2, token[at + 1] == '0' ? "~" : "/");
      }
    }
    Json* here = &document;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      if (here->isObject() && here->isMember(tokens[i])) {
        here = &(*here)[tokens[i]];
      } else if (here->isArray() && std::stoul(tokens[i]) < here->size()) {
        here = &(*here)[static_cast<Json::ArrayIndex>(std::stoul(tokens[i]))];
      } else {
        return refuse("no parent for " + pointer);
      }
    }
    const std::string& last = tokens.back();
    if (here->isArray()) {
      if (name == "add" && last == "-") {
        here->append(operation["value"]);
      } else if (name == "replace" && std::stoul(last) < here->size()) {
        (*here)[static_cast<Json::ArrayIndex>(std::stoul(last))] = operation["value"];
      } else {
        return refuse("no such element: " + pointer);
      }
    } else if (here->isObject()) {
      if (name == "replace" && !here->isMember(last)) {
        return refuse("nothing to replace at " + pointer);
      }
      (*here)[last] = operation["value"];
    } else {
      return refuse("the parent of " + pointer + " holds no members");
    }
  }
  return document;
}

}  // namespace plimsoll::testing
