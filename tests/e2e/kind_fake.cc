#include "tests/e2e/main_job.h"

namespace plimsoll::testing {
ApiServerKind kind_under_test() {
  return ApiServerKind::kFake;
}
}  // namespace plimsoll::testing
