#include "tests/controlplane/scratch_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

namespace plimsoll::testing {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "plimsoll-test-";
// A folder younger than this may be between its making and its lock.
constexpr std::chrono::minutes kGrace{1};

// A descriptor that holds the lock, or -1 when the folder's owner lives.
int take_lock(const std::string& folder) {
  const int lock = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) != 0) {
    close(lock);
    return -1;
  }
  return lock;
}

void remove_abandoned(const fs::path& parent) {
  std::error_code ignored;
  const auto latest = fs::file_time_type::clock::now() - kGrace;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent, ignored)) {
    if (!entry.path().filename().string().starts_with(kPrefix) || entry.last_write_time(ignored) > latest) {
      continue;
    }
    const int lock = take_lock(entry.path().string());
    if (lock >= 0) {
      fs::remove_all(entry.path(), ignored);
      close(lock);
    }
  }
}

}  // namespace

Result<std::unique_ptr<ScratchDirectory>> ScratchDirectory::create() {
  std::error_code failure;
  const fs::path parent = fs::temp_directory_path(failure);
  if (failure) {
    return Error(ErrorCode::kInternal, "no folder for temporary files: " + failure.message());
  }
  remove_abandoned(parent);
  std::string path = (parent / (std::string(kPrefix) + "XXXXXX")).string();
  if (mkdtemp(path.data()) == nullptr) {
    return Error(ErrorCode::kInternal, "create " + path + ": " + std::strerror(errno));
  }
  const int lock = take_lock(path);
  return std::unique_ptr<ScratchDirectory>(new ScratchDirectory(path, lock));
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  if (lock_ >= 0) {
    close(lock_);
  }
}

}  // namespace plimsoll::testing
