#include "estimator/json_patch.h"

#include <utility>

namespace plimsoll::estimator {
namespace {

// Equal as JSON: jsoncpp tells a signed 8 from an unsigned 8.
bool equal(const Json& a, const Json& b) {
  if (a.isInt64() && b.isInt64() && a.isNumeric() && b.isNumeric()) {
    return a.asInt64() == b.asInt64();
  }
  return a == b;
}

// The child that a step names, or null when there is none.
Json* child_of(Json& parent, const PatchStep& step) {
  if (const auto* key = std::get_if<std::string>(&step)) {
    return parent.isObject() && parent.isMember(*key) ? &parent[*key] : nullptr;
  }
  const Json::ArrayIndex index = std::get<Json::ArrayIndex>(step);
  return parent.isArray() && index < parent.size() ? &parent[index] : nullptr;
}

}  // namespace

std::string json_pointer(const PatchPath& path) {
  std::string pointer;
  for (const PatchStep& step : path) {
    pointer += '/';
    if (const auto* index = std::get_if<Json::ArrayIndex>(&step)) {
      pointer += std::to_string(*index);
      continue;
    }
    for (const char c : std::get<std::string>(step)) {  // RFC 6901 section 3
      if (c == '~') {
        pointer += "~0";
      } else if (c == '/') {
        pointer += "~1";
      } else {
        pointer += c;
      }
    }
  }
  return pointer;
}

JsonPatchBuilder::JsonPatchBuilder(const Json& document, const std::vector<std::vector<std::string>>& parts)
    : document_(::Json::objectValue) {
  for (const std::vector<std::string>& part : parts) {
    const Json* from = &document;
    Json* to = &document_;
    for (std::size_t depth = 0; depth < part.size() && from->isObject() && from->isMember(part[depth]);
         ++depth) {
      from = &(*from)[part[depth]];
      Json& here = (*to)[part[depth]];
      if (depth + 1 == part.size() || !from->isObject()) {
        here = *from;
      } else if (here.isNull()) {
        here = Json(::Json::objectValue);
      }
      to = &here;
    }
  }
}

bool JsonPatchBuilder::set(const PatchPath& path, const Json& value) {
  Json* parent = &document_;
  for (std::size_t depth = 0; depth < path.size(); ++depth) {
    Json* child = child_of(*parent, path[depth]);
    const bool last = depth + 1 == path.size();
    if (child != nullptr && !child->isNull() && !last) {
      parent = child;
      continue;
    }
    const auto* key = std::get_if<std::string>(&path[depth]);
    if (child == nullptr && (key == nullptr || !parent->isObject())) {
      return false;
    }
    if (child != nullptr && last && equal(*child, value)) {
      return true;
    }
    // The rest of the path, from its end to here, wrapped around the value.
    Json content = value;
    for (std::size_t inner = path.size(); inner-- > depth + 1;) {
      const auto* inner_key = std::get_if<std::string>(&path[inner]);
      if (inner_key == nullptr) {
        return false;
      }
      Json wrapped(::Json::objectValue);
      wrapped[*inner_key] = std::move(content);
      content = std::move(wrapped);
    }
    emit(child == nullptr ? "add" : "replace",
         json_pointer({path.begin(), path.begin() + static_cast<long>(depth) + 1}), content);
    (child == nullptr ? (*parent)[*key] : *child) = std::move(content);
    return true;
  }
  return false;
}

bool JsonPatchBuilder::append(const PatchPath& path, const Json& value) {
  Json* here = &document_;
  for (const PatchStep& step : path) {
    here = child_of(*here, step);
    if (here == nullptr) {
      return false;
    }
  }
  if (!here->isArray()) {
    return false;
  }
  emit("add", json_pointer(path) + "/-", value);
  here->append(value);
  return true;
}

void JsonPatchBuilder::emit(const char* operation, const std::string& pointer, const Json& value) {
  Json entry(::Json::objectValue);
  entry["op"] = operation;
  entry["path"] = pointer;
  entry["value"] = value;
  operations_.append(std::move(entry));
}

}  // namespace plimsoll::estimator
