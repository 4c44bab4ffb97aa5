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

}  // namespace

Result<std::string> read_file(const std::string& path, Bytes limit) {
  // O_NONBLOCK: opening a FIFO for reading would wait for a writer.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) {
    return failed(path, errno);
  }
  struct stat about {};
  if (::fstat(file, &about) == 0 && S_ISDIR(about.st_mode)) {
    ::close(file);
    return failed(path, EISDIR);
  }
  std::string text;
  std::array<char, 65536> piece{};
  while (true) {
    const ssize_t got = ::read(file, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      const int reason = errno;
      ::close(file);
      return failed(path, reason);
    }
    if (got == 0) {
      break;
    }
    text.append(piece.data(), static_cast<std::size_t>(got));
    if (Bytes{static_cast<std::int64_t>(text.size())} > limit) {
      ::close(file);
      return Error(ErrorCode::kTooLarge, path + " is larger than " + to_string(limit));
    }
  }
  ::close(file);
  return text;
}

}  // namespace plimsoll
