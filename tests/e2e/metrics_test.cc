// What both processes serve on /metrics is the catalogue's (metrics/catalogue.h): no name, type or label
// besides it, and nothing of it that is missing.
#include "metrics/catalogue.h"

#include <gmock/gmock.h>

#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "tests/e2e/main_job.h"
#include "tests/testing/eventually.h"

namespace plimsoll::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Names = std::set<std::string>;

// They appear with the first attempt that ends so.
const Names kAfterAnAttempt = {"plimsoll_jobs_succeeded_total", "plimsoll_jobs_failed_total",
                               "plimsoll_jobs_restarted_total", "plimsoll_job_attempts_total",
                               "plimsoll_oom_detected_total",   "plimsoll_estimate_relative_error",
                               "plimsoll_job_gpu_hours_total",  "plimsoll_job_gpu_hours_saved_total"};

struct Family {
  std::string type;
  Names labels;
};

// Of Prometheus' text format, by name.
std::map<std::string, Family> families_of(const std::string& scrape) {
  static const std::regex kType("# TYPE (\\w+) (\\w+)");
  static const std::regex kLabel("(\\w+)=\"");
  std::map<std::string, Family> families;
  std::string current;
  std::istringstream lines(scrape);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_match(line, match, kType)) {
      current = match[1];
      families[current].type = match[2];
    } else if (!line.starts_with('#')) {
      EXPECT_TRUE(line.starts_with(current)) << line;
      for (std::sregex_iterator label(line.begin(), line.end(), kLabel), end; label != end; ++label) {
        if ((*label)[1] != "le") {
          families[current].labels.insert((*label)[1]);
        }
      }
    }
  }
  return families;
}

const char* name_of(metrics::Type type) {
  switch (type) {
    case metrics::Type::kCounter: return "counter";
    case metrics::Type::kGauge: return "gauge";
    case metrics::Type::kHistogram: return "histogram";
  }
  return "";
}

Names split(const std::string& labels) {
  static const std::regex kWord("\\w+");
  Names words;
  for (std::sregex_iterator word(labels.begin(), labels.end(), kWord), end; word != end; ++word) {
    words.insert(word->str());
  }
  return words;
}

// What differs between a scrape and the catalogue.
std::vector<std::string> differences(const std::string& scrape, const std::string& process,
                                     const Names& may_be_absent) {
  std::vector<std::string> found;
  std::map<std::string, Family> families = families_of(scrape);
  for (const metrics::Metric& metric : metrics::kCatalogue) {
    const auto family = families.find(metric.name);
    const bool has = metric.process == process || std::string(metric.process) == "both";
    if (family == families.end()) {
      if (has && !may_be_absent.contains(metric.name)) {
        found.push_back(std::string(metric.name) + " is missing");
      }
      continue;
    }
    if (!has) {
      found.push_back(std::string(metric.name) + " is not of this process");
    }
    if (family->second.type != name_of(metric.type)) {
      found.push_back(std::string(metric.name) + " is a " + family->second.type);
    }
    if (family->second.labels != split(metric.labels)) {
      found.push_back(std::string(metric.name) + " has other labels");
    }
    families.erase(family);
  }
  for (const auto& [name, family] : families) {
    found.push_back(name + " is not in the catalogue");
  }
  return found;
}

class MetricsTest : public MainJobTest {
 protected:
  void SetUp() override {
    MainJobTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) {
      return;
    }
    ASSERT_NO_FATAL_FAILURE(start_plimsoll());
  }
};

TEST_F(MetricsTest, BothProcessesServeTheCatalogue) {
  must({"apply", "-f", "-"}, small_job("ads"));
  std::string scrape;
  EXPECT_TRUE(eventually("the pass counts", [&] {  // when it ends, after its job
    scrape = http_get(operator_->ops_port(), "/metrics");
    return scrape.find("plimsoll_jobs_created_total{") != scrape.npos &&
           scrape.find("controller_runtime_reconcile_total{") != scrape.npos;
  }));
  EXPECT_THAT(scrape, HasSubstr("plimsoll_jobs_created_total{namespace=\"default\"} 1"));
  // It was started without an election: it leads all the same.
  EXPECT_THAT(scrape, HasSubstr("leader_election_master_status{name=\"plimsoll-operator\"} 1"));
  EXPECT_THAT(differences(scrape, "operator", kAfterAnAttempt), IsEmpty());
  scrape = http_get(webhook_->ops_port(), "/metrics");
  EXPECT_THAT(scrape, HasSubstr("plimsoll_admission_requests_total{"));
  EXPECT_THAT(differences(scrape, "webhook", {}), IsEmpty());
}

TEST(MetricsDifferences, AreSeen) {
  EXPECT_THAT(
      differences("# TYPE plimsoll_workers counter\nplimsoll_workers{a=\"b\"} 1\n# TYPE x gauge\nx 1\n",
                  "webhook", {}),
      ::testing::IsSupersetOf({"plimsoll_workers is a counter", "plimsoll_workers has other labels",
                               "x is not in the catalogue", "plimsoll_cpu_limit is missing"}));
}

}  // namespace
}  // namespace plimsoll::testing
