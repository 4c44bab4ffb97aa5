#include "estimator/trace/shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plimsoll::estimator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A tensor of batch x 3 x 5 floats, its transpose, and integers of 7.
Trace some_tensors() {
  Trace trace;
  trace.dtypes = {"float32", "int64"};
  trace.counts = {Count{{0, 1, 0, 0}}, Count::constant(3), Count::constant(5),   // sizes
                  Count::constant(5),  Count::constant(3), Count{{0, 1, 0, 0}},  // transposed
                  Count::constant(1),  Count::constant(5), Count::constant(15),  // with these strides
                  Count::constant(7)};
  trace.layouts = {{.shape = {0, 3}, .strides = {}},
                   {.shape = {3, 3}, .strides = {6, 3}, .contiguous = false},
                   {.shape = {9, 1}, .strides = {}},
                   {.shape = {}, .strides = {}}};
  trace.storages.push_back({.bytes = Count{{0, 60, 0, 0}}});
  trace.storages.push_back({.bytes = Count::constant(56)});
  trace.storages.push_back({.bytes = Count::constant(5)});  // no tensor of it
  trace.tensors.push_back({.storage = 0, .layout = 0, .dtype = 0});
  trace.tensors.push_back({.storage = 0, .layout = 1, .dtype = 0});
  trace.tensors.push_back({.storage = 1, .layout = 2, .dtype = 1});
  return trace;
}

TEST(TraceShapes, AreThoseOfTheBatch) {
  const Trace trace = some_tensors();
  const Result<TraceShapes> shapes = TraceShapes::at(trace, 4);
  ASSERT_TRUE(shapes.ok());
  EXPECT_EQ(shapes->batch(), 4);
  EXPECT_EQ(shapes->storage(0).count, 240);
  EXPECT_EQ(shapes->storage(1).count, 56);
  const TensorView x = shapes->tensor(0);
  EXPECT_TRUE(x.present);
  EXPECT_THAT(x.shape, ElementsAre(4, 3, 5));
  EXPECT_EQ(x.elements, 60);
  EXPECT_EQ(x.bytes().count, 240);
  EXPECT_EQ(x.dtype, "float32");
  EXPECT_EQ(shapes->tensor_of(2, 1).bytes().count, 56);
  EXPECT_EQ(shapes->tensor_of(3, 0).elements, 1) << "a number without dimensions";
}

TEST(TraceShapes, DimensionsAreCountedFromEitherEnd) {
  const Trace trace = some_tensors();
  const Result<TraceShapes> shapes = TraceShapes::at(trace, 4);
  ASSERT_TRUE(shapes.ok());
  const TensorView x = shapes->tensor(0);
  EXPECT_EQ(x.size(0), 4);
  EXPECT_EQ(x.size(-1), 5);
  EXPECT_EQ(x.size(3), 1);
  EXPECT_EQ(x.size(-4), 1);
  EXPECT_TRUE(x.contiguous());
  EXPECT_EQ(x.stride(0), 15);
  EXPECT_EQ(x.stride(-1), 1);
  EXPECT_EQ(x.stride(7), 1);
  const TensorView transposed = shapes->tensor(1);
  EXPECT_FALSE(transposed.contiguous());
  EXPECT_EQ(transposed.stride(0), 1);
  EXPECT_EQ(transposed.stride(-1), 15);
}

TEST(TraceShapes, HalvingCountsFloatsAsSixteenBits) {
  Trace trace = some_tensors();
  trace.storages[0].bytes = Count::constant(241);
  const Result<TraceShapes> shapes = TraceShapes::at(trace, 4, {.halve_floats = true});
  ASSERT_TRUE(shapes.ok());
  EXPECT_EQ(shapes->storage(0).count, 121);  // rounded up
  EXPECT_EQ(shapes->tensor(0).width, 2);
  EXPECT_EQ(shapes->storage(1).count, 56) << "integers stay as they are";
  EXPECT_EQ(shapes->tensor(2).width, 8);
  EXPECT_EQ(shapes->storage(2).count, 5);
}

TEST(TraceShapes, NegativeSizesAreNamed) {
  Trace trace = some_tensors();
  trace.storages[1].bytes = Count{{-100, 10, 0, 0}};
  EXPECT_TRUE(TraceShapes::at(trace, 10).ok());
  const Result<TraceShapes> shapes = TraceShapes::at(trace, 9);
  ASSERT_FALSE(shapes.ok());
  EXPECT_EQ(shapes.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(shapes.error().message, HasSubstr("storages[1] has a negative size of -10 bytes at batch 9"));
}

TEST(TraceShapes, MoreThanAnyMachineHasIsTooLarge) {
  Trace trace = some_tensors();
  trace.storages[1].bytes = Count::constant(std::int64_t{1} << 54);
  EXPECT_TRUE(TraceShapes::at(trace, 1).ok());
  trace.storages[1].count = 3;
  const Result<TraceShapes> shapes = TraceShapes::at(trace, 1);
  ASSERT_FALSE(shapes.ok());
  EXPECT_EQ(shapes.error().code, ErrorCode::kTooLarge);
  // Also where a product of the batch does not fit 64 bits.
  EXPECT_EQ(TraceShapes::at(some_tensors(), std::int64_t{1} << 62).error().code, ErrorCode::kTooLarge);
}

TEST(TraceShapes, StoragesHaveTheDtypeOfTheirTensors) {
  EXPECT_THAT(dtypes_of_storages(some_tensors()), ElementsAre(0, 1, -1));
}

TEST(TraceShapes, SharedParametersCountOnce) {
  Trace trace = some_tensors();
  trace.parameters.push_back({.name = "embedding", .storage = 1, .gradient = {}});
  trace.parameters.push_back({.name = "head", .storage = 1, .gradient = {}});
  trace.storages[2].count = 4;  // four equal ones
  trace.parameters.push_back({.name = "experts", .storage = 2, .gradient = {}});
  const Result<TraceShapes> shapes = TraceShapes::at(trace, 1);
  ASSERT_TRUE(shapes.ok());
  EXPECT_EQ(parameter_bytes(trace, *shapes).count, 56 + 4 * 5);
}

TEST(TraceShapes, TheBudgetPays) {
  Budget budget({.work = 5});
  const Trace trace = some_tensors();
  EXPECT_THROW(static_cast<void>(TraceShapes::at(trace, 1, {.budget = &budget})), BudgetExceeded);
}

}  // namespace
}  // namespace plimsoll::estimator
