// The catalogue itself, and docs/metrics.md, which is generated from it: PLIMSOLL_WRITE_DOCS=1 writes the
// file.
#include "metrics/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "tests/checkout.h"

namespace plimsoll::metrics {
namespace {

constexpr const char* kPath = PLIMSOLL_SOURCE_DIR "/docs/metrics.md";

std::string markdown() {
  std::ostringstream text;
  text
      << "# Metrics\n\n"
         "Generated from `metrics/catalogue.h` by `PLIMSOLL_WRITE_DOCS=1 build/release/tests/metrics_test`; "
         "do not "
         "edit.\n\n"
         "Both processes serve them on `/metrics` of port 8443, in Prometheus' text format, over HTTPS and to "
         "those alone who send the token of a\n"
         "user who may `get` that path. [alerts.md](alerts.md#scraping) says how to scrape them.\n\n"
         "| name | type | labels | process | what it measures |\n|---|---|---|---|---|\n";
  for (const Metric& metric : kCatalogue) {
    text << "| `" << metric.name << "` | "
         << (metric.type == Type::kCounter ? "counter"
             : metric.type == Type::kGauge ? "gauge"
                                           : "histogram")
         << " | " << metric.labels << " | " << metric.process << " | " << metric.help << " |\n";
  }
  return text.str();
}

TEST(Catalogue, IsDocumented) {
  if (std::getenv("PLIMSOLL_WRITE_DOCS") != nullptr) {
    std::ofstream(kPath) << markdown();
  }
  std::ifstream file(kPath);
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), markdown())
      << "PLIMSOLL_WRITE_DOCS=1 build/release/tests/metrics_test writes docs/metrics.md";
}

TEST(Catalogue, NamesFollowPrometheusConventions) {
  static const std::regex kName("[a-z][a-z0-9_]*");
  static const std::regex kLabels("([a-z_]+(, [a-z_]+)*)?");
  std::set<std::string> names;
  for (const Metric& metric : kCatalogue) {
    const std::string name = metric.name;
    EXPECT_TRUE(std::regex_match(name, kName)) << name;
    EXPECT_TRUE(names.insert(name).second) << name << " is there twice";
    EXPECT_EQ(name.ends_with("_total"), metric.type == Type::kCounter) << name;
    EXPECT_TRUE(std::regex_match(metric.labels, kLabels)) << name;
    EXPECT_THAT(metric.process, ::testing::AnyOf(std::string("webhook"), "operator", "both")) << name;
    EXPECT_GT(std::string(metric.help).size(), 10U) << name;
    EXPECT_EQ(&kCatalogue.at(find(name)), &metric);
  }
  EXPECT_EQ(find("plimsoll_no_such_metric"), kCatalogue.size());
}

}  // namespace
}  // namespace plimsoll::metrics
