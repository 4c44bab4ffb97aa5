// `plimsoll estimate --graph`: the estimate of an exported graph. One thread.
#pragma once

#include "cli/console.h"
#include "cli/options.h"
#include "crds/training_job.h"
#include "estimator/catalog/gpu_catalog.h"
#include "estimator/types/runtime_settings.h"

namespace plimsoll::cli {

// The options that only graphs take.
void add_graph_options(po::options_description& options);

// The name of an option that was given though it goes with --graph only; null: none was.
const char* graph_option_given(const po::variables_map& values);

// Batch size, optimizer, precision, checkpointing, accumulation and strategy. Errors: kInvalid for wrong
// usage.
Result<void> read_training_options(const po::variables_map& values, crds::TrainingSpec& training);

// Errors: kInvalid, naming the GPUs that are known.
Result<const estimator::GpuModel*> find_gpu(const estimator::GpuCatalog& catalog, const std::string& name);

// --alloc-conf over what is there. Errors: as parse_allocator_settings.
Result<void> read_allocator_option(const po::variables_map& values, estimator::RuntimeSettings& runtime);

// Returns the exit code.
int run_graph_estimate(const po::variables_map& values, OutputFormat format, Console& console);

}  // namespace plimsoll::cli
