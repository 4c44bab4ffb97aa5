#include "operator/resource_metrics.h"

#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

namespace plimsoll::process {
namespace {

TEST(ResourceMetrics, AreReadAtEachScrape) {
  MemoryPool pool(128_MiB);
  const ResourceMetrics metrics(plan_resources({.cpus = 1, .memory = 512_MiB}), {{"imports", &pool}}, 1);
  const auto reserved = [&](const char* bytes) {
    const std::string line = std::string(R"(plimsoll_memory_reserved_bytes{pool="imports"} )") + bytes + "\n";
    return prometheus::TextSerializer().Serialize(metrics.Collect()).find(line) != std::string::npos;
  };
  EXPECT_TRUE(reserved("0"));
  {
    const auto held = pool.reserve(64_MiB, std::chrono::steady_clock::now());
    ASSERT_TRUE(held.ok());
    EXPECT_TRUE(reserved("67108864"));
    EXPECT_FALSE(pool.reserve(100_MiB, std::chrono::steady_clock::now()).ok());
  }
  EXPECT_TRUE(reserved("0"));
  EXPECT_NE(prometheus::TextSerializer()
                .Serialize(metrics.Collect())
                .find(R"(plimsoll_memory_rejected_total{pool="imports"} 1)"),
            std::string::npos);
}

TEST(ResourceMetrics, TellWhatThereIsAndWhatIsReserved) {
  MemoryPool pool(128_MiB);
  const auto held = pool.reserve(64_MiB, std::chrono::steady_clock::now());
  const ResourcePlan plan = plan_resources({.cpus = 1.5, .memory = 512_MiB});
  const std::string text =
      prometheus::TextSerializer().Serialize(ResourceMetrics(plan, {{"reviews", &pool}}, 4).Collect());
  for (const char* line : {"plimsoll_cpu_limit 1.5", "plimsoll_memory_limit_bytes 536870912",
                           R"(plimsoll_memory_pool_bytes{pool="reviews"} 134217728)",
                           R"(plimsoll_memory_reserved_bytes{pool="reviews"} 67108864)",
                           R"(plimsoll_memory_rejected_total{pool="reviews"} 0)", "plimsoll_workers 4"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  }
}

}  // namespace
}  // namespace plimsoll::process
