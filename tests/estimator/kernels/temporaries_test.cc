#include "estimator/kernels/temporaries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/estimator/operator_trace.h"

namespace plimsoll::estimator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::OperatorTrace;

Result<KernelTemporaries> temporaries_of(OperatorTrace& built, const KernelOptions& options = {},
                                         std::int64_t batch = 4) {
  return kernel_temporaries(built.trace, built.shapes(batch), built.producer, options);
}

// An addition of tensors of two types, which casts 8 floats of each sample, and a ReLU.
OperatorTrace addition(Device device = Device::kCpu) {
  OperatorTrace built(device);
  const std::int32_t x = built.tensor({OperatorTrace::kBatch, 8});
  const std::int32_t half = built.tensor({OperatorTrace::kBatch, 8}, "bfloat16");
  built.add("aten::add", {x, half}, {x});
  built.add("aten::relu", {x}, {x});
  return built;
}

TEST(KernelTemporaries, TheRuleTableGivesTheMemoryOnEachDevice) {
  OperatorTrace cpu = addition();
  const Result<KernelTemporaries> on_cpu = temporaries_of(cpu);
  ASSERT_TRUE(on_cpu.ok());
  EXPECT_THAT(on_cpu->inside, ElementsAre(Bytes{4 * 8 * 4}, Bytes{}));
  EXPECT_THAT(on_cpu->workspaces, IsEmpty());
  OperatorTrace cuda = addition(Device::kCuda);
  const Result<KernelTemporaries> on_cuda = temporaries_of(cuda);
  ASSERT_TRUE(on_cuda.ok());
  EXPECT_THAT(on_cuda->inside, ElementsAre(Bytes{}, Bytes{}));
  EXPECT_THAT(on_cuda->workspaces, ElementsAre(Bytes{}, Bytes{}));
}

// Liger-Kernel's rows of RMSNorm, whose loss is a sum, were 20 % too low (tests/accuracy/liger_rows.py).
TEST(KernelTemporaries, AnExpandedGradientOfANormIsCopiedOnCuda) {
  for (const char* const name : {"aten::_fused_rms_norm_backward", "aten::native_layer_norm_backward"}) {
    OperatorTrace built(Device::kCuda);
    const std::int32_t gradient = built.tensor({4, 8}, "bfloat16", {0, 0});
    const std::int32_t x = built.tensor({4, 8}, "bfloat16");
    const std::int32_t row = built.tensor({8}, "bfloat16");
    built.add(name, {gradient, x, row}, {x, row, row});
    EXPECT_THAT(temporaries_of(built)->inside, ElementsAre(Bytes{4 * 8 * 2})) << name;
  }
}

TEST(KernelTemporaries, AMeasurementReplacesTheRules) {
  OperatorTrace built = addition();
  built.trace.measured = true;
  built.trace.temporaries = {{.op = 1, .bytes = Count{{100, 10, 0, 0}}}};
  EXPECT_THAT(temporaries_of(built)->inside, ElementsAre(Bytes{}, Bytes{140}));
  built.trace.unmeasured = {0};
  EXPECT_THAT(temporaries_of(built)->inside, ElementsAre(Bytes{4 * 8 * 4}, Bytes{140}));
  built.trace.temporaries = {{.op = 1, .bytes = Count{{100, -30, 0, 0}}}};
  EXPECT_THAT(temporaries_of(built)->inside, ElementsAre(Bytes{4 * 8 * 4}, Bytes{}))
      << "a fit that is negative at this batch is no memory";
}

TEST(KernelTemporaries, AnOperatorWithoutARuleIsAnErrorThatNamesIt) {
  OperatorTrace built = addition();
  built.add("mine::fused_" + std::string(1000, 'x'), {0}, {0});
  const Result<KernelTemporaries> refused = temporaries_of(built);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(refused.error().message, HasSubstr("mine::fused_xxx"));
  EXPECT_LT(refused.error().message.size(), 300U) << "a name from a file is cut";
}

TEST(KernelTemporaries, LenientTakesInputsAndOutputsAndWarnsOnceForEachName) {
  OperatorTrace built = addition();
  built.add("mine::b", {0, 1}, {0});
  built.add("mine::a", {0}, {});
  built.add("mine::b", {0}, {0});
  const Result<KernelTemporaries> result = temporaries_of(built, {.lenient = true});
  ASSERT_TRUE(result.ok());
  const Bytes x{4 * 8 * 4};
  EXPECT_THAT(result->inside, ElementsAre(x, Bytes{}, Bytes{x.count * 5 / 2}, x, 2 * x));
  EXPECT_THAT(result->warnings, ElementsAre(HasSubstr("mine::a"), HasSubstr("mine::b")));
}

TEST(KernelTemporaries, ConvolutionsHaveAWorkspaceOnCuda) {
  OperatorTrace built(Device::kCuda);
  const std::int32_t image = built.tensor({OperatorTrace::kBatch, 8, 8, 8});
  const std::int32_t result = built.tensor({OperatorTrace::kBatch, 8, 8, 8});
  built.add("aten::convolution", {image, built.tensor({8, 8, 3, 3})}, {result});
  built.add("aten::relu", {result}, {result});
  // Input and output of four samples and the filters, in the other layout.
  EXPECT_THAT(temporaries_of(built, {.gpu_family = "ampere"})->workspaces,
              ElementsAre(Bytes{(4 * (8 + 8) * 64 + 8 * 8 * 9) * 4}, Bytes{}));
  EXPECT_THAT(temporaries_of(built, {.gpu_family = "pascal"})->workspaces, ElementsAre(Bytes{}, Bytes{}));
  EXPECT_THAT(temporaries_of(built, {.gpu_family = "pascal", .convolution_workspace = 7_MiB})->workspaces,
              ElementsAre(7_MiB, Bytes{}));
}

TEST(KernelTemporaries, EachOperatorIsChargedToTheBudget) {
  OperatorTrace built = addition();
  Budget budget;
  ASSERT_TRUE(temporaries_of(built, {.budget = &budget}).ok());
  EXPECT_EQ(budget.work_done(), 4U + 3U) << "two inputs, an output and the operator; one input less";
}

}  // namespace
}  // namespace plimsoll::estimator
