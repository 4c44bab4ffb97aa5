// `plimsoll estimate --graph`: the estimate of an exported graph. One thread.
#pragma once

#include "cli/console.h"
#include "cli/options.h"
#include "estimator/catalog/gpu_catalog.h"

namespace plimsoll::cli {

// The options that only graphs take.
void add_graph_options(po::options_description& options);

// The name of an option that was given though it goes with --graph only; null: none was.
const char* graph_option_given(const po::variables_map& values);

// Errors: kInvalid, naming the GPUs that are known.
Result<const estimator::GpuModel*> find_gpu(const estimator::GpuCatalog& catalog, const std::string& name);

// Returns the exit code.
int run_graph_estimate(const po::variables_map& values, OutputFormat format, Console& console);

}  // namespace plimsoll::cli
