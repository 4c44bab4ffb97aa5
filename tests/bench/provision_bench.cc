// ./scripts/bench provision: how long one decision on a language model takes, with up to 512 and up to 4,096 trainers, on
// a cluster of four GPU models: Llama 3's sizes (arXiv 2407.21783, table 3), 8,192 tokens, FSDP2 with full
// checkpointing, with and without tensor parallelism, at three batch sizes. Some fit on a few trainers, some at the
// bound's first number, some on none.
//
// Times are of the processor, of one thread. References are what the project aims at.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/allocator.h"
#include "estimator/catalog/gpu_catalog.h"
#include "estimator/provisioner/provisioner.h"
#include "tests/bench/report.h"
#include "tests/estimator/llama_job.h"

namespace plimsoll {
namespace {

using estimator::testing::LlamaSizes;

constexpr const char* kUsage =
    "usage: provision_bench [--json] [--repeat N]\n"
    "\n"
    "  --json      one object a line: {bench, case, metric, value, unit, reference}\n"
    "  --repeat N  decisions of each job (default 15)\n";

std::vector<estimator::AvailableGpu> cluster(std::int64_t nodes) {
  static const estimator::GpuCatalog catalog = estimator::GpuCatalog::built_in();
  std::vector<estimator::AvailableGpu> gpus;
  for (const char* name : {"A100-40GB", "A100-80GB", "H100-80GB", "H200"}) {
    if (const estimator::GpuModel* model = catalog.find(name); model != nullptr) {
      estimator::AvailableGpu gpu;
      gpu.model = *model;
      gpu.product_labels = {model->product_labels.front()};
      gpu.total_gpus = gpu.free_gpus = 8 * nodes;
      gpu.gpus_per_node = 8;
      gpu.shapes = {{8, nodes}};
      gpus.push_back(std::move(gpu));
    }
  }
  return gpus;
}

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

void measure(const testing::Report& report, std::int64_t most, int repeat, double reference) {
  const std::vector<estimator::AvailableGpu> gpus = cluster(most / 8);
  std::vector<double> all;
  for (const LlamaSizes& sizes :
       {estimator::testing::kLlama8B, estimator::testing::kLlama70B, estimator::testing::kLlama405B}) {
    for (const std::int64_t tensor : {1, 8}) {
      for (const std::int64_t batch : {1, 2, 4}) {
        const crds::TrainingJob job = estimator::testing::llama_job(sizes, batch, tensor, most);
        std::vector<double> times;
        std::string given = "none";
        for (int i = 0; i < repeat; ++i) {
          times.push_back(testing::median_milliseconds(1, [&] {
            const estimator::Provision answer = estimator::provision({.job = &job, .gpus = &gpus});
            given = answer.decided()
                        ? std::to_string(answer.decision->trainers) + " " + answer.decision->gpu_model
                        : "none";
          }));
        }
        report.add({.of = std::string(sizes.name) + (tensor > 1 ? ", tensor 8" : "") + ", batch " +
                          std::to_string(batch) + ", of " + std::to_string(most) + ": " + given,
                    .metric = "p50",
                    .value = quantile(times, 0.5),
                    .unit = "ms"});
        all.insert(all.end(), times.begin(), times.end());
      }
    }
  }
  report.add({.of = "all, of " + std::to_string(most),
              .metric = "p99",
              .value = quantile(all, 0.99),
              .unit = "ms",
              .reference = reference});
}

int run(int argc, char** argv) {
  bool json = false;
  int repeat = 15;
  if (!testing::read_arguments(argc, argv, {.json = &json, .numbers = {{"--repeat", &repeat}}})) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  const testing::Report report("provision", json);
  measure(report, 512, repeat, 25);
  measure(report, 4096, repeat, 100);
  return 0;
}

}  // namespace
}  // namespace plimsoll

int main(int argc, char** argv) {
  plimsoll::use_server_allocator();  // as where decisions are made
  return plimsoll::run(argc, argv);
}
