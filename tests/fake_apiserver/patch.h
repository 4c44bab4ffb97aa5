// JSON patch (RFC 6902), merge patch (RFC 7386) and strategic merge patch (lists merged by key, `$patch`
// directives). apply.h has server-side apply. Pure functions; any thread.
#pragma once

#include "base/json/json.h"
#include "tests/fake_apiserver/status.h"

namespace plimsoll::testing::fake {

// Errors: 400 when the patch is not a list, 422 when an operation fails.
Outcome<Json> apply_json_patch(const Json& object, const Json& patch);

Json apply_merge_patch(const Json& object, const Json& patch);

// For built-in kinds; the server refuses this patch for custom types, which have no merge keys.
Outcome<Json> apply_strategic_merge(Json object, const Json& patch);

}  // namespace plimsoll::testing::fake
