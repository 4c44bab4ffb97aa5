// Jobs that the schema allows and that no decision can finish: what they cost others, from kubectl's side.
#include <gmock/gmock.h>

#include <chrono>
#include <ctime>
#include <fstream>
#include <future>

#include "base/base64.h"
#include "base/gzip.h"
#include "tests/e2e/main_job.h"
#include "tests/fuzz/long_graph.h"
#include "tests/testing/eventually.h"

namespace plimsoll::testing {
namespace {

using ::testing::HasSubstr;

// The limit of the chart's webhook.
constexpr std::int64_t kMemoryLimitKiB = 512 << 10;

std::string deep_job(const std::string& name, int layers, int micro_batches, int chunks) {
  return "apiVersion: plimsoll.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: " + name +
         ", namespace: default}\nspec:\n  model:\n    family: deep\n    transformer: {layers: " +
         std::to_string(layers) +
         ", hidden: 64, heads: 1, ffn: 64, vocab: 64, seqLen: 16}\n  training:\n    batchSizePerTrainer: " +
         std::to_string(micro_batches) + "\n    gradientAccumulation: " + std::to_string(micro_batches) +
         "\n    parallelism: {pipeline: 512, pipelineChunks: " + std::to_string(chunks) +
         "}\n  trainers: {replicas: 512, perNode: 8, gpuModel: A100-80GB}\n  template:\n    spec:\n"
         "      containers: [{name: trainer, image: none}]\n";
}

// 65,536 layers in 512 stages of 128 chunks, and a million micro-batches: more memory than a decision may
// take.
std::string endless_job(const std::string& name) {
  return deep_job(name, 65536, 1 << 20, 128);
}

// Little memory, and minutes of work.
std::string slow_job(const std::string& name) {
  return deep_job(name, 512, 512, 1);
}

std::string graph_job(const std::string& name, const std::string& config_map, int stages) {
  return "apiVersion: plimsoll.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: " + name +
         ", namespace: default}\nspec:\n  model:\n    family: graph\n    graph: {configMapKeyRef: {name: " +
         config_map +
         ", key: graph}}\n  training:\n    batchSizePerTrainer: 65536\n    gradientAccumulation: 65536\n"
         "    parallelism: {pipeline: " +
         std::to_string(stages) +
         "}\n  trainers: {replicas: 512, perNode: 8, gpuModel: A100-80GB}\n  template:\n    spec:\n"
         "      containers: [{name: trainer, image: none}]\n";
}

std::string binary_config_map(const std::string& name, const std::string& key, const std::string& content) {
  return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name +
         ", namespace: default}\nbinaryData:\n  " + key + ": " + base64_encode(content) + "\n";
}

class HostileDecisionsTest : public MainJobTest {
 protected:
  void SetUp() override {
    MainJobTest::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) {
      start_plimsoll();
    }
  }

  // The most that the process ever had in memory.
  static std::int64_t peak_memory_kib(const PlimsollProcess& process) {
    std::ifstream status("/proc/" + std::to_string(process.pid()) + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("VmHWM:")) {
        return std::stoll(line.substr(line.find_first_of("0123456789")));
      }
    }
    ADD_FAILURE() << "the process has no VmHWM";
    return 0;
  }

  static std::chrono::nanoseconds processor_time(const PlimsollProcess& process) {
    clockid_t clock{};
    timespec used{};
    EXPECT_EQ(::clock_getcpuclockid(process.pid(), &clock), 0);
    EXPECT_EQ(::clock_gettime(clock, &used), 0);
    return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
  }

  // Returns when the process has computed for `least` beyond what it had: it decides slow jobs.
  static void wait_until_it_computes(const PlimsollProcess& process, std::chrono::nanoseconds before,
                                     std::chrono::milliseconds least) {
    ASSERT_TRUE(eventually("the process computes", [&] { return processor_time(process) >= before + least; }))
        << process.log();
  }

  void remove_webhooks() {
    webhook_->kill();
    must({"delete", "mutatingwebhookconfiguration,validatingwebhookconfiguration", "--all"});
  }

  void expect_others_are_served() {
    must({"apply", "-f", "-"}, small_job("ordinary"));
    EXPECT_EQ(replicas_of(job("ordinary")), 1);
    must({"delete", "trainingjob", "ordinary"});
  }
};

TEST_F(HostileDecisionsTest, AJobOf681BytesThatKeptADecisionForMinutesIsAdmittedAsWritten) {
  for (const char* name : {"endless-0", "endless-1"}) {  // as many as blocked every other admission
    const CommandResult applied = must({"apply", "-f", "-"}, endless_job(name));
    EXPECT_THAT(applied.errors, HasSubstr("the job keeps its"));
    EXPECT_THAT(applied.errors, HasSubstr("spec.training.parallelism.pipeline = 512"));
    EXPECT_EQ(replicas_of(job(name)), 512);
    EXPECT_TRUE(decision_of(job(name)).isNull());
  }
  expect_others_are_served();
  EXPECT_LT(peak_memory_kib(*webhook_), kMemoryLimitKiB);
  EXPECT_EQ(webhook_->stop(), 0) << webhook_->log();
}

TEST_F(HostileDecisionsTest, OthersAreServedWhileDecisionsRunToTheirDeadline) {
  std::vector<std::future<CommandResult>> slow;
  for (int i = 0; i < 4; ++i) {
    slow.push_back(std::async(std::launch::async, [this, i] {
      return kubectl({"apply", "-f", "-"}, slow_job("slow-" + std::to_string(i)));
    }));
  }
  expect_others_are_served();
  for (std::future<CommandResult>& applied : slow) {
    const CommandResult result = applied.get();
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_THAT(result.errors,
                HasSubstr("the job keeps its"));  // its deadline, or that it made room for others
  }
  EXPECT_LT(peak_memory_kib(*webhook_), kMemoryLimitKiB);
  EXPECT_EQ(webhook_->stop(), 0) << webhook_->log();
}

