#include "estimator/kernels/call.h"

#include <gtest/gtest.h>

#include "tests/estimator/operator_trace.h"

namespace plimsoll::estimator {
namespace {

using testing::number;
using testing::numbers;
using testing::OperatorTrace;

TEST(KernelCall, OperandsHaveTheirSizesAtTheBatch) {
  OperatorTrace built;
  const std::int32_t x = built.tensor({OperatorTrace::kBatch, 8}, "bfloat16");
  built.add("aten::relu", {x}, {built.tensor({OperatorTrace::kBatch, 8})});
  EXPECT_EQ(built.call(0, 4).input(0).bytes(), Bytes{4 * 8 * 2});
  EXPECT_EQ(built.call(0, 100).output(0).bytes(), Bytes{100 * 8 * 4});
}

TEST(KernelCall, AbsentArgumentsAreEmptyTensors) {
  OperatorTrace built;
  const std::int32_t x = built.tensor({3});
  built.add("aten::convolution", {x, -1}, {x});
  const KernelCall call = built.call();
  EXPECT_EQ(call.inputs(), 2U);
  EXPECT_TRUE(call.input(0).present);
  for (const std::size_t absent : {std::size_t{1}, std::size_t{2}, std::size_t{99}}) {
    EXPECT_FALSE(call.input(absent).present) << absent;
    EXPECT_EQ(call.input(absent).bytes(), Bytes{}) << absent;
  }
  EXPECT_EQ(call.outputs(), 1U);
  EXPECT_FALSE(call.output(1).present) << "the input's operand follows in the table, and is not an output";
}

TEST(KernelCall, AttributesAreReadByName) {
  OperatorTrace built;
  built.add("mine::op", {}, {},
            {number("dim", -1), numbers("stride", {2, 3}), {"mode", std::string("sum")}, {"none", {}}});
  const KernelCall call = built.call();
  EXPECT_TRUE(call.has("dim"));
  EXPECT_EQ(call.integer("dim", 7), -1);
  EXPECT_EQ(call.element("stride", 0, 7), 2);
  EXPECT_EQ(call.element("stride", 1, 7), 3);
  EXPECT_EQ(call.length("stride"), 2U);
  for (const char* unusable : {"mode", "none", "missing", "di"}) {
    EXPECT_EQ(call.integer(unusable, 7), 7) << unusable;
    EXPECT_EQ(call.length(unusable), 0U) << unusable;
  }
  EXPECT_TRUE(call.has("mode"));
  EXPECT_FALSE(call.has("missing"));
}

TEST(KernelCall, ASingleValueStandsForAllElements) {
  OperatorTrace built;
  built.add("mine::op", {}, {}, {number("stride", 2), numbers("padding", {5}), numbers("empty", {})});
  const KernelCall call = built.call();
  EXPECT_EQ(call.element("stride", 2, 7), 2);
  EXPECT_EQ(call.element("padding", 2, 7), 5);
  EXPECT_EQ(call.element("empty", 0, 7), 7);
}

TEST(KernelCall, AnAttributeMayGrowWithTheBatch) {
  OperatorTrace built;
  built.add("aten::full", {}, {}, {{"size", std::vector<Count>{Count{{0, 2, 0, 0}}, Count{{8, 0, 0, 0}}}}});
  EXPECT_EQ(built.call(0, 16).element("size", 0, 0), 32);
  EXPECT_EQ(built.call(0, 16).element("size", 1, 0), 8);
}

TEST(KernelCall, AnOperatorWithoutAttributesHasNone) {
  OperatorTrace built;
  built.add("mine::other", {}, {}, {number("dim", 1)});
  const std::size_t plain = built.add("mine::op", {}, {});
  EXPECT_FALSE(built.call(plain).has("dim"));
  EXPECT_EQ(built.call(plain).integer("dim", 7), 7);
}

}  // namespace
}  // namespace plimsoll::estimator
