#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace plimsoll {
namespace {

Error failed(const std::string& path, int reason) {
  const ErrorCode code = reason == ENOENT || reason == ENOTDIR ? ErrorCode::kNotFound
                         : reason == EACCES || reason == EPERM ? ErrorCode::kForbidden
                                                               : ErrorCode::kInvalid;
  return Error(code, "cannot read " + path + ": " + std::strerror(reason));
}

// Closed when it goes out of scope.
struct Descriptor {
  ~Descriptor() {
    if (number >= 0) {
      ::close(number);
    }
  }
  const int number;
};

}  // namespace

Result<std::string> read_file(const std::string& path, Bytes limit) {
  // O_NONBLOCK: opening a FIFO for reading would wait for a writer.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  struct stat about {};
  if (file.number < 0 || ::fstat(file.number, &about) != 0) {
    return failed(path, errno);
  }
  if (S_ISDIR(about.st_mode)) {
    return failed(path, EISDIR);
  }
  std::string text;
  std::array<char, 65536> piece{};
  ssize_t got = 0;
  while ((got = TEMP_FAILURE_RETRY(::read(file.number, piece.data(), piece.size()))) > 0) {
    text.append(piece.data(), static_cast<std::size_t>(got));
    if (Bytes{static_cast<std::int64_t>(text.size())} > limit) {
      return Error(ErrorCode::kTooLarge, path + " is larger than " + to_string(limit));
    }
  }
  return got < 0 ? Result<std::string>(failed(path, errno)) : text;
}

}  // namespace plimsoll
