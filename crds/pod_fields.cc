#include "crds/pod_fields.h"

#include <algorithm>
#include <utility>

#include "base/json/json.h"
#include "base/words.h"
#include "crds/field_path.h"

namespace plimsoll::crds {

extern const char* const kPodFieldsJson;  // pod_fields.json

namespace {

// More of them tell nothing new: such a template is another kind of object.
constexpr std::size_t kNamedFields = 5;

// The file is compiled into the program, and a test reads it.
const Json& table() {
  static const Json parsed = [] {
    Result<Json> read = parse_json(kPodFieldsJson);
    return read ? *std::move(read) : Json();
  }();
  return parsed;
}

std::vector<std::string> names_of(const Json& fields) {
  std::vector<std::string> names;
  for (const auto& [name, leads_to] : JsonView(fields).members()) {
    names.emplace_back(name);
  }
  return names;
}

void look_into(const JsonView& value, const std::string& type, const FieldPath& path, FieldErrors& errors);

void look_into_object(const JsonView& object, const std::string& type, const FieldPath& path,
                      FieldErrors& errors) {
  const Json& fields = member(table(), {"types", type});
  for (const auto& [name, value] : object.members()) {
    // Whatever a user writes, no more names are looked for than errors are kept.
    if (errors.list().size() >= kMaxFieldErrors) {
      return;
    }
    const FieldPath here(path, name);
    const Json& inner = member(fields, {name});
    if (inner.isNull()) {
      const bool named = errors.list().size() < kNamedFields;  // only of those is the hint told
      errors.add(here, "unknown field" + (named ? did_you_mean(name, names_of(fields)) : ""));
    } else if (const std::string below = text_member(inner, {}); !below.empty()) {
      look_into(value, below, here, errors);
    }
  }
}

void look_into(const JsonView& value, const std::string& type, const FieldPath& path, FieldErrors& errors) {
  look_into_object(value, type, path, errors);
  std::size_t position = 0;
  for (const JsonView element : value.elements()) {
    look_into_object(element, type, FieldPath(path, position++), errors);
  }
}

}  // namespace

std::vector<FieldError> unknown_pod_fields(const JsonView& pod_template, std::string_view path) {
  FieldErrors errors;
  look_into(pod_template, "PodTemplateSpec", FieldPath(path), errors);
  return std::move(errors).take();
}

std::vector<std::string> warnings_of_unknown_fields(const JsonView& pod_template, std::string_view path) {
  const std::vector<FieldError> unknown = unknown_pod_fields(pod_template, path);
  const std::size_t named = std::min(unknown.size(), kNamedFields);
  std::vector<std::string> warnings;
  for (std::size_t i = 0; i < named; ++i) {
    warnings.push_back(unknown[i].field + ": " + unknown[i].message + " (core/v1 of Kubernetes " +
                       text_member(table(), {"kubernetes"}) +
                       " has no such field; pods get it only if this cluster is newer and knows it)");
  }
  if (const std::size_t more = unknown.size() - named; more > 0) {
    warnings.push_back(std::string(path) + ": " +
                       counted(static_cast<std::int64_t>(more), "further unknown field"));
  }
  return warnings;
}

}  // namespace plimsoll::crds
