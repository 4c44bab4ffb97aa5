#include "remediation/out_of_memory_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/yaml.h"
#include "tests/checkout.h"

namespace plimsoll::remediation {
namespace {

void expect_gibibytes(const std::optional<Bytes>& found, const Json& row, const char* name) {
  ASSERT_EQ(found.has_value(), row.isMember(name)) << name << " of: " << row["text"].asString();
  if (found) {
    EXPECT_NEAR(static_cast<double>(found->count) / 0x1p30, row[name].asDouble(), 0.001)
        << name << " of: " << row["text"].asString();
  }
}

TEST(OutOfMemoryFigures, ReadsTheFiguresOfEachWording) {
  std::ifstream file(PLIMSOLL_SOURCE_DIR "/tests/remediation/out_of_memory_figures.yaml");
  std::ostringstream text;
  text << file.rdbuf();
  const Result<std::vector<Json>> documents = parse_yaml_documents(text.str());
  ASSERT_TRUE(documents && documents->size() == 1 && documents->front().size() > 40);
  for (const Json& row : documents->front()) {
    const crds::OutOfMemoryFigures found = parse_out_of_memory_figures(row["text"].asString());
    expect_gibibytes(found.needed, row, "needed");
    expect_gibibytes(found.capacity, row, "capacity");
    expect_gibibytes(found.fragmentation, row, "fragmentation");
    expect_gibibytes(found.held_by_others, row, "heldByOthers");
  }
}

TEST(OutOfMemoryFigures, DoesNotMixTwoRanksFigures) {
  EXPECT_FALSE(parse_out_of_memory_figures(
                   "CUDA out of memory. Tried to allocate 1.00 GiB.\nCUDA out of memory. Tried to allocate "
                   "7.00 GiB. GPU 0 has a total capacity of 10.00 GiB of which 1.00 GiB is free.")
                   .capacity.has_value());
  EXPECT_FALSE(
      parse_out_of_memory_figures(
          "Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated : "
          "1.00 GiB\nAllocation on device 1 would exceed allowed memory. (out of memory)\nRequested : "
          "7.00 GiB\nDevice limit : 8.00 GiB")
          .capacity.has_value());
}

}  // namespace
}  // namespace plimsoll::remediation
