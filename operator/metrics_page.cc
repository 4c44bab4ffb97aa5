#include "operator/metrics_page.h"

#include <prometheus/text_serializer.h>

#include <iterator>
#include <utility>

namespace plimsoll::process {

http::Response metrics_page(const Collectables& collectables) {
  std::vector<prometheus::MetricFamily> families;
  for (const auto& collectable : collectables) {
    std::vector<prometheus::MetricFamily> some = collectable->Collect();
    std::move(some.begin(), some.end(), std::back_inserter(families));
  }
  const prometheus::TextSerializer serializer;
  return {200, "text/plain; version=0.0.4; charset=utf-8", serializer.Serialize(families)};
}

}  // namespace plimsoll::process
