// `plimsoll estimate --config`: a Hugging Face config.json on the command line, as the TrainingJob it would
// be. One thread.
#pragma once

#include "cli/console.h"
#include "cli/options.h"
#include "crds/training_job.h"

namespace plimsoll::cli {

// The options that only configs take.
void add_config_options(po::options_description& options);

// The name of an option that was given though it goes with --config only; null: none was.
const char* config_option_given(const po::variables_map& values);

// Errors: kInvalid for wrong usage, and as `read_input` for the file.
Result<crds::TrainingJob> job_of_config(const po::variables_map& values, Console& console);

}  // namespace plimsoll::cli
