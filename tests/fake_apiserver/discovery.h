// Discovery: groups, versions and resources, OpenAPI documents, and the server's version. Pure functions of
// the registry; any thread.
#pragma once

#include <string>

#include "base/json/json.h"
#include "tests/fake_apiserver/resource_type.h"

namespace plimsoll::testing::fake {

Json core_versions(const std::string& server_address);          // GET /api
Json group_list(const Registry& registry);                      // GET /apis
Json group(const Registry& registry, const std::string& name);  // GET /apis/G; null: no such group
// GET /api/v1, /apis/G/V
Json resource_list(const Registry& registry, const std::string& group_name, const std::string& version);
Json server_version();  // GET /version

// Swagger 2.0 without definitions: clients then validate nothing themselves. kubectl up to
// 1.24 needs the protobuf form.
Json openapi_v2();
std::string openapi_v2_protobuf(const Registry& registry);
// OpenAPI 3.0: the index, and one group version's document with the schemas of its custom types.
Json openapi_v3_index(const Registry& registry);
Json openapi_v3(const Registry& registry, const std::string& group_name, const std::string& version);

}  // namespace plimsoll::testing::fake
