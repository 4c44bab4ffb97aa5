#include "metrics/families.h"

#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

namespace plimsoll::metrics {
namespace {

TEST(Families, HaveTheCataloguesNamesAndHelp) {
  prometheus::Registry registry;
  counters(registry, "plimsoll_jobs_failed_total").Add({{"namespace", "ml"}}).Increment();
  counters(registry, "plimsoll_jobs_failed_total").Add({{"namespace", "ml"}}).Increment();
  gauges(registry, "plimsoll_workers").Add({}).Set(4);
  const std::string text = prometheus::TextSerializer().Serialize(registry.Collect());
  EXPECT_NE(text.find("# HELP plimsoll_jobs_failed_total Jobs that failed permanently\n"), text.npos) << text;
  EXPECT_NE(text.find("# TYPE plimsoll_jobs_failed_total counter\n"), text.npos) << text;
  EXPECT_NE(text.find("plimsoll_jobs_failed_total{namespace=\"ml\"} 2\n"), text.npos) << text;
  EXPECT_NE(text.find("plimsoll_workers 4\n"), text.npos) << text;
}

TEST(Families, CollectablesMakeTheirOwn) {
  const prometheus::MetricFamily family =
      counters("plimsoll_memory_rejected_total", {{3, {{"pool", "reviews"}}}, {4, {{"pool", "imports"}}}});
  const std::string text =
      prometheus::TextSerializer().Serialize({family, gauges("plimsoll_cpu_limit", {{2.5}})});
  EXPECT_NE(text.find("plimsoll_memory_rejected_total{pool=\"reviews\"} 3\n"), text.npos) << text;
  EXPECT_NE(text.find("plimsoll_memory_rejected_total{pool=\"imports\"} 4\n"), text.npos) << text;
  EXPECT_NE(text.find("# TYPE plimsoll_cpu_limit gauge\nplimsoll_cpu_limit 2.5\n"), text.npos) << text;
}

}  // namespace
}  // namespace plimsoll::metrics
