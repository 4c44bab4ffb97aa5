// The answer to GET /metrics: all collectables in Prometheus' text format.
//
//   http::Response answer = metrics_page({registry, std::make_shared<ResourceMetrics>(plan, pools, workers)});
//
// Any thread, where the collectables allow it; they are called each time.
#pragma once

#include <prometheus/collectable.h>

#include <memory>
#include <vector>

#include "http/server.h"

namespace plimsoll::process {

using Collectables = std::vector<std::shared_ptr<const prometheus::Collectable>>;

http::Response metrics_page(const Collectables& collectables);

}  // namespace plimsoll::process
