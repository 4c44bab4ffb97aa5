// `plimsoll swap --executor NAME`: the least that a training by Megatron-LM, DeepSpeed or FSDP has to keep in host memory, and what
// each share of it takes. One thread.
#pragma once

#include "cli/answer_budget.h"
#include "cli/console.h"
#include "cli/options.h"
#include "cli/swap_source.h"

namespace plimsoll::cli {

// --executor, --tensor, --pipeline, ..., --overlap-offload, --measured.
po::options_description swap_offload_options();

// Whether --executor names another executor than plimsoll.harmony.
bool asks_for_offload(OptionReader& options);

// Fails for options that go with such an executor alone.
void refuse_offload_options(OptionReader& options);

// Prints the answer. Returns the exit code.
int run_swap_offload(OptionReader& options, const SwapSource& source, AnswerBudget& budget,
                     OutputFormat format, Console& console);

}  // namespace plimsoll::cli
