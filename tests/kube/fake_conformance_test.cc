#include "tests/kube/client_conformance.h"

namespace plimsoll::kube {

testing::ApiServerKind conformance_kind() {
  return testing::ApiServerKind::kFake;
}

}  // namespace plimsoll::kube
