#include "crds/memory_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/crds/test_jobs.h"

namespace plimsoll::crds {
namespace {

using ::testing::HasSubstr;

Json profile_with(const std::string& rest) {
  return yaml(
      "{apiVersion: plimsoll.dev/v1alpha1, kind: MemoryProfile, metadata: {name: ads, namespace: ml}, " +
      rest + "}");
}

std::string error_of(const Json& object) {
  const Result<MemoryProfile> profile = decode_memory_profile(object);
  return profile ? "decoded" : profile.error().message;
}

TEST(MemoryProfile, SpecOverridesWhatWasLearnedFieldByField) {
  const Result<MemoryProfile> profile = decode_memory_profile(profile_with(R"(
    spec: {family: ads, bounds: [{gpuModel: a100-80gb, cudaContext: 1Gi, workspace: 64Mi, hostBandwidth: 50Gi}, {gpuModel: H100, peakCorrection: 2}]},
    status: {bounds: [{gpuModel: A100-80GB, cudaContext: 700Mi, communication: 2Gi, workspace: 1Mi, convolutionWorkspace: 0, hostBandwidth: 40Gi, hostUpdateBandwidth: 90Gi}, {peakCorrection: "1.08"}]})"));
  ASSERT_TRUE(profile.ok()) << to_string(profile.error());
  EXPECT_EQ(profile->family, "ads");
  EXPECT_EQ(profile->namespace_name, "ml");
  const LearnedBounds a100 = bounds_for(*profile, "A100-80GB");
  EXPECT_EQ(a100.cuda_context, 1_GiB);
  EXPECT_EQ(a100.communication, 2_GiB);
  EXPECT_EQ(a100.workspace, 64_MiB);
  EXPECT_EQ(a100.convolution_workspace, Bytes{});
  EXPECT_EQ(a100.host_bandwidth, 50_GiB);
  EXPECT_EQ(a100.host_update_bandwidth, 90_GiB);
  EXPECT_FALSE(a100.peak_correction.has_value());
  EXPECT_EQ(bounds_for(*profile, "h100").peak_correction, 2.0);
  EXPECT_EQ(bounds_for(*profile, "V100-32GB").peak_correction, 1.08) << "the entry for all";
  const LearnedBounds given = given_bounds_for(*profile, "A100-80GB");
  EXPECT_EQ(given.cuda_context, 1_GiB);
  EXPECT_FALSE(given.communication || given.convolution_workspace || given.peak_correction);
  EXPECT_FALSE(given_bounds_for(*profile, "V100-32GB").peak_correction) << "that was learned";
}

// Nothing is copied in no time: a zero was ignored for updates, and refused every swap plan for the link.
TEST(MemoryProfile, ARateOfZeroIsRefused) {
  for (const char* const field : {"hostBandwidth", "hostUpdateBandwidth"}) {
    for (const char* const zero : {"0", "\"0\""}) {
      EXPECT_THAT(
          error_of(profile_with(std::string("spec: {family: a, bounds: [{") + field + ": " + zero + "}]}")),
          HasSubstr(std::string("spec.bounds[0].") + field));
    }
  }
}

TEST(MemoryProfile, WithoutEntriesNothingIsKnown) {
  const Result<MemoryProfile> profile = decode_memory_profile(profile_with("spec: {family: ads}"));
  ASSERT_TRUE(profile.ok());
  const LearnedBounds bounds = bounds_for(*profile, "H100");
  EXPECT_FALSE(bounds.cuda_context || bounds.communication || bounds.workspace ||
               bounds.convolution_workspace || bounds.peak_correction);
}

TEST(MemoryProfile, MayDescribeItsFamilysModel) {
  const Json object = profile_with(R"(
    spec: {family: ads, model: {transformer: {seqLen: 8, layers: 2, hidden: 64, heads: 4, ffn: 256, vocab: 100}},
           training: {batchSizePerTrainer: 4}})");
  const Result<MemoryProfile> profile = decode_memory_profile(object);
  ASSERT_TRUE(profile.ok()) << to_string(profile.error());
  EXPECT_EQ(profile->model, object["spec"]["model"]);
  EXPECT_EQ(profile->training, object["spec"]["training"]);
  EXPECT_TRUE(decode_memory_profile(profile_with("spec: {family: ads}"))->model.isNull());
  EXPECT_THAT(error_of(profile_with("spec: {family: a, training: {batchSizePerTrainer: 4}}")),
              HasSubstr("spec.model: model and training must be given together"));
  EXPECT_THAT(error_of(profile_with("spec: {family: a, training: {}, model: {transformer: {seqLen: long}}}")),
              HasSubstr("spec.model.transformer.seqLen"));
}

TEST(MemoryProfile, NamesTheFieldThatIsWrong) {
  EXPECT_THAT(error_of(profile_with("spec: {}")), HasSubstr("spec.family: is required"));
  EXPECT_THAT(error_of(profile_with("status: {}")), HasSubstr("spec: is required"));
  EXPECT_THAT(error_of(profile_with("spec: {family: \"\"}")), HasSubstr("spec.family: must be"));
  for (const char* wrong : {"1.08", "5", "\"0.4\"", "\"4.1\"", "\"nan\"", "true"}) {
    EXPECT_THAT(
        error_of(profile_with(std::string("spec: {family: a, bounds: [{peakCorrection: ") + wrong + "}]}")),
        HasSubstr("spec.bounds[0].peakCorrection: must be a number from 0.5 to 4"))
        << wrong;
  }
  EXPECT_THAT(
      error_of(profile_with("spec: {family: a}, status: {bounds: [{gpuModel: h100}, {gpuModel: h100}]}")),
      HasSubstr("status.bounds[1].gpuModel: is twice"));
  for (const char* field : {"cudaContext", "communication", "workspace", "convolutionWorkspace"}) {
    for (const char* wrong : {"-1", "much", "1.5.2Gi", "[1]"}) {
      EXPECT_THAT(
          error_of(profile_with(std::string("spec: {family: a, bounds: [{") + field + ": " + wrong + "}]}")),
          HasSubstr(std::string("spec.bounds[0].") + field))
          << wrong;
    }
  }
  EXPECT_THAT(error_of(Json(3)), HasSubstr("must be an object"));
}

}  // namespace
}  // namespace plimsoll::crds
