#include "estimator/kernels/convolution.h"

#include <gtest/gtest.h>

#include "tests/estimator/operator_trace.h"

namespace plimsoll::estimator {
namespace {

// 3 x 3 over 56 x 56 pixels: of the H100's rows in measured_gpu/convolutions_h100.json, as those below.
constexpr std::int64_t kTensor = 32 * 64 * 56 * 56;
constexpr std::int64_t kFilters = 64 * 64 * 9;
constexpr ConvolutionCall kCall = {.batch = 32,
                                   .channels = 64,
                                   .results = 64,
                                   .pixels = 56 * 56,
                                   .result_pixels = 56 * 56,
                                   .kernel = 9,
                                   .padded = true};

ConvolutionCall with_channels(std::int64_t channels, std::int64_t results) {
  ConvolutionCall call = kCall;
  call.channels = channels;
  call.results = results;
  return call;
}

ConvolutionCall pointwise(ConvolutionPass pass) {
  ConvolutionCall call = kCall;
  call.kernel = 1;
  call.padded = false;
  call.pass = pass;
  return call;
}

TEST(ConvolutionWorkspace, TensorCoresWantTheOtherLayout) {
  for (const char* family : {"ampere", "ada-lovelace", "hopper", "blackwell", ""}) {
    EXPECT_EQ(convolution_workspace(kCall, family), Bytes{4 * (2 * kTensor + kFilters)}) << family;
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
    EXPECT_EQ(convolution_workspace(half, family), Bytes{2 * (2 * kTensor + kFilters)}) << family;
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
  EXPECT_EQ(convolution_workspace(call, "ampere"), Bytes{4 * (2 * kTensor + kFilters / 8)});
}

TEST(ConvolutionWorkspace, ChannelsArePaddedToWholeVectors) {
  constexpr std::int64_t kPlane = 32 * 56 * 56;
  const auto all = [](std::int64_t channels, std::int64_t results, std::int64_t bytes) {
    return Bytes{bytes * (kPlane * (channels + results) + channels * results * 9)};
  };
  ConvolutionCall odd = with_channels(61, 30);
  EXPECT_EQ(convolution_workspace(odd, "hopper"), all(64, 32, 4));
  odd.element_bytes = 2;
  EXPECT_EQ(convolution_workspace(odd, "hopper"), all(64, 32, 2));
  odd.channels_last = true;
  EXPECT_EQ(convolution_workspace(odd, "hopper"), all(64, 32, 2)) << "also where the layout is right";
  odd.channels = 64;
  EXPECT_EQ(convolution_workspace(odd, "hopper"), Bytes{2 * (kPlane * 32 + 64 * 32 * 9)})
      << "only what needs it";
}

TEST(ConvolutionWorkspace, OneByOneIsAMatrixProductOfEachSample) {
  EXPECT_EQ(convolution_workspace(pointwise(ConvolutionPass::kForward), "hopper"), 0_B);
  EXPECT_EQ(convolution_workspace(pointwise(ConvolutionPass::kInputGradient), "hopper"), 0_B);
  ConvolutionCall weight = pointwise(ConvolutionPass::kWeightGradient);
  EXPECT_EQ(convolution_workspace(weight, "hopper"), Bytes{4 * 32 * 64 * 64}) << "partial sums in fp32";
  weight.element_bytes = 2;
  EXPECT_EQ(convolution_workspace(weight, "hopper"), Bytes{4 * 32 * 64 * 64});
  weight.pixels = weight.result_pixels = 49;
  EXPECT_EQ(convolution_workspace(weight, "hopper"), Bytes{2 * 32 * (64 + 64) * 49}) << "copies take less";
  weight.pixels = weight.result_pixels = 1;
  EXPECT_EQ(convolution_workspace(weight, "hopper"), 0_B);
  weight = pointwise(ConvolutionPass::kWeightGradient);
  weight.channels_last = true;
  EXPECT_EQ(convolution_workspace(weight, "hopper"), 0_B);
}

TEST(ConvolutionWorkspace, StridedOneByOneConvolutionsNeedNoCopyOfTheirFilters) {
  ConvolutionCall call = pointwise(ConvolutionPass::kForward);
  call.strided = true;
  call.result_pixels = 28 * 28;
  call.element_bytes = 2;
  EXPECT_EQ(convolution_workspace(call, "hopper"), Bytes{2 * (kTensor + kTensor / 4)});
}

TEST(ConvolutionWorkspace, OnCapability80EveryConvolutionOfNchwTakesInputAndOutputOnceMore) {
  EXPECT_EQ(convolution_family("ampere", false), "ampere");
  const std::string a100 = convolution_family("ampere", true);
  const Bytes copies{4 * 2 * kTensor};
  EXPECT_EQ(convolution_workspace(pointwise(ConvolutionPass::kForward), a100), copies);
  EXPECT_EQ(convolution_workspace(pointwise(ConvolutionPass::kWeightGradient), a100), copies);
  EXPECT_EQ(convolution_workspace(with_channels(3, 64), a100), Bytes{4 * 32 * 56 * 56 * (3 + 64)});
  ConvolutionCall last = pointwise(ConvolutionPass::kForward);
  last.channels_last = true;
  EXPECT_EQ(convolution_workspace(last, a100), 0_B);
}

TEST(ConvolutionWorkspace, FewChannelsInFp32StayOffTensorCores) {
  ConvolutionCall strided = pointwise(ConvolutionPass::kWeightGradient);
  strided.strided = true;
  EXPECT_EQ(convolution_workspace(strided, "hopper"), 0_B);
  strided.channels = strided.results = 128;
  EXPECT_GT(convolution_workspace(strided, "hopper"), 0_B);
  ConvolutionCall image = with_channels(3, 64);
  EXPECT_EQ(convolution_workspace(image, "hopper"), 0_B);
  image.pass = ConvolutionPass::kWeightGradient;
  EXPECT_EQ(convolution_workspace(image, "hopper"), Bytes{4 * (32 * 56 * 56 * (4 + 64) + 4 * 64 * 9)});
}

// Of a backward of a 1 x 1 convolution, the workspace is that of the gradients that are asked for.
TEST(ConvolutionWorkspace, BackwardTakesThatOfTheGradientsThatAreAskedFor) {
  constexpr std::int64_t kBatch = testing::OperatorTrace::kBatch;
  const auto backward = [](bool of_weight) {
    testing::OperatorTrace built(Device::kCuda);
    const std::int32_t image = built.tensor({kBatch, 8, 10, 9});
    const std::int32_t result = built.tensor({kBatch, 16, 10, 9});
    const std::int32_t weight = built.tensor({16, 8, 1, 1});
    built.add("aten::convolution_backward", {result, image, weight}, {image, of_weight ? weight : -1, -1});
    return cuda_convolution_workspace("aten::convolution_backward", built.call(), "hopper", {});
  };
  EXPECT_EQ(backward(true), Bytes{4 * 4 * 8 * 16}) << "four samples";
  EXPECT_EQ(backward(false), 0_B);
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
