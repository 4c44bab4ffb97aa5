#include "controllers/gpu_hours.h"

#include <gtest/gtest.h>

namespace plimsoll::controllers {
namespace {

crds::Attempt attempt_of(const char* begun, const char* ended) {
  crds::Attempt attempt;
  attempt.trainers = 16;
  attempt.start_time = begun;
  attempt.completion_time = ended;
  return attempt;
}

TEST(GpuHours, AreThoseOfAllAttempts) {
  crds::JobStatus status;
  add_gpu_hours(status, attempt_of("2026-11-21T08:00:00Z", "2026-11-21T08:30:00Z"));
  EXPECT_EQ(status.gpu_hours, "8.000");
  add_gpu_hours(status, attempt_of("2026-11-21T09:00:00Z", "2026-11-22T09:00:00Z"));
  EXPECT_EQ(status.gpu_hours, "392.000");
  EXPECT_EQ(status.gpu_hours_saved, "") << "the speed is not known";
}

TEST(GpuHours, AnAttemptThatDidNotRunHeldNone) {
  crds::JobStatus status;
  add_gpu_hours(status, attempt_of("", "2026-11-21T08:30:00Z"));
  add_gpu_hours(status, attempt_of("2026-11-21T08:00:00Z", ""));
  add_gpu_hours(status, attempt_of("2026-11-21T08:00:00Z", "2026-11-21T07:00:00Z"));
  add_gpu_hours(status, attempt_of("yesterday", "2026-11-21T07:00:00Z"));
  EXPECT_EQ(status.gpu_hours, "");
}

// Fewer trainers take longer for the same samples: what they save is not the difference in GPUs.
TEST(GpuHours, SavedAreThoseForTheSameSamples) {
  crds::JobStatus status;
  status.throughput["gpuHoursPerMillionSamples"] = "10.0";
  status.throughput["requested"]["gpuHoursPerMillionSamples"] = "12.5";
  add_gpu_hours(status, attempt_of("2026-11-21T08:00:00Z", "2026-11-21T08:30:00Z"));
  EXPECT_EQ(status.gpu_hours_saved, "2.000");
  status.throughput["requested"]["gpuHoursPerMillionSamples"] = "5.0";
  add_gpu_hours(status, attempt_of("2026-11-21T08:00:00Z", "2026-11-21T08:30:00Z"));
  EXPECT_EQ(status.gpu_hours_saved, "-2.000");
}

TEST(GpuHours, DamagedFiguresCountAsUnknown) {
  EXPECT_FALSE(gpu_hours_in(""));
  EXPECT_FALSE(gpu_hours_in("12h"));
  EXPECT_FALSE(gpu_hours_in("inf"));
  crds::JobStatus status;
  status.gpu_hours = "many";
  status.throughput["gpuHoursPerMillionSamples"] = 10;
  add_gpu_hours(status, attempt_of("2026-11-21T08:00:00Z", "2026-11-21T08:30:00Z"));
  EXPECT_EQ(status.gpu_hours, "8.000");
}

}  // namespace
}  // namespace plimsoll::controllers
