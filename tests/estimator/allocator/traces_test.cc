// Traces of a real allocator: what training reserved on an H100 (torch 2.11), run by run.
//
// traces_h100.json.gz is what tests/accuracy/trace_gpu.py recorded: three iterations of each run, some of models with two
// layers, blocks of 0.5 MiB and more. An event n >= 0 allocates n granules of 512 B; -1 - i frees what the i-th allocation made.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "base/gzip.h"
#include "estimator/allocator/caching_allocator.h"
#include "tests/estimator/data_files.h"

namespace plimsoll::estimator {
namespace {

// Percent. What is further off: Llama of two layers, Mamba and DenseNet have many blocks that the traces leave out, or gaps between
// the driver's segments. The other three are exact where segments get descending addresses, as the driver gave them out;
// docs/estimation.md, "On an H100", says why ours ascend.
constexpr double kWithin = 1;
const std::map<std::string, double> kFurtherOff = {{"llama1b", 21},   {"mamba", 8}, {"cnn:densenet121", 4},
                                                   {"tinyfull", 3.6}, {"vit", 7},   {"cnn:regnet", 2.7}};

TEST(AllocatorTraces, ReserveWhatTheCardDid) {
  const Result<std::string> text = gunzip(testing::data_file("allocator/traces_h100.json.gz"), 4_MiB);
  ASSERT_TRUE(text.ok());
  const Result<std::vector<Json>> documents = parse_yaml_documents(*text);
  ASSERT_TRUE(documents && documents->size() == 1);
  ASSERT_EQ(documents->front()["runs"].size(), 17U);
  for (const Json& run : documents->front()["runs"]) {
    CachingAllocator allocator({}, {});
    std::vector<CachingAllocator::Handle> handles;
    for (const Json& event : run["events"]) {
      const std::int64_t number = event.asInt64();
      if (number < 0) {
        allocator.release(handles.at(static_cast<std::size_t>(-1 - number)));
      } else {
        handles.push_back(*allocator.allocate(Bytes{number * kCudaGranule}, kComputeStream));
      }
    }
    const std::string name = run["name"].asString();
    const auto measured = static_cast<double>(run["reserved"].asInt64());
    const double error = 100 * (static_cast<double>(allocator.reserved_peak().count) / measured - 1);
    std::printf("%-16s reserved %8.0f MiB, %+6.2f %%\n", name.c_str(), measured / (1 << 20), error);
    const auto further = kFurtherOff.find(name);
    EXPECT_LE(std::abs(error), further == kFurtherOff.end() ? kWithin : further->second) << name;
  }
}

}  // namespace
}  // namespace plimsoll::estimator
