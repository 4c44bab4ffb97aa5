#include "estimator/kernels/convolution.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace plimsoll::estimator
