// What the examples of cli/ leave open.
#pragma once

#include <sstream>

#include "cli/options.h"
#include "cli/subcommands.h"
#include "estimator/types/request.h"
#include "tests/header_examples/anything.h"

namespace plimsoll::examples {

struct answer_budget_example {
  cli::OptionReader& options;
  estimator::EstimateRequest request;
};
struct job_sources_example {
  Result<std::vector<cli::Document>> documents;
  Result<cli::ClusterState> state;
};
struct jobs_example {
  Result<std::vector<cli::Document>> documents;
  Result<cli::ClusterState> state;
  cli::Console& console;
};
struct workload_job_example {
  cli::Document document;
  cli::JobSources sources;
};
struct placed_tables_example {
  cli::AnswerBudget budget{cli::kDefaultTimeout};
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
  cli::AnswerBudget budget{cli::kDefaultTimeout};
};

}  // namespace plimsoll::examples
