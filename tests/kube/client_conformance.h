// Which API server the conformance tests of a program run against; each program defines it.
#pragma once

#include "tests/controlplane/api_server.h"

namespace plimsoll::kube {

testing::ApiServerKind conformance_kind();

}  // namespace plimsoll::kube
