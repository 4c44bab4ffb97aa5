#include "tests/controlplane/scratch_directory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace plimsoll::testing {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<ScratchDirectory> create() {
  Result<std::unique_ptr<ScratchDirectory>> made = ScratchDirectory::create();
  EXPECT_TRUE(made.ok());
  return *std::move(made);
}

void make_old(const fs::path& path) {
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
}

TEST(ScratchDirectory, GoesWithItsOwner) {
  std::string path;
  {
    const auto scratch = create();
    path = scratch->path();
    std::ofstream(scratch->file("a")) << "text";
    EXPECT_TRUE(fs::exists(path + "/a"));
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(ScratchDirectory, ClearsWhatADeadTestLeft) {
  const auto living = create();
  make_old(living->path());
  const std::string own = std::to_string(::getpid());  // another process may run the same test
  const fs::path abandoned = fs::temp_directory_path() / ("plimsoll-test-abandoned-" + own);
  fs::create_directory(abandoned);
  std::ofstream(abandoned / "data") << "text";
  make_old(abandoned);
  const fs::path fresh = fs::temp_directory_path() / ("plimsoll-test-fresh-" + own);
  fs::create_directory(fresh);

  const auto another = create();
  EXPECT_FALSE(fs::exists(abandoned));
  EXPECT_TRUE(fs::exists(living->path()));
  EXPECT_TRUE(fs::exists(fresh));  // may be between its making and its lock
  fs::remove_all(fresh);
}

}  // namespace
}  // namespace plimsoll::testing
