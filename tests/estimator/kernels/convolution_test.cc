#include "estimator/kernels/convolution.h"

#include <gtest/gtest.h>

#include "tests/estimator/operator_trace.h"

namespace plimsoll::estimator {
namespace {

constexpr ConvolutionCall kCall = {.input = 100_MiB, .output = 60_MiB, .input_channels = 64};

TEST(ConvolutionWorkspace, TensorCoresWantTheOtherLayout) {
  for (const char* family : {"ampere", "ada-lovelace", "hopper", "blackwell", ""}) {
    EXPECT_EQ(convolution_workspace(kCall, family), 160_MiB) << family;
  }
  ConvolutionCall last = kCall;
  last.channels_last = true;
  EXPECT_EQ(convolution_workspace(last, "ampere"), 0_B);
}

TEST(ConvolutionWorkspace, OlderCardsHaveThemForHalfPrecisionOrNotAtAll) {
  ConvolutionCall half = kCall;
  half.element_bytes = 2;
  for (const char* family : {"volta", "turing"}) {
    EXPECT_EQ(convolution_workspace(kCall, family), 0_B) << family;
    EXPECT_EQ(convolution_workspace(half, family), 160_MiB) << family;
  }
  EXPECT_EQ(convolution_workspace(half, "pascal"), 0_B);
  ConvolutionCall wide = kCall;
  wide.element_bytes = 8;
  EXPECT_EQ(convolution_workspace(wide, "ampere"), 0_B);
}

TEST(ConvolutionWorkspace, DepthwiseConvolutionsAreNotCudnns) {
  ConvolutionCall call = kCall;
  call.groups = 64;
  EXPECT_EQ(convolution_workspace(call, "ampere"), 0_B);
  call.groups = 8;
  EXPECT_EQ(convolution_workspace(call, "ampere"), 160_MiB);
}

// Of 16 channels in, 32 out, over 10 x 9 results for each of four samples, in fp32.
ConvolutionTotals totals(const Attributes& attributes, std::int64_t kernel = 3) {
  constexpr std::int64_t kBatch = testing::OperatorTrace::kBatch;
  testing::OperatorTrace built(Device::kCuda);
  const std::int32_t input = built.tensor({kBatch, 16, 10, 9});
  const std::int32_t weight = built.tensor({32, 16, kernel, kernel});
  built.add("aten::convolution", {input, weight, -1}, {built.tensor({kBatch, 32, 10, 9})}, attributes);
  return convolution_totals("aten::convolution", built.call());
}

TEST(ConvolutionTotals, WinogradsTilesAreThoseOfThreeByThree) {
  using testing::number;
  using testing::numbers;
  const ConvolutionTotals plain = totals({numbers("stride", {1, 1})});
  EXPECT_EQ(plain.traffic.count, 4 * 4 * 90 * (16 + 32));
  EXPECT_EQ(plain.transforms.count, 4 * 4 * (3 * 3) * 36 * (16 + 32))
      << "tiles of 4 x 4 results cover 10 x 9";
  EXPECT_EQ(totals({}, 1).transforms, 0_B);
  EXPECT_EQ(totals({numbers("stride", {1, 2})}).transforms, 0_B);
  EXPECT_EQ(totals({numbers("dilation", {2, 2})}).transforms, 0_B);
  EXPECT_EQ(totals({number("groups", 2)}).transforms, 0_B);
}

TEST(ConvolutionTotals, TransformsAreTheLargestOfAllAndTrafficIsTheSum) {
  ConvolutionTotals all = {.traffic = 3_MiB, .transforms = 9_MiB};
  all.add({.traffic = 2_MiB, .transforms = 4_MiB});
  EXPECT_EQ(all.traffic, 5_MiB);
  EXPECT_EQ(all.transforms, 9_MiB);
}

}  // namespace
}  // namespace plimsoll::estimator
