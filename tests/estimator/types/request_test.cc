#include "estimator/types/request.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace plimsoll::estimator {
namespace {

// Each part is another power of two, so that a sum shows which parts it has.
Breakdown powers_of_two() {
  return {.parameters = 1_B,
          .gradients = 2_B,
          .optimizer_state = 4_B,
          .inputs = 8_B,
          .activations = 16_B,
          .temporaries = 32_B,
          .ddp_buckets = 64_B,
          .embeddings = 128_B,
          .allocator_slack = 256_B,
          .workspace = 512_B,
          .communication = 1024_B,
          .cuda_context = 2048_B};
}

TEST(Breakdown, TheTotalHasEachPartOnce) {
  EXPECT_EQ(powers_of_two().total(), 4095_B);
  EXPECT_EQ(Breakdown{}.total(), Bytes{});
}

TEST(Breakdown, AnAbsurdTotalSaturates) {
  Breakdown parts = powers_of_two();
  parts.activations = Bytes::max();
  EXPECT_EQ(parts.total(), Bytes::max());
}

// docs/cli.md has these names.
TEST(EstimateJson, HasTheNamesOfTheContract) {
  const Json peak = to_json(Peak{.allocated = 1_B, .reserved = 2_B, .upper_bound = 3_B});
  EXPECT_EQ(write_json(peak), R"({"allocatedBytes":1,"reservedBytes":2,"upperBoundBytes":3})");
  const Json breakdown = to_json(powers_of_two());
  EXPECT_EQ(breakdown.getMemberNames(),
            (std::vector<std::string>{"activationsBytes", "allocatorSlackBytes", "communicationBytes",
                                      "cudaContextBytes", "ddpBucketsBytes", "embeddingsBytes",
                                      "gradientsBytes", "inputsBytes", "optimizerStateBytes",
                                      "parametersBytes", "temporariesBytes", "workspaceBytes"}));
  EXPECT_EQ(breakdown["optimizerStateBytes"].asInt64(), 4);
  EXPECT_EQ(breakdown["allocatorSlackBytes"].asInt64(), 256);
  EXPECT_EQ(breakdown["cudaContextBytes"].asInt64(), 2048);
  std::int64_t sum = 0;
  for (const std::string& name : breakdown.getMemberNames()) {
    sum += breakdown[name].asInt64();
  }
  EXPECT_EQ(sum, powers_of_two().total().count);
}

TEST(EstimateJson, ListsKeepTheirOrder) {
  EXPECT_EQ(write_json(to_json(std::vector<Bytes>{5_B, 3_B})),
            R"([{"allocatedBytes":5},{"allocatedBytes":3}])");
  EXPECT_EQ(write_json(to_json(std::vector<LiveTensor>{
                {.name = "head.weight", .kind = "parameter", .bytes = 7_B},
                {.name = "layers.0: \"mm\"", .kind = "activation", .bytes = Bytes::max()}})),
            R"([{"bytes":7,"kind":"parameter","name":"head.weight"},)"
            R"({"bytes":9223372036854775807,"kind":"activation","name":"layers.0: \"mm\""}])");
  EXPECT_EQ(write_json(to_json(std::vector<LiveTensor>())), "[]");
  EXPECT_EQ(write_json(to_json(std::vector<Bytes>())), "[]");
}

}  // namespace
}  // namespace plimsoll::estimator
