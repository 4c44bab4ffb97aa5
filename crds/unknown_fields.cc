#include "crds/unknown_fields.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>

#include "base/words.h"
#include "crds/decoder.h"
#include "crds/resource_fields.h"
#include "crds/training_job_fields.h"

namespace plimsoll::crds {
namespace {

// The visitor of `describe` that collects the names of fields, and follows the objects among them.
class KnownFields {
 public:
  KnownFields(const JsonView& object, const FieldPath& path, FieldErrors& errors)
      : object_(object), path_(path), errors_(errors) {}

  void field(const char* name) { names_.emplace_back(name); }

  template <class... Rest>
  void boolean(const char* name, const Rest&...) {
    field(name);
  }
  template <class... Rest>
  void optional_boolean(const char* name, const Rest&...) {
    field(name);
  }
  template <class... Rest>
  void integer(const char* name, const Rest&...) {
    field(name);
  }
  template <class... Rest>
  void optional_integer(const char* name, const Rest&...) {
    field(name);
  }
  template <class... Rest>
  void integers(const char* name, const Rest&...) {
    field(name);
  }
  template <class... Rest>
  void integer_set(const char* name, const Rest&...) {
    field(name);
  }
  template <class... Rest>
  void text(const char* name, const Rest&...) {
    field(name);
  }
  template <class... Rest>
  void texts(const char* name, const Rest&...) {
    field(name);
  }
  template <class... Rest>
  void decimal(const char* name, const Rest&...) {
    field(name);
  }
  template <class... Rest>
  void optional_decimal(const char* name, const Rest&...) {
    field(name);
  }
  template <class... Rest>
  void optional_bytes(const char* name, const Rest&...) {
    field(name);
  }
  template <class... Rest>
  void percentage(const char* name, const Rest&...) {
    field(name);
  }
  template <class E>
  void choice(const char* name, const E&, Presence) {
    field(name);
  }
  template <class E>
  void choice_but(const char* name, const E&, Presence, std::initializer_list<E>) {
    field(name);
  }
  template <class E>
  void choices(const char* name, const std::vector<E>&, Range) {
    field(name);
  }

  template <class T>
  void object(const char* name, T& value, Presence presence) {
    group(name, presence, [&](KnownFields& inner) { describe(inner, value); });
  }
  template <class T>
  void optional_object(const char* name, std::optional<T>&) {
    group(name, Presence::kOptional, [](KnownFields& inner) {
      T value;
      describe(inner, value);
    });
  }
  template <class T>
  void objects(const char* name, std::vector<T>&, Presence, Range) {
    field(name);
    const FieldPath list(path_, name);
    std::size_t position = 0;
    for (const JsonView element : member(object_, {name}).elements()) {
      T value;
      look_into(element, FieldPath(list, position++), [&](KnownFields& inner) { describe(inner, value); });
    }
  }
  template <class Describe>
  void group(const char* name, Presence, Describe fields) {
    field(name);
    look_into(member(object_, {name}), FieldPath(path_, name), fields);
  }

  void report() {
    for (const auto& [name, value] : object_.members()) {
      if (std::find(names_.begin(), names_.end(), name) == names_.end()) {
        errors_.add(FieldPath(path_, name), "unknown field" + did_you_mean(name, names_));
      }
    }
  }

 private:
  template <class Describe>
  void look_into(const JsonView& value, const FieldPath& path, Describe fields) {
    if (value.is_object()) {
      KnownFields inner(value, path, errors_);
      fields(inner);
      inner.report();
    }
  }

  const JsonView object_;
  const FieldPath& path_;
  FieldErrors& errors_;
  std::vector<std::string> names_;
};

// meta/v1 ObjectMeta.
constexpr std::initializer_list<const char*> kMetadata = {"name",
                                                          "generateName",
                                                          "namespace",
                                                          "selfLink",
                                                          "uid",
                                                          "resourceVersion",
                                                          "generation",
                                                          "creationTimestamp",
                                                          "deletionTimestamp",
                                                          "deletionGracePeriodSeconds",
                                                          "labels",
                                                          "annotations",
                                                          "ownerReferences",
                                                          "finalizers",
                                                          "managedFields"};

void check(const JsonView& object, std::initializer_list<const char*> known, const char* path,
           FieldErrors& errors) {
  const std::vector<std::string> names(known.begin(), known.end());
  for (const auto& [name, value] : object.members()) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      const FieldPath parent(path);
      errors.add(*path == '\0' ? FieldPath(name) : FieldPath(parent, name),
                 "unknown field" + did_you_mean(name, names));
    }
  }
}

template <class Spec>
void check_spec(const JsonView& object, std::initializer_list<const char*> open, FieldErrors& errors) {
  const JsonView spec = member(object, {"spec"});
  const FieldPath path("spec");
  KnownFields known(spec, path, errors);
  Spec value;
  describe(known, value);
  for (const char* name : open) {
    known.field(name);
  }
  known.report();
}

}  // namespace

std::vector<FieldError> unknown_fields(const JsonView& object) {
  FieldErrors errors;
  const std::string_view kind = member(object, {"kind"}).text().value_or("");
  if (kind == "TrainingJob") {
    check_spec<TrainingJobSpec>(object, {"template"}, errors);
  } else if (kind == "GPUModel") {
    check_spec<GpuModelSpec>(object, {}, errors);
  } else if (kind == "MemoryProfile") {
    check_spec<ProfileSpec>(object, {}, errors);
  } else {
    return {};
  }
  check(object, {"apiVersion", "kind", "metadata", "spec", "status"}, "", errors);
  check(member(object, {"metadata"}), kMetadata, "metadata", errors);
  return std::move(errors).take();
}

Result<void> refuse_unknown_fields(const JsonView& object) {
  const std::vector<FieldError> unknown = unknown_fields(object);
  return unknown.empty() ? Result<void>() : invalid(to_string(unknown));
}

}  // namespace plimsoll::crds
