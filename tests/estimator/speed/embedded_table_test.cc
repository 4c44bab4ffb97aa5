#include "estimator/speed/embedded_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plimsoll::estimator {
namespace {

using ::testing::ElementsAre;

TEST(SpeedTable, RowsFollowTheNames) {
  EXPECT_THAT(read_table("# a comment\na,b\n1,\n\n2,x\n"),
              ElementsAre(ElementsAre("1", ""), ElementsAre("2", "x")));
  EXPECT_DOUBLE_EQ(number_in("2.5"), 2.5);
  EXPECT_DOUBLE_EQ(number_in(""), 0);
}

TEST(SpeedTableDeathTest, ARowWithAFieldTooManyAborts) {
  EXPECT_DEATH(read_table("a,b\n1,2,3\n"), "3 fields instead of 2");
}

}  // namespace
}  // namespace plimsoll::estimator
