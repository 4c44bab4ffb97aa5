// Field ownership (metadata.managedFields) and server-side apply: a field that its manager no longer applies
// is removed unless another manager owns it, and changing another manager's field is a conflict unless
// forced. Pure functions except for the timestamps; any thread.
#pragma once

#include <string>

#include "base/json/json.h"
#include "tests/fake_apiserver/resource_type.h"
#include "tests/fake_apiserver/status.h"

namespace plimsoll::testing::fake {

struct Writer {
  std::string manager;
  std::string subresource;  // "" or "status"
};

// Gives `object` the managedFields that follow from `before` (null at creation) by an update of `writer`.
void track_update(Json& object, const Json& before, const ResourceType& type, const Writer& writer);

// The live object (null: none yet) with the configuration applied. Errors: 409 with the causes of each
// conflict.
Outcome<Json> server_side_apply(const Json& live, Json configuration, const ResourceType& type,
                                const Writer& writer, bool force);

}  // namespace plimsoll::testing::fake
