// What the examples of metrics/ leave open.
#pragma once

#include "metrics/kubernetes_metrics.h"
#include "tests/header_examples/anything.h"

namespace plimsoll::examples {

struct kubernetes_metrics_example {
  prometheus::Registry registry;
};

}  // namespace plimsoll::examples
