// Reads what all kinds of the group have in common. Inside crds/ only. Pure; any thread.
#pragma once

#include <string>

#include "base/json/view.h"
#include "crds/checker.h"
#include "crds/decoder.h"
#include "crds/field_path.h"

namespace plimsoll::crds {

struct ObjectHeader {
  std::string name;
  std::string namespace_name;
};

// Reads metadata, and adds an error where apiVersion or kind are not those expected. `object` may be
// anything.
ObjectHeader decode_header(const JsonView& object, const char* kind, FieldErrors& errors);

// Reads a part such as `spec` and, when it could be read, checks its bounds. An absent part keeps its
// defaults.
template <class T>
void decode_part(const JsonView& object, const char* name, T& part, FieldErrors& errors) {
  FieldErrors found_wrong;
  const FieldPath path(name);
  const JsonView found = member(object, {name});
  if (found.is_null()) {
    return;
  }
  if (!found.is_object()) {
    errors.add(path, std::string("must be an object, is ") + kind_of(found));
    return;
  }
  Decoder decoder(found, path, found_wrong);
  describe(decoder, part);
  if (found_wrong.empty()) {
    Checker checker(path, found_wrong);
    describe(checker, part);
  }
  errors.add(found_wrong);
}

// The errors as one.
Error to_error(const FieldErrors& errors);

}  // namespace plimsoll::crds
