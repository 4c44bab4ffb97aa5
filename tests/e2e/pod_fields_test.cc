// The table of a pod template's fields is that of the API server that tests run on: a new version of Kubernetes in
// tests/controlplane/go.mod needs a new table. The real one alone has the OpenAPI of pods.
#include <gmock/gmock.h>

#include "tests/checkout.h"
#include "tests/e2e/main_job.h"

namespace plimsoll::testing {
namespace {

using PodFieldsTest = MainJobTest;

TEST_F(PodFieldsTest, AreThoseOfTheApiServer) {
  const CommandResult made = run_command({"python3", PLIMSOLL_SOURCE_DIR "/scripts/lib/pod_fields.py"},
                                         must({"get", "--raw", "/openapi/v3/api/v1"}).output);
  EXPECT_EQ(made.exit_code, 0) << made.errors;
  EXPECT_EQ(made.output, read_file(PLIMSOLL_SOURCE_DIR "/crds/core_v1/pod_fields.json"))
      << "make it anew: kubectl get --raw /openapi/v3/api/v1 | python3 scripts/lib/pod_fields.py > crds/core_v1/pod_fields.json";
}

}  // namespace
}  // namespace plimsoll::testing
