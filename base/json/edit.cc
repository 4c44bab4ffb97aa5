#include "base/json/edit.h"

#include <string>
#include <utility>

namespace plimsoll {
namespace {

const char* name_of(::Json::ValueType type) {
  switch (type) {
    case ::Json::nullValue: return "null";
    case ::Json::booleanValue: return "a boolean";
    case ::Json::stringValue: return "a string";
    case ::Json::arrayValue: return "a list";
    case ::Json::objectValue: return "an object";
    default: return "a number";
  }
}

}  // namespace

// Null becomes what is wanted.
bool JsonPlace::becomes(::Json::ValueType type, std::string_view what) const {
  if (at_ == nullptr) {
    return false;
  }
  if (at_->isNull()) {
    *at_ = Json(type);
  }
  if (at_->type() == type) {
    return true;
  }
  if (!*problem_) {
    *problem_ = invalid("cannot change " + std::string(what) + ": must be in " + name_of(type) + ", is in " +
                        name_of(at_->type()));
  }
  return false;
}

JsonPlace JsonPlace::operator[](std::string_view name) const {
  if (!becomes(::Json::objectValue, name)) {
    return {nullptr, problem_};
  }
  return {at_->demand(name.data(), name.data() + name.size()), problem_};
}

const JsonPlace& JsonPlace::operator=(Json value) const {
  if (at_ != nullptr) {
    at_->swap(value);
  }
  return *this;
}

JsonPlace JsonPlace::append(Json value) const {
  if (!becomes(::Json::arrayValue, "an element")) {
    return {nullptr, problem_};
  }
  return {&at_->append(std::move(value)), problem_};
}

void JsonPlace::set_missing(std::string_view name, Json value) const {
  if (const JsonPlace place = (*this)[name]; place.at_ != nullptr && place.at_->isNull()) {
    place = std::move(value);
  }
}

void JsonPlace::remove(std::string_view name) const {
  if (at_ != nullptr && !at_->isNull() && becomes(::Json::objectValue, name)) {
    at_->removeMember(name.data(), name.data() + name.size(), nullptr);
  }
}

std::vector<JsonPlace> JsonPlace::elements() const {
  std::vector<JsonPlace> places;
  if (at_ != nullptr && !at_->isNull() && becomes(::Json::arrayValue, "an element")) {
    places.reserve(at_->size());
    for (Json& each : *at_) {
      places.push_back({&each, problem_});
    }
  }
  return places;
}

const Json& JsonPlace::value() const {
  return at_ == nullptr ? Json::nullSingleton() : *at_;
}

Json json_object(std::initializer_list<std::pair<std::string_view, Json>> members) {
  Json object(::Json::objectValue);
  for (const auto& [name, value] : members) {
    set_member(object, name, value);
  }
  return object;
}

Result<Json> JsonEdit::take() && {
  if (problem_) {
    return *std::move(problem_);
  }
  return std::move(value_);
}

const Json& element(const Json& list, std::size_t index) {
  if (!list.isArray() || index >= list.size()) {
    return Json::nullSingleton();
  }
  return list[static_cast<Json::ArrayIndex>(index)];
}

Json* find_element(Json& list, std::size_t index) {
  return list.isArray() && index < list.size() ? &list[static_cast<Json::ArrayIndex>(index)] : nullptr;
}

Json* find_member(Json& object, std::string_view name) {
  const char* end = name.data() + name.size();
  if (!object.isObject() || object.find(name.data(), end) == nullptr) {
    return nullptr;
  }
  return object.demand(name.data(), end);
}

bool set_member(Json& object, std::string_view name, Json value) {
  if (!object.isObject()) {
    return false;
  }
  object.demand(name.data(), name.data() + name.size())->swap(value);
  return true;
}

bool append_element(Json& list, Json value) {
  if (!list.isArray()) {
    return false;
  }
  list.append(std::move(value));
  return true;
}

}  // namespace plimsoll
