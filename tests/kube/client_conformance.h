// Which API server the conformance tests of a program run against; each program defines it.
#pragma once

#include "tests/controlplane/api_server.h"

namespace plimsoll::kube {

testing::ApiServerKind conformance_kind();

// The one server of the program; null, with the reason, where this kind is not available.
testing::ApiServer* conformance_server(std::string& why);

}  // namespace plimsoll::kube
