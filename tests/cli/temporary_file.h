// A file that lives as long as the test needs it.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace plimsoll::testing {

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content) {
    std::string pattern = (std::filesystem::temp_directory_path() / "plimsoll-cli-XXXXXX").string();
    const int descriptor = ::mkstemp(pattern.data());
    if (descriptor >= 0) {
      ::close(descriptor);
    }
    path_ = pattern;
    std::ofstream(path_, std::ios::binary) << content;
  }
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace plimsoll::testing
