// The options of `plimsoll estimate`, whose model is a job's, a Hugging Face config.json or an exported graph. One
// thread.
#pragma once

#include <string>

#include "cli/console.h"
#include "cli/options.h"
#include "crds/training_job.h"
#include "estimator/catalog/gpu_catalog.h"
#include "estimator/types/request.h"

namespace plimsoll::cli {

inline constexpr const char* kDefaultGpu = "A100-80GB";
inline constexpr std::int64_t kMaxTrainers = 65536;  // as the API's own limit

// Fails for options of --graph and --config beside a job, which has these settings in its spec.
void refuse_options_of_models(OptionReader& options);

// Batch size, optimizer, precision, checkpointing and accumulation.
crds::TrainingSpec read_training(OptionReader& options);

// --parallelism, --tensor, --pipeline, ..., and read_fsdp().
void read_splits(OptionReader& options, crds::Parallelism& parallelism);

// --offload, --offload-percent and --overlap-offload, once the strategy is known.
void read_offload(OptionReader& options, crds::Parallelism& parallelism);

// --initialisation, once the strategy is known.
void read_initialisation(OptionReader& options, crds::TrainingSpec& training);

// --no-reshard-after-forward, --replicate and --reduce-bucket-size.
void read_fsdp(OptionReader& options, crds::Parallelism& parallelism);

// --gpu, else `otherwise`. Null when no such GPU is known; the error then names those that are.
const estimator::GpuModel* read_gpu(OptionReader& options, const estimator::GpuCatalog& catalog,
                                    const std::string& otherwise);

// --method, --device, --trainers and --alloc-conf; what is not given stays as it is.
void read_request(OptionReader& options, estimator::EstimateRequest& request);

// The job that --config stands for. Fails as `read_input` where the file cannot be read.
crds::TrainingJob job_of_config(OptionReader& options, Console& console);

}  // namespace plimsoll::cli
