// What the examples of cli/ leave open.
#pragma once

#include <sstream>

#include "cli/options.h"
#include "cli/subcommands.h"
#include "estimator/types/request.h"
#include "tests/header_examples/anything.h"

namespace plimsoll::examples {

struct placed_tables_example {
  estimator::EstimateRequest request;
  estimator::GpuModel gpu;
  Bytes left_on_the_card;
};

struct swap_remedies_example {
  estimator::RemedySearch search;
  estimator::RemedyAnswer answer;
};
struct swap_source_example {
  cli::OptionReader& options;
  cli::Console& console;
};

}  // namespace plimsoll::examples
