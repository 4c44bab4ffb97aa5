#include "crds/object_header.h"

#include <string_view>

namespace plimsoll::crds {
namespace {

void expect(const Json& object, const char* field, std::string_view expected, FieldErrors& errors) {
  const Json& found = member(object, {field});
  if (!found.isString() || found.asString() != expected) {
    errors.add(FieldPath(field), "must be " + std::string(expected) + ", is " +
                                     (found.isString() ? quoted(found.asString()) : kind_of(found)));
  }
}

std::string metadata_text(const Json& object, const char* field, FieldErrors& errors) {
  const Json& found = member(object, {"metadata", field});
  if (!found.isNull() && !found.isString()) {
    const FieldPath metadata("metadata");
    errors.add(FieldPath(metadata, field), std::string("must be a string, is ") + kind_of(found));
  }
  return found.isString() ? found.asString() : std::string();
}

}  // namespace

ObjectHeader decode_header(const Json& object, const char* kind, FieldErrors& errors) {
  if (!object.isObject()) {
    errors.add(FieldPath(kind), std::string("must be an object, is ") + kind_of(object));
    return {};
  }
  expect(object, "apiVersion", kApiVersion, errors);
  expect(object, "kind", kind, errors);
  const Json& metadata = member(object, {"metadata"});
  if (!metadata.isNull() && !metadata.isObject()) {
    errors.add(FieldPath("metadata"), std::string("must be an object, is ") + kind_of(metadata));
  }
  return {.name = metadata_text(object, "name", errors),
          .namespace_name = metadata_text(object, "namespace", errors)};
}

Error to_error(const FieldErrors& errors) {
  return invalid(to_string(errors.list()));
}

}  // namespace plimsoll::crds