TEST_F(HostileDecisionsTest, TheOperatorsWorkersAreNotOccupiedByJobsThatCannotBeDecided) {
  remove_webhooks();
  const std::chrono::nanoseconds before = processor_time(*operator_);
  for (int i = 0; i < 4; ++i) {  // as many as there are workers
    must({"apply", "-f", "-"}, slow_job("slow-" + std::to_string(i)));
    must({"apply", "-f", "-"}, endless_job("endless-" + std::to_string(i)));
  }
  ASSERT_NO_FATAL_FAILURE(wait_until_it_computes(*operator_, before, std::chrono::seconds(1)));
  must({"apply", "-f", "-"}, small_job("ordinary"));
  must({"wait", "--for=jsonpath={.status.attempts[0].trainers}=1", "--timeout=120s", "trainingjob/ordinary"});
  EXPECT_LT(peak_memory_kib(*operator_), kMemoryLimitKiB);
}

// A pass may take half a minute, and a stop of the test kills after ten seconds.
TEST_F(HostileDecisionsTest, SigtermThatWasIgnoredEndsTheDecisionsOfTheOperator) {
  remove_webhooks();
  const std::chrono::nanoseconds before = processor_time(*operator_);
  for (int i = 0; i < 4; ++i) {
    must({"apply", "-f", "-"}, slow_job("slow-" + std::to_string(i)));
  }
  ASSERT_NO_FATAL_FAILURE(wait_until_it_computes(*operator_, before, std::chrono::seconds(1)));
  EXPECT_EQ(operator_->stop(), 0) << operator_->log();
}

TEST_F(HostileDecisionsTest, SigtermThatWasIgnoredEndsTheDecisionsOfTheWebhook) {
  const std::chrono::nanoseconds before = processor_time(*webhook_);
  std::future<CommandResult> applied = std::async(std::launch::async, [this] {
    return kubectl({"apply", "-f", "-"}, slow_job("slow"));
  });
  // A busy machine gives it less than a second before the decision's own deadline of five.
  ASSERT_NO_FATAL_FAILURE(wait_until_it_computes(*webhook_, before, std::chrono::milliseconds(100)));
  EXPECT_EQ(webhook_->stop(), 0) << webhook_->log();
  EXPECT_THAT(webhook_->log(), HasSubstr("Cancelled"));
  EXPECT_EQ(applied.get().exit_code, 0);  // as written
  EXPECT_EQ(replicas_of(job("slow")), 512);
}

TEST_F(HostileDecisionsTest, AGzipBombOfAGraphIsRefusedOnceAndRemembered) {
  must({"create", "-f", "-"},
       binary_config_map("bomb", "graph", gzip("[" + std::string(63 << 20, ' ') + "]")));
  for (const char* name : {"bomb-0", "bomb-1"}) {
    const CommandResult applied = must({"apply", "-f", "-"}, graph_job(name, "bomb", 1));
    EXPECT_THAT(applied.errors, HasSubstr("exceeds 8.00 MiB"));
    EXPECT_EQ(replicas_of(job(name)), 512);
  }
  expect_others_are_served();
  EXPECT_LT(peak_memory_kib(*webhook_), kMemoryLimitKiB);
}

TEST_F(HostileDecisionsTest, AGraphOf10000ModulesIn512StagesEndsWithinItsDeadline) {
  const std::string graph = gzip(long_graph(10'000));
  ASSERT_LT(graph.size(), 1U << 20);  // what a ConfigMap may hold
  must({"create", "-f", "-"}, binary_config_map("long", "graph", graph));
  for (const char* name : {"long-0", "long-1"}) {
    const CommandResult applied = must({"apply", "-f", "-"}, graph_job(name, "long", 512));
    EXPECT_THAT(applied.errors, HasSubstr("the job keeps its"));
    EXPECT_EQ(replicas_of(job(name)), 512);
  }
  expect_others_are_served();
  EXPECT_LT(peak_memory_kib(*webhook_), kMemoryLimitKiB);
  EXPECT_EQ(webhook_->stop(), 0) << webhook_->log();
}

TEST_F(HostileDecisionsTest, ALargeCsvOfTablesIsRefusedOnceAndRemembered) {
  std::string csv = "name,rows,dim,pooling_factor\n";
  while (csv.size() < (63U << 20)) {
    csv += "# " + std::string(1000, 'x') + "\n";
  }
  must({"create", "-f", "-"}, binary_config_map("tables", "tables.csv", gzip(csv)));
  std::string manifest = small_job("ads");
  const std::size_t tables = manifest.find("      tables:\n");
  manifest.replace(tables, manifest.find("  training:") - tables,
                   "      tablesFrom: {configMapKeyRef: {name: tables, key: tables.csv}}\n");
  for (int i = 0; i < 2; ++i) {
    const CommandResult applied = must({"apply", "-f", "-"}, manifest);
    EXPECT_THAT(applied.errors, HasSubstr("exceeds 16.0 MiB"));
    must({"delete", "trainingjob", "ads"});
  }
  expect_others_are_served();
  EXPECT_LT(peak_memory_kib(*webhook_), kMemoryLimitKiB);
}

}  // namespace
}  // namespace plimsoll::testing
