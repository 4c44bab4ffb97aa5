#include "tests/fake_apiserver/patch.h"

#include <optional>
#include <vector>

namespace plimsoll::testing::fake {
namespace {

using Pointer = std::vector<std::string>;

// RFC 6901. Nothing when the text is no pointer.
std::optional<Pointer> parse_pointer(const std::string& text) {
  Pointer pointer;
  if (text.empty()) {
    return pointer;
  }
  if (text[0] != '/') {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '/') {
      pointer.emplace_back();
    } else if (text[i] == '~' && i + 1 < text.size() && (text[i + 1] == '0' || text[i + 1] == '1')) {
      pointer.back() += text[++i] == '0' ? '~' : '/';
    } else {
      pointer.back() += text[i];
    }
  }
  return pointer;
}

// The index that a reference token names; `end` is what "-" stands for. Nothing when it is none or beyond it.
std::optional<Json::ArrayIndex> index_of(const std::string& token, Json::ArrayIndex end) {
  if (token == "-") {
    return end;
  }
  if (token.empty() || token.size() > 9 || token.find_first_not_of("0123456789") != std::string::npos ||
      (token.size() > 1 && token[0] == '0')) {
    return std::nullopt;
  }
  const auto index = static_cast<Json::ArrayIndex>(std::stoul(token));
  return index <= end ? std::optional(index) : std::nullopt;
}

Json* find(Json& root, const Pointer& pointer, std::size_t length) {
  Json* here = &root;
  for (std::size_t i = 0; i < length; ++i) {
    if (here->isObject() && here->isMember(pointer[i])) {
      here = &(*here)[pointer[i]];
    } else if (here->isArray()) {
      const auto index = index_of(pointer[i], here->size());
      if (!index || *index >= here->size()) {
        return nullptr;
      }
      here = &(*here)[*index];
    } else {
      return nullptr;
    }
  }
  return here;
}

bool add(Json& root, const Pointer& pointer, const Json& value) {
  if (pointer.empty()) {
    root = value;
    return true;
  }
  Json* parent = find(root, pointer, pointer.size() - 1);
  if (parent == nullptr) {
    return false;
  }
  if (parent->isObject()) {
    (*parent)[pointer.back()] = value;
    return true;
  }
  if (!parent->isArray()) {
    return false;
  }
  const auto index = index_of(pointer.back(), parent->size());
  return index && parent->insert(*index, value);
}

std::optional<Json> remove(Json& root, const Pointer& pointer) {
  if (pointer.empty()) {
    return std::nullopt;
  }
  Json* parent = find(root, pointer, pointer.size() - 1);
  Json removed;
  if (parent != nullptr && parent->isObject() && parent->removeMember(pointer.back(), &removed)) {
    return removed;
  }
  if (parent != nullptr && parent->isArray()) {
    const auto index = index_of(pointer.back(), parent->size());
    if (index && parent->removeIndex(*index, &removed)) {
      return removed;
    }
  }
  return std::nullopt;
}

bool run_operation(Json& object, const Json& operation) {
  const std::string op = text_member(operation, {"op"});
  const auto path = parse_pointer(text_member(operation, {"path"}, "x"));
  if (!path) {
    return false;
  }
  const Json& value = member(operation, {"value"});
  if (op == "add") {
    return add(object, *path, value);
  }
  if (op == "remove") {
    return remove(object, *path).has_value();
  }
  if (op == "replace" || op == "test") {
    Json* target = find(object, *path, path->size());
    if (target == nullptr) {
      return op == "test" && operation.isMember("value") && value.isNull();
    }
    if (op == "test") {
      return *target == value;
    }
    *target = value;
    return true;
  }
  const auto from = parse_pointer(text_member(operation, {"from"}, "x"));
  if (!from) {
    return false;
  }
  if (op == "move") {
    const auto moved = remove(object, *from);
    return moved && add(object, *path, *moved);
  }
  if (op == "copy") {
    Json* source = find(object, *from, from->size());
    if (source == nullptr) {
      return false;
    }
    const Json copy = *source;
    return add(object, *path, copy);
  }
  return false;
}

}  // namespace

Outcome<Json> apply_json_patch(Json object, const Json& patch) {
  if (!patch.isArray()) {
    return bad_request(
        "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp");
  }
  for (const Json& operation : patch) {
    if (!run_operation(object, operation)) {
      Status status = no_such_path();
      status.code = 422;
      status.reason = "Invalid";
      status.message = "the server rejected our request due to an error in our request";
      return status;
    }
  }
  return object;
}

Json apply_merge_patch(Json object, const Json& patch) {
  if (!patch.isObject()) {
    return patch;
  }
  if (!object.isObject()) {
    object = Json(::Json::objectValue);
  }
  for (const std::string& key : patch.getMemberNames()) {
    if (patch[key].isNull()) {
      object.removeMember(key);
    } else {
      object[key] = apply_merge_patch(object.get(key, Json()), patch[key]);
    }
  }
  return object;
}

}  // namespace plimsoll::testing::fake
