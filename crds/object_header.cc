#include "crds/object_header.h"

#include <string_view>

namespace plimsoll::crds {
namespace {

void expect(const JsonView& object, const char* field, std::string_view expected, FieldErrors& errors) {
  const JsonView found = member(object, {field});
  const std::optional<std::string_view> text = found.text();
  if (text != expected) {
    errors.add(FieldPath(field),
               "must be " + std::string(expected) + ", is " + (text ? quoted(*text) : kind_of(found)));
  }
}

std::string metadata_text(const JsonView& object, const char* field, FieldErrors& errors) {
  const JsonView found = member(object, {"metadata", field});
  const std::optional<std::string_view> text = found.text();
  if (!found.is_null() && !text) {
    const FieldPath metadata("metadata");
    errors.add(FieldPath(metadata, field), std::string("must be a string, is ") + kind_of(found));
  }
  return std::string(text.value_or(""));
}

}  // namespace

ObjectHeader decode_header(const JsonView& object, const char* kind, FieldErrors& errors) {
  if (!object.is_object()) {
    errors.add(FieldPath(kind), std::string("must be an object, is ") + kind_of(object));
    return {};
  }
  expect(object, "apiVersion", kApiVersion, errors);
  expect(object, "kind", kind, errors);
  const JsonView metadata = member(object, {"metadata"});
  if (!metadata.is_null() && !metadata.is_object()) {
    errors.add(FieldPath("metadata"), std::string("must be an object, is ") + kind_of(metadata));
  }
  return {.name = metadata_text(object, "name", errors),
          .namespace_name = metadata_text(object, "namespace", errors)};
}

Error to_error(const FieldErrors& errors) {
  return invalid(to_string(errors.list()));
}

}  // namespace plimsoll::crds
