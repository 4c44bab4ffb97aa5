#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

namespace plimsoll {
namespace {

TEST(File, IsReadWholeWithinItsLimit) {
  const std::string path = ::testing::TempDir() + "plimsoll-file-test";
  std::ofstream(path) << std::string(100'000, 'x');
  const Result<std::string> text = read_file(path);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text->size(), 100'000U);
  EXPECT_EQ(read_file(path, 99'999_B).error().code, ErrorCode::kTooLarge);
  std::remove(path.c_str());
}

TEST(File, WhatIsNoFileIsAnError) {
  EXPECT_EQ(read_file("/nowhere/at/all").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(read_file("/").error().code, ErrorCode::kInvalid);
}

// Opening it must not wait for a writer.
TEST(File, AFifoDoesNotBlock) {
  const std::string path = ::testing::TempDir() + "plimsoll-fifo-test";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(*read_file(path), "");
  std::remove(path.c_str());
}

}  // namespace
}  // namespace plimsoll
