#include "crds/pod_template_rules.h"

#include <set>
#include <span>
#include <string>

#include "crds/decoder.h"

namespace plimsoll::crds {
namespace {

constexpr std::int64_t kMaxContainers = 32;
// Of every other list, as the CRD has it. Kubernetes sets no limit but the size of an object.
constexpr std::int64_t kMaxItems = 1024;

enum class Shape {
  kString,
  kBoolean,
  kInteger,
  kObject,
  kObjects,
  kStrings,
  kStringMap,
  kQuantity,
  kQuantityMap
};

struct Field {
  const char* name;
  Shape shape;
  bool required = false;
  std::span<const Field> inner = {};  // of kObject, and of each element of kObjects
};

// core/v1 of Kubernetes 1.36: staging/src/k8s.io/api/core/v1/types.go.
constexpr Field kNamedFields[] = {{"name", Shape::kString, true}};
constexpr Field kEmptyDirFields[] = {{"medium", Shape::kString}, {"sizeLimit", Shape::kQuantity}};
constexpr Field kVolumeFields[] = {{"name", Shape::kString, true},
                                   {"emptyDir", Shape::kObject, false, kEmptyDirFields}};
constexpr Field kMountFields[] = {{"name", Shape::kString, true}, {"mountPath", Shape::kString, true}};
constexpr Field kVariableFields[] = {
    {"name", Shape::kString, true}, {"value", Shape::kString}, {"valueFrom", Shape::kObject}};
constexpr Field kResourceFields[] = {{"limits", Shape::kQuantityMap},
                                     {"requests", Shape::kQuantityMap},
                                     {"claims", Shape::kObjects, false, kNamedFields}};
constexpr Field kContainerFields[] = {{"name", Shape::kString, true},
                                      {"image", Shape::kString},
                                      {"command", Shape::kStrings},
                                      {"args", Shape::kStrings},
                                      {"env", Shape::kObjects, false, kVariableFields},
                                      {"envFrom", Shape::kObjects},
                                      {"resources", Shape::kObject, false, kResourceFields},
                                      {"volumeMounts", Shape::kObjects, false, kMountFields},
                                      {"terminationMessagePath", Shape::kString},
                                      {"terminationMessagePolicy", Shape::kString}};
constexpr Field kExpressionFields[] = {
    {"key", Shape::kString, true}, {"operator", Shape::kString, true}, {"values", Shape::kStrings}};
constexpr Field kTermFields[] = {{"matchExpressions", Shape::kObjects, false, kExpressionFields},
                                 {"matchFields", Shape::kObjects, false, kExpressionFields}};
constexpr Field kNodeSelectorFields[] = {{"nodeSelectorTerms", Shape::kObjects, true, kTermFields}};
constexpr Field kNodeAffinityFields[] = {
    {"requiredDuringSchedulingIgnoredDuringExecution", Shape::kObject, false, kNodeSelectorFields},
    {"preferredDuringSchedulingIgnoredDuringExecution", Shape::kObjects}};
constexpr Field kAffinityFields[] = {{"nodeAffinity", Shape::kObject, false, kNodeAffinityFields},
                                     {"podAffinity", Shape::kObject},
                                     {"podAntiAffinity", Shape::kObject}};
constexpr Field kTolerationFields[] = {{"key", Shape::kString},
                                       {"operator", Shape::kString},
                                       {"value", Shape::kString},
                                       {"effect", Shape::kString},
                                       {"tolerationSeconds", Shape::kInteger}};
constexpr Field kPodFields[] = {{"volumes", Shape::kObjects, false, kVolumeFields},
                                {"initContainers", Shape::kObjects, false, kContainerFields},
                                {"containers", Shape::kObjects, true, kContainerFields},
                                {"nodeSelector", Shape::kStringMap},
                                {"affinity", Shape::kObject, false, kAffinityFields},
                                {"tolerations", Shape::kObjects, false, kTolerationFields},
                                {"restartPolicy", Shape::kString},
                                {"subdomain", Shape::kString},
                                {"hostname", Shape::kString},
                                {"hostNetwork", Shape::kBoolean},
                                {"hostIPC", Shape::kBoolean}};
constexpr Field kMetadataFields[] = {{"labels", Shape::kStringMap}, {"annotations", Shape::kStringMap}};
constexpr Field kTemplateFields[] = {{"metadata", Shape::kObject, false, kMetadataFields},
                                     {"spec", Shape::kObject, true, kPodFields}};

void check_fields(const JsonView& object, std::span<const Field> fields, const FieldPath& path,
                  FieldErrors& errors);

bool has_kind(const JsonView& value, JsonView::Kind kind, const char* form, const FieldPath& path,
              FieldErrors& errors) {
  const bool fits = value.kind() == kind;
  if (!fits) {
    errors.add(path, std::string("must be ") + form + ", is " + kind_of(value));
  }
  return fits;
}

std::string not_a_quantity(const JsonView& value) {
  return std::string("must be a quantity like 8 or \"80Gi\", is ") + kind_of(value);
}

void check_map(const JsonView& map, bool of_quantities, const FieldPath& path, FieldErrors& errors) {
  if (!has_kind(map, JsonView::Kind::kObject, "an object", path, errors)) {
    return;
  }
  for (const auto& [key, value] : map.members()) {
    const JsonView::Kind kind = value.kind();
    const bool number = kind == JsonView::Kind::kInteger || kind == JsonView::Kind::kReal;
    if (kind != JsonView::Kind::kString && kind != JsonView::Kind::kNull && !(of_quantities && number)) {
      errors.add(FieldPath(path, key), of_quantities ? not_a_quantity(value)
                                                     : std::string("must be a string, is ") + kind_of(value));
    }
  }
}

void check_list(const JsonView& list, const Field& field, const FieldPath& path, FieldErrors& errors) {
  if (!has_kind(list, JsonView::Kind::kArray, "a list", path, errors)) {
    return;
  }
  const auto size = static_cast<std::int64_t>(list.elements().size());
  if (size > kMaxItems) {
    errors.add(path,
               "must have at most " + std::to_string(kMaxItems) + " items, has " + std::to_string(size));
    return;
  }
  std::size_t index = 0;
  for (const JsonView each : list.elements()) {
    const FieldPath here(path, index++);
    if (field.shape == Shape::kStrings) {
      has_kind(each, JsonView::Kind::kString, "a string", here, errors);
    } else if (has_kind(each, JsonView::Kind::kObject, "an object", here, errors)) {
      check_fields(each, field.inner, here, errors);
    }
  }
}

void check_field(const JsonView& value, const Field& field, const FieldPath& path, FieldErrors& errors) {
  switch (field.shape) {
    case Shape::kString: has_kind(value, JsonView::Kind::kString, "a string", path, errors); break;
    case Shape::kBoolean: has_kind(value, JsonView::Kind::kBoolean, "true or false", path, errors); break;
    case Shape::kInteger: has_kind(value, JsonView::Kind::kInteger, "an integer", path, errors); break;
    case Shape::kObject:
      if (has_kind(value, JsonView::Kind::kObject, "an object", path, errors)) {
        check_fields(value, field.inner, path, errors);
      }
      break;
    case Shape::kObjects:
    case Shape::kStrings: check_list(value, field, path, errors); break;
    case Shape::kStringMap: check_map(value, false, path, errors); break;
    case Shape::kQuantity:
      if (value.kind() != JsonView::Kind::kString && value.kind() != JsonView::Kind::kInteger) {
        errors.add(path, not_a_quantity(value));
      }
      break;
    case Shape::kQuantityMap: check_map(value, true, path, errors); break;
  }
}

void check_fields(const JsonView& object, std::span<const Field> fields, const FieldPath& path,
                  FieldErrors& errors) {
  for (const Field& field : fields) {
    const FieldPath here(path, field.name);
    const std::optional<JsonView> found = object.member(field.name);
    if (found && !found->is_null()) {
      check_field(*found, field, here, errors);
    } else if (field.required) {
      errors.add(here, "is required");
    }
  }
}

// Plimsoll finds containers by their names.
void check_container_names(const JsonView& containers, const FieldPath& path, FieldErrors& errors) {
  const auto size = static_cast<std::int64_t>(containers.elements().size());
  if (containers.is_array() && (size < 1 || size > kMaxContainers)) {
    errors.add(path,
               "must have 1 to " + std::to_string(kMaxContainers) + " items, has " + std::to_string(size));
    return;
  }
  std::set<std::string_view> names;
  std::size_t index = 0;
  for (const JsonView container : containers.elements()) {
    const FieldPath here(path, index++);
    const FieldPath name_path(here, "name");
    const std::optional<std::string_view> name = member(container, {"name"}).text();
    if (!name) {
      continue;  // check_fields reports its type
    }
    if (!obeys(kContainerName, *name)) {
      errors.add(name_path, std::string("must be ") + kContainerName.form + ", is " + quoted(*name));
    } else if (!names.insert(*name).second) {
      errors.add(name_path, "is also the name of another container");
    }
  }
}

}  // namespace

void check_pod_template(const JsonView& pod_template, const FieldPath& path, FieldErrors& errors) {
  if (pod_template.is_null()) {
    errors.add(path, "is required");
    return;
  }
  if (!has_kind(pod_template, JsonView::Kind::kObject, "an object", path, errors)) {
    return;
  }
  check_fields(pod_template, kTemplateFields, path, errors);
  const FieldPath pod_path(path, "spec");
  const FieldPath containers_path(pod_path, "containers");
  check_container_names(member(pod_template, {"spec", "containers"}), containers_path, errors);
}

}  // namespace plimsoll::crds
