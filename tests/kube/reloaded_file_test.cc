#include "kube/reloaded_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "tests/kube/virtual_clock.h"

namespace plimsoll::kube {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

class ReloadedFileTest : public ::testing::Test {
 protected:
  ReloadedFileTest() {
    std::string name = (fs::temp_directory_path() / "reloaded_file_test_XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
  }
  ~ReloadedFileTest() override { fs::remove_all(directory_); }

  std::string path() const { return directory_ + "/ca.pem"; }
  void write(const std::string& text) const { std::ofstream(path(), std::ios::trunc) << text; }

  std::string directory_;
  testing::VirtualClock clock_;
};

TEST_F(ReloadedFileTest, IsAtMostAMinuteOld) {
  write("new");
  ReloadedFile file(path(), "old", clock_);
  EXPECT_EQ(file.current(), "old") << "it was read a moment ago";
  clock_.pass(seconds(59));
  EXPECT_EQ(file.current(), "old");
  clock_.pass(seconds(1));
  EXPECT_EQ(file.current(), "new");
  write("newer");
  clock_.pass(seconds(59));
  EXPECT_EQ(file.current(), "new");
  clock_.pass(seconds(1));
  EXPECT_EQ(file.current(), "newer");
}

TEST_F(ReloadedFileTest, IsReadAtOnceWhenItHasExpired) {
  write("new");
  ReloadedFile file(path(), "old", clock_);
  file.expire();
  EXPECT_EQ(file.current(), "new");
  write("newer");
  EXPECT_EQ(file.current(), "new") << "once only";
}

TEST_F(ReloadedFileTest, KeepsItsTextWhileTheFileIsAwayEmptyOrTooLarge) {
  ReloadedFile file(path(), "old", clock_);
  file.expire();
  EXPECT_EQ(file.current(), "old") << "no file";
  write("");
  file.expire();
  EXPECT_EQ(file.current(), "old") << "empty";
  write(std::string((1 << 20) + 1, 'x'));
  file.expire();
  EXPECT_EQ(file.current(), "old") << "more than 1 MiB";
  fs::remove(path());
  fs::create_directory(path());
  file.expire();
  EXPECT_EQ(file.current(), "old") << "a directory";
  fs::remove(path());
  write("new");
  file.expire();
  EXPECT_EQ(file.current(), "new");
}

TEST_F(ReloadedFileTest, TextWithoutAFileNeverChanges) {
  ReloadedFile file("", "inline", clock_);
  EXPECT_FALSE(file.is_file());
  file.expire();
  clock_.pass(std::chrono::hours(24));
  EXPECT_EQ(file.current(), "inline");
  EXPECT_TRUE(ReloadedFile(path(), "", clock_).is_file());
}

}  // namespace
}  // namespace plimsoll::kube
