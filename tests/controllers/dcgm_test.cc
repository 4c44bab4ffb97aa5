#include "controllers/dcgm.h"

#include <gmock/gmock.h>

namespace plimsoll::controllers {
namespace {

using ::testing::HasSubstr;

TEST(Dcgm, AsksForThePodsOfOneAttempt) {
  const std::string query = dcgm_query("ml", "ads-ctr", 2, 600);
  EXPECT_THAT(
      query,
      HasSubstr(
          R"(max(max_over_time(DCGM_FI_DEV_FB_USED{namespace="ml",pod=~"ads-ctr-2-[0-9]+-[a-z0-9]+"}[600s])))"));
  EXPECT_THAT(query, HasSubstr(R"({exported_namespace="ml",exported_pod=~"ads-ctr-2-)"));
}

TEST(Dcgm, ReadsMebibytes) {
  const Result<std::optional<Bytes>> peak = read_dcgm_answer(
      R"({"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1700000000.1,"54321"]}]}})");
  ASSERT_TRUE(peak.ok());
  EXPECT_EQ(*peak, 54321_MiB);
}

TEST(Dcgm, NoSeriesIsNoAnswer) {
  for (const char* body :
       {R"({"status":"success","data":{"result":[]}})",
        R"({"status":"success","data":{"result":[{"value":[1,"NaN"]}]}})",
        R"({"status":"success","data":{"result":[{"value":[1,"-4"]},{"value":[1]},7,{"value":"x"}]}})",
        R"({"status":"success","data":{"result":[{"value":[1,"12 GiB"]}]}})"}) {
    const Result<std::optional<Bytes>> peak = read_dcgm_answer(body);
    ASSERT_TRUE(peak.ok()) << body;
    EXPECT_FALSE(peak->has_value()) << body;
  }
}

TEST(Dcgm, WhatIsNoAnswerIsAnError) {
  for (const char* body : {"", "<html>", R"({"status":"error","error":"bad query"})",
                           R"({"status":"success"})", R"({"status":"success","data":{"result":"x"}})"}) {
    EXPECT_FALSE(read_dcgm_answer(body).ok()) << body;
  }
  EXPECT_THAT(read_dcgm_answer(R"({"status":"error","error":"bad query"})").error().message,
              HasSubstr("bad query"));
}

}  // namespace
}  // namespace plimsoll::controllers
