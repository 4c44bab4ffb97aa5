// What the examples of remediation/ leave open.
#pragma once

#include "estimator/catalog/inventory.h"
#include "remediation/attempt_end.h"
#include "remediation/attempt_record.h"
#include "remediation/host_memory.h"
#include "remediation/log_lines.h"
#include "remediation/next_size.h"
#include "remediation/out_of_memory_figures.h"
#include "remediation/patterns.h"
#include "remediation/remediation.h"
#include "remediation/remediation_note.h"
#include "remediation/shared_memory.h"
#include "remediation/signposts.h"
#include "remediation/termination_message.h"
#include "tests/header_examples/anything.h"

namespace plimsoll::examples {
using namespace remediation;

struct attempt_end_example {
  Json pod_0, pod_1;
  void resize(const std::optional<Bytes>& needed);
};
struct attempt_record_example {
  crds::Attempt attempt;
  Json job;
  std::vector<Json> pods;
  std::string now;
};
struct host_memory_example {
  crds::TrainingJob job;
  void patch(const crds::TrainingJob& job, const Json& operations);
};
struct log_lines_example {
  std::string text;
  void use(std::string_view name);
};
struct next_size_example {
  crds::TrainingJob job;
  std::vector<estimator::AvailableGpu> gpus;
  crds::JobStatus status;
  void patch(const crds::TrainingJob& job, const Json& operations);
};
struct out_of_memory_figures_example {
  std::string_view text;
  std::size_t begin_of_line = 0;
};
struct patterns_example {
  std::string_view line;
  void use(Outcome outcome);
};
struct remediation_example {
  crds::TrainingJob job;
  std::vector<estimator::AvailableGpu> gpus;
  crds::JobStatus status;
  void patch(const crds::TrainingJob& job, const Json& operations);
  void fail(const std::string& reason);
};
struct remediation_note_example {
  Json job;
  Remediation remediation;
  crds::Attempt attempt;
  void patch(const Json& job, const Json& operations);
  void continue_with(const Remediation& noted);
};
struct shared_memory_example {
  crds::TrainingJob job;
  crds::Attempt attempt;
  void mount(Bytes size);
  void patch(const crds::TrainingJob& job, const Json& operations);
};
struct signposts_example {
  Json pod_0, pod_1;
  crds::Attempt attempt;
};
struct termination_message_example {
  std::string message;
  void use(Outcome outcome);
};

}  // namespace plimsoll::examples
