// GPUModels, MemoryProfiles and nodes as the API server gives them: {"gpuModels": [...], "memoryProfiles":
// [...], "nodes": [...]}.
#include <vector>

#include "base/json/json.h"
#include "estimator/catalog/inventory.h"
#include "estimator/provisioner/cluster_view.h"
#include "tests/fuzz/target.h"

namespace plimsoll::testing {
namespace {

std::vector<Json> list_of(const Json& world, const char* name) {
  const Json& list = member(world, {name});
  return {list.begin(), list.end()};
}

}  // namespace

FUZZ_TARGET(cluster_objects) {
  static const estimator::GpuCatalog catalog = estimator::GpuCatalog::built_in();
  const Result<Json> world = parse_json(input);
  if (!world) {
    return;
  }
  const auto view =
      estimator::make_cluster_view(catalog, list_of(*world, "gpuModels"), list_of(*world, "memoryProfiles"));
  for (const estimator::AvailableGpu& gpu : view->gpus) {
    require(gpu.total_gpus >= 0 && gpu.free_gpus >= 0, "GPUs are not negative");
  }
  std::vector<estimator::GpuNode> nodes;
  for (const Json& object : list_of(*world, "nodes")) {
    if (Result<estimator::GpuNode> node = estimator::decode_node(object); node) {
      nodes.push_back(*std::move(node));
    }
  }
  (void)estimator::take_inventory(nodes, catalog);
}

}  // namespace plimsoll::testing
