#include "operator/metrics_page.h"

#include <gtest/gtest.h>
#include <prometheus/counter.h>
#include <prometheus/registry.h>

namespace plimsoll::process {
namespace {

TEST(MetricsPage, HasThoseOfAllCollectables) {
  auto one = std::make_shared<prometheus::Registry>();
  auto two = std::make_shared<prometheus::Registry>();
  prometheus::BuildCounter().Name("plimsoll_one_total").Help("One").Register(*one).Add({}).Increment(3);
  prometheus::BuildCounter().Name("plimsoll_two_total").Help("Two").Register(*two).Add({});
  const http::Response page = metrics_page({one, two});
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.content_type, "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_NE(page.body.find("plimsoll_one_total 3"), std::string::npos);
  EXPECT_NE(page.body.find("plimsoll_two_total 0"), std::string::npos);
  EXPECT_EQ(metrics_page({}).body, "");
}

}  // namespace
}  // namespace plimsoll::process
