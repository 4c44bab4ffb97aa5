#include "estimator/provisioner/json_patch.h"

#include <optional>
#include <utility>

#include "base/json/edit.h"
#include "base/json/view.h"

namespace plimsoll::estimator::inline provisioner {
namespace {

// Equal as JSON: for jsoncpp a signed 8 differs from an unsigned 8.
bool equal(const Json& a, const Json& b) {
  const std::optional<std::int64_t> number = JsonView(a).integer();
  return number ? number == JsonView(b).integer() : a == b;
}

// The child at a step, or null when there is none.
Json* child_of(Json& parent, const PatchStep& step) {
  if (const auto* key = std::get_if<std::string>(&step)) {
    return find_member(parent, *key);
  }
  return find_element(parent, std::get<Json::ArrayIndex>(step));
}

// Copies what the document has at path[depth] and below; copies a value that is not an object as it is.
void copy_part(const Json& from, const std::vector<std::string>& path, std::size_t depth, Json& to) {
  if (depth == path.size() || !from.isObject()) {
    to = from;
    return;
  }
  if (!to.isObject()) {
    to = Json(::Json::objectValue);
  }
  const std::string& key = path[depth];
  if (!JsonView(from).member(key)) {
    return;
  }
  if (find_member(to, key) == nullptr) {
    set_member(to, key, Json());
  }
  copy_part(member(from, {key}), path, depth + 1, *find_member(to, key));
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
    copy_part(document, part, 0, document_);
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
    // Wraps the value in the rest of the path, from its end to here.
    Json content = value;
    for (std::size_t inner = path.size(); inner-- > depth + 1;) {
      const auto* inner_key = std::get_if<std::string>(&path[inner]);
      if (inner_key == nullptr) {
        return false;
      }
      JsonObject wrapped;
      wrapped[*inner_key] = std::move(content);
      content = std::move(wrapped).take();
    }
    emit(child == nullptr ? "add" : "replace",
         json_pointer({path.begin(), path.begin() + static_cast<long>(depth) + 1}), content);
    if (child != nullptr) {
      *child = std::move(content);
    } else {
      set_member(*parent, *key, std::move(content));
    }
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
  append_element(*here, value);
  return true;
}

void JsonPatchBuilder::emit(const char* operation, const std::string& pointer, const Json& value) {
  JsonObject entry;
  entry["op"] = operation;
  entry["path"] = pointer;
  entry["value"] = value;
  append_element(operations_, std::move(entry).take());
}

}  // namespace plimsoll::estimator::provisioner
