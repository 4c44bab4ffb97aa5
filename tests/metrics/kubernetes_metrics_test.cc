#include "metrics/kubernetes_metrics.h"

#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include <map>
#include <optional>

#include "tests/kube/virtual_clock.h"

namespace plimsoll::metrics {
namespace {

using std::chrono::seconds;

// The one series of each family, by its name; histograms by their sum and count.
std::map<std::string, double> scrape(const prometheus::Registry& registry) {
  std::map<std::string, double> values;
  for (const prometheus::MetricFamily& family : registry.Collect()) {
    EXPECT_EQ(family.metric.size(), 1U) << family.name;
    const prometheus::ClientMetric& metric = family.metric.front();
    EXPECT_EQ(metric.label.front().name, "name");
    switch (family.type) {
      case prometheus::MetricType::Counter: values[family.name] = metric.counter.value; break;
      case prometheus::MetricType::Gauge: values[family.name] = metric.gauge.value; break;
      default:
        values[family.name + "_sum"] = metric.histogram.sample_sum;
        values[family.name + "_count"] = static_cast<double>(metric.histogram.sample_count);
    }
  }
  return values;
}

TEST(QueueMetrics, HaveClientGosNames) {
  testing::VirtualClock clock;
  prometheus::Registry registry;
  QueueMetrics metrics(registry, "trainingjob");
  kube::WorkQueue queue({.clock = &clock, .observer = &metrics});
  metrics.watch(&queue);
  queue.add("a");
  queue.add("b");
  queue.add_after("c", seconds(9));
  clock.pass(seconds(1));
  ASSERT_TRUE(queue.try_get().has_value());
  ASSERT_TRUE(queue.try_get().has_value());
  clock.pass(seconds(2));
  queue.done("a");
  clock.pass(seconds(1));
  metrics.refresh();
  const std::map<std::string, double> expected = {
      {"workqueue_adds_total", 2},
      {"workqueue_depth", 0},
      {"workqueue_longest_running_processor_seconds", 3},
      {"workqueue_queue_duration_seconds_count", 2},
      {"workqueue_queue_duration_seconds_sum", 2},
      {"workqueue_retries_total", 1},
      {"workqueue_unfinished_work_seconds", 3},
      {"workqueue_work_duration_seconds_count", 1},
      {"workqueue_work_duration_seconds_sum", 2},
  };
  EXPECT_EQ(scrape(registry), expected);
  metrics.watch(nullptr);
  metrics.refresh();
  EXPECT_EQ(scrape(registry)["workqueue_unfinished_work_seconds"], 0);
}

TEST(ElectionMetrics, HaveClientGosNames) {
  prometheus::Registry registry;
  ElectionMetrics metrics(registry, "operator");
  metrics.master_status(true);
  metrics.slow_paths(2);
  const std::map<std::string, double> expected = {{"leader_election_master_status", 1},
                                                  {"leader_election_slowpath_total", 2}};
  EXPECT_EQ(scrape(registry), expected);
  metrics.master_status(false);
  EXPECT_EQ(scrape(registry)["leader_election_master_status"], 0);
}

TEST(ReflectorMetrics, HaveClientGosNames) {
  prometheus::Registry registry;
  ReflectorMetrics metrics(registry, "pods");
  metrics.list_began();
  metrics.listed(seconds(2), 50);
  metrics.watch_began();
  metrics.watch_began();
  metrics.watched(seconds(300), 7);
  metrics.watch_was_short();
  metrics.version("123");
  metrics.version("no number");
  metrics.version("99999999999999999999999999");
  const std::map<std::string, double> expected = {
      {"reflector_items_per_list_count", 1},         {"reflector_items_per_list_sum", 50},
      {"reflector_items_per_watch_count", 1},        {"reflector_items_per_watch_sum", 7},
      {"reflector_last_resource_version", 123},      {"reflector_list_duration_seconds_count", 1},
      {"reflector_list_duration_seconds_sum", 2},    {"reflector_lists_total", 1},
      {"reflector_short_watches_total", 1},          {"reflector_watch_duration_seconds_count", 1},
      {"reflector_watch_duration_seconds_sum", 300}, {"reflector_watches_total", 2},
  };
  EXPECT_EQ(scrape(registry), expected);
}

TEST(RestClientMetrics, HaveClientGosNames) {
  prometheus::Registry registry;
  RestClientMetrics metrics(registry, "https://10.0.0.1:6443/behind/a/path");
  metrics.requested("GET", 200);
  metrics.requested("GET", 200);
  metrics.requested("GET", 0);
  metrics.requested("POST", 409);
  metrics.took("GET", seconds(3));
  const std::string text = prometheus::TextSerializer().Serialize(registry.Collect());
  for (const char* line :
       {R"(rest_client_requests_total{code="200",host="10.0.0.1:6443",method="GET"} 2)",
        R"(rest_client_requests_total{code="<error>",host="10.0.0.1:6443",method="GET"} 1)",
        R"(rest_client_requests_total{code="409",host="10.0.0.1:6443",method="POST"} 1)",
        R"(rest_client_request_duration_seconds_sum{host="10.0.0.1:6443",verb="GET"} 3)",
        R"(rest_client_request_duration_seconds_count{host="10.0.0.1:6443",verb="GET"} 1)",
        R"(rest_client_request_duration_seconds_count{host="10.0.0.1:6443",verb="DELETE"} 0)"}) {
    EXPECT_NE(text.find(std::string(line) + "\n"), text.npos) << line << "\n" << text;
  }
}

TEST(RestClientMetrics, TheHostIsWithoutSchemeAndPath) {
  for (const char* server : {"http://api", "api", "https://api/"}) {
    prometheus::Registry registry;
    RestClientMetrics metrics(registry, server);
    metrics.requested("PUT", 200);
    const std::string text = prometheus::TextSerializer().Serialize(registry.Collect());
    EXPECT_NE(text.find(R"({code="200",host="api",method="PUT"} 1)"), text.npos) << server << "\n" << text;
  }
}

TEST(EventMetrics, CountLossesByTheirReason) {
  prometheus::Registry registry;
  EventMetrics metrics(registry);
  metrics.lost(kube::EventRecorder::Loss::kTooMany);
  metrics.lost(kube::EventRecorder::Loss::kTooMany);
  metrics.lost(kube::EventRecorder::Loss::kQueueFull);
  std::map<std::string, double> counts;
  for (const prometheus::MetricFamily& family : registry.Collect()) {
    EXPECT_EQ(family.name, "plimsoll_events_lost_total");
    for (const prometheus::ClientMetric& metric : family.metric) {
      counts[metric.label.front().value] = metric.counter.value;
    }
  }
  const std::map<std::string, double> expected = {{"NotWritten", 0}, {"QueueFull", 1}, {"TooMany", 2}};
  EXPECT_EQ(counts, expected);
}

}  // namespace
}  // namespace plimsoll::metrics
