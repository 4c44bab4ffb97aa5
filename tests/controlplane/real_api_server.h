// The real control plane as child processes, on free loopback ports, with certificates and tokens made for
// this run. Use it through start_api_server(ApiServerKind::kReal).
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "tests/controlplane/api_server.h"

namespace plimsoll::testing {

// Returns when the API server says it is ready. Errors: kNotFound when the programs are not on this machine.
Result<std::unique_ptr<ApiServer>> start_real_api_server(const ApiServerOptions& options);

}  // namespace plimsoll::testing
