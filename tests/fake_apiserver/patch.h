// The three patches that are plain functions of the object and the patch: JSON patch (RFC 6902), merge patch
// (RFC 7386) and strategic merge (lists merged by key, `$patch` and its kin). Server-side apply, which also
// needs to know who owns which field, is apply.h. Pure functions; any thread.
#pragma once

#include "base/json.h"
#include "tests/fake_apiserver/status.h"

namespace plimsoll::testing::fake {

// Errors: 400 when the patch is no list of operations, 422 when it cannot be carried out.
Outcome<Json> apply_json_patch(Json object, const Json& patch);

Json apply_merge_patch(Json object, const Json& patch);

// For built-in kinds; a custom type has no merge keys and is refused this patch by the server.
Outcome<Json> apply_strategic_merge(Json object, const Json& patch);

}  // namespace plimsoll::testing::fake
