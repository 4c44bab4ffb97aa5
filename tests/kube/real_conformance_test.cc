#include "tests/kube/client_conformance.h"

namespace plimsoll::kube {

testing::ApiServerKind conformance_kind() {
  return testing::ApiServerKind::kReal;
}

}  // namespace plimsoll::kube
